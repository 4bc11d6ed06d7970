"""A recurrent decoder that looks back at what the encoder read, one step at a time."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.errors import DTypeError, ShapeError, all_problems, message, must_be
from regard.nn.additive import AdditiveAttention, DotAttention
from regard.nn.dropout import Dropout
from regard.nn.initial import reset_linear
from regard.nn.inputs import check_keep, check_sequence
from regard.nn.recurrent import (
    Kind,
    RecurrentState,
    check_recurrent,
    check_state,
    input_gates,
    recurrent_step,
    reset_recurrent,
)

Attention = Literal["additive", "dot"]


class Memory(NamedTuple):
    """What a decoder looks at: the encoder's states, their projection (computed once), and which are real."""

    states: Tensor
    projected: Tensor
    allowed: Tensor | None

    def repeat(self, times: int) -> Memory:
        """Every row as often as it has beams, side by side."""
        states, projected = (part.repeat_interleave(times, dim=0) for part in (self.states, self.projected))
        allowed = None if self.allowed is None else self.allowed.repeat_interleave(times, dim=0)
        return Memory(states, projected, allowed)


class DecoderState(NamedTuple):
    """Where a decoder is: the state of its cells, and the last attentional vector, which is fed back."""

    recurrent: RecurrentState
    fed: Tensor

    def select(self, rows: Tensor) -> DecoderState:
        """The states of some batch rows, in this order (beams)."""
        return DecoderState(
            tuple(part.index_select(1, rows) for part in self.recurrent), self.fed.index_select(0, rows)
        )


class AttentionDecoder(nn.Module):
    """Recurrent cells with attention and input feeding.

        h_t       = cells([input_t; a_{t−1}], h_{t−1})
        context_t = Σ_j weights_tj · memory_j,   weights_t = attention(h_t, memory)
        a_t       = tanh(W [context_t; h_t])

    Both scores sit in the same decoder, so that they can be compared; Bahdanau's own asks with h_{t−1} instead.

    Args:
        kind: "lstm" or "gru".
        input_dim: Width of the inputs (target embeddings).
        hidden_dim: Width of the state.
        memory_dim: Width of the encoder's states.
        num_layers: Cells on top of each other.
        output_dim: Width of a_t; ``hidden_dim`` by default.
        attention: "additive" (network of ``hidden_dim``) or "dot" (general: h_t · W memory_j).
        dropout_p: Share of the numbers dropped between cells in training.

    Raises:
        ConfigError: an option is out of range.

    Numerics:
        A pass over many inputs is the same computation as one step after another.

    Cost:
        Sequential in the inputs; what only they decide is multiplied at once, before the first step.

    Source:
        Luong, Pham and Manning 2015, arXiv:1508.04025, sections 3.1 and 3.3; Bahdanau et al. 2015, arXiv:1409.0473.

    Example:
        >>> import torch
        >>> decoder = AttentionDecoder("lstm", 3, 4, 6)
        >>> memory = decoder.remember(torch.zeros(2, 5, 6))
        >>> outputs, weights, state = decoder(torch.zeros(2, 7, 3), decoder.start(2), memory)
        >>> tuple(outputs.shape), tuple(weights.shape)
        ((2, 7, 4), (2, 7, 5))
    """

    def __init__(
        self,
        kind: Kind,
        input_dim: int,
        hidden_dim: int,
        memory_dim: int,
        num_layers: int = 1,
        *,
        output_dim: int | None = None,
        attention: Attention = "additive",
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        output_dim = hidden_dim if output_dim is None else output_dim
        sizes = {"input_dim": input_dim, "hidden_dim": hidden_dim, "memory_dim": memory_dim, "output_dim": output_dim}
        check_recurrent("AttentionDecoder", kind, dropout_p, num_layers=num_layers, **sizes)
        if attention not in get_args(Attention):
            problem = must_be("attention", '"additive" or "dot"', repr(attention))
            raise all_problems("AttentionDecoder", [problem])
        self.kind, self.input_dim, self.hidden_dim, self.output_dim = kind, input_dim, hidden_dim, output_dim
        self.memory_dim = memory_dim
        cell = nn.LSTMCell if kind == "lstm" else nn.GRUCell
        widths = [input_dim + output_dim, *[hidden_dim] * (num_layers - 1)]
        self.cells = nn.ModuleList(cell(width, hidden_dim) for width in widths)
        self.attention: AdditiveAttention | DotAttention = (
            AdditiveAttention(hidden_dim, memory_dim, hidden_dim)
            if attention == "additive"
            else DotAttention(hidden_dim, memory_dim, score="general")
        )
        self.joined = nn.Linear(memory_dim + hidden_dim, output_dim)
        self.dropout = Dropout(dropout_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew."""
        for cell in self.cells:
            reset_recurrent(cell, self.kind)
        self.attention.reset_parameters()
        reset_linear(self.joined)

    def start(self, batch: int, recurrent: RecurrentState | None = None) -> DecoderState:
        """The state before the first input: the encoder's last, or zeros; nothing is fed back yet."""
        weight = self.joined.weight
        if recurrent is None:
            size = (len(self.cells), batch, self.hidden_dim)
            recurrent = tuple(weight.new_zeros(size) for _ in range(2 if self.kind == "lstm" else 1))
        return DecoderState(recurrent, weight.new_zeros(batch, self.output_dim))

    def remember(
        self, memory: Float[Tensor, "batch kv_len memory_dim"], keep: Bool[Tensor, "batch kv_len"] | None = None
    ) -> Memory:
        """Prepare what is looked at, once for all steps.

        Args:
            memory: The encoder's states.
            keep: Which of them are real; all by default.

        Raises:
            ShapeError, DTypeError: a shape or a dtype does not fit.
        """
        check_sequence("AttentionDecoder", "memory", memory, self.memory_dim, self.joined.weight)
        if keep is not None:
            check_keep("AttentionDecoder", "keep", keep, tuple(memory.shape[:2]))
        allowed = None if keep is None else keep[:, None]
        states = memory if keep is None else memory.masked_fill(~keep[..., None], 0)
        return Memory(states, self.attention.project(states), allowed)

    def forward(
        self, inputs: Float[Tensor, "batch length input_dim"], state: DecoderState, memory: Memory
    ) -> tuple[Float[Tensor, "batch length output_dim"], Float[Tensor, "batch length kv_len"], DecoderState]:
        """Decode.

        Args:
            inputs: Known inputs (teacher forcing), or one step's, of length 1.
            state: From ``start`` or the call before.
            memory: From ``remember``.

        Returns:
            The attentional vectors a_t, the weights in float32 (float64 for float64), and the state to go on from.

        Raises:
            ShapeError, DTypeError: a shape or a dtype does not fit.
        """
        self._check(inputs, state, memory)
        first: Any = self.cells[0]
        of_inputs, of_fed = first.weight_ih.split((self.input_dim, self.output_dim), dim=1)
        gates = input_gates(self.kind, inputs, of_inputs, first.bias_ih, first.bias_hh)
        outputs, seen = [], []
        for step in gates.unbind(dim=1):
            output, weights, state = self._step(step, of_fed, state, memory)
            outputs.append(output)
            seen.append(weights)
        if not outputs:
            empty = inputs.new_zeros(inputs.shape[0], 0, self.output_dim)
            return empty, inputs.new_zeros(inputs.shape[0], 0, memory.states.shape[1]), state
        return torch.stack(outputs, dim=1), torch.cat(seen, dim=1), state

    def _check(self, inputs: Tensor, state: DecoderState, memory: Memory) -> None:
        caller = "AttentionDecoder"
        check_sequence(caller, "inputs", inputs, self.input_dim, self.joined.weight)
        for name, given, kind in (("state", state, DecoderState), ("memory", memory, Memory)):
            if not isinstance(given, kind):
                expected = "what start() returned" if kind is DecoderState else "what remember() returned"
                raise DTypeError(message(caller, must_be(name, expected, f"a {type(given).__name__}")))
        if memory.states.shape[0] != inputs.shape[0]:
            problem = f"`memory` must have the batch of `inputs` ({inputs.shape[0]}), but has {memory.states.shape[0]}."
            raise ShapeError(message(caller, problem))
        shape = (len(self.cells), inputs.shape[0], self.hidden_dim)
        check_state(caller, state.recurrent, [shape] * (2 if self.kind == "lstm" else 1))

    def _step(
        self, gates: Tensor, of_fed: Tensor, state: DecoderState, memory: Memory
    ) -> tuple[Tensor, Tensor, DecoderState]:
        gates = torch.addmm(gates, state.fed, of_fed.mT)
        afters: list[tuple[Tensor, ...]] = []
        cell: Any  # LSTMCell and GRUCell, for their parameters
        for number, cell in enumerate(self.cells):
            if number:
                below = self.dropout(afters[-1][0])
                gates = input_gates(self.kind, below, cell.weight_ih, cell.bias_ih, cell.bias_hh)
            before = tuple(part[number] for part in state.recurrent)
            afters.append(recurrent_step(self.kind, gates, cell.weight_hh, cell.bias_hh, before))
        hidden = afters[-1][0]
        weights = self.attention.weigh(hidden[:, None], memory.projected, memory.allowed)
        context = (weights.to(memory.states.dtype) @ memory.states)[:, 0]
        output = self.joined(torch.cat((context, hidden), dim=-1)).tanh()
        return output, weights, DecoderState(tuple(torch.stack(parts) for parts in zip(*afters, strict=True)), output)
