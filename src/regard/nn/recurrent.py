"""Recurrent layers over padded batches: LSTM and GRU, in one direction or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import _VF, Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.nn.dropout import Dropout
from regard.nn.inputs import check_keep, check_sequence
from regard.nn.options import check_options
from regard.ops.transforms import in_transform

Kind = Literal["lstm", "gru"]
RecurrentState = tuple[Tensor, ...]
"""What a recurrent stack remembers: (hidden,) of a GRU, (hidden, cell) of an LSTM, each [layers, batch, hidden_dim]."""


class RecurrentEncoder(nn.Module):
    """LSTM or GRU layers that read a padded batch as if every row were alone.

        LSTM  i, f, g, o = W x_t + U h_{t−1} + b;   c_t = σ(f) c_{t−1} + σ(i) tanh(g);   h_t = σ(o) tanh(c_t)
        GRU   r, z, n = W x_t + b;  r', z', n' = U h_{t−1} + b';   n = tanh(n + σ(r + r') n')
              h_t = n + σ(z + z') (h_{t−1} − n)

    Neither what stands in padding nor how much of it there is changes anything; padding may be anywhere.

    Args:
        kind: "lstm" or "gru".
        input_dim: Width of the inputs.
        hidden_dim: Width of the state of one direction.
        num_layers: How many, each reading the one below.
        bidirectional: Read from both ends; states are then [forward, backward], 2 · hidden_dim wide.
        dropout_p: Share of the numbers dropped between layers in training.

    Raises:
        ConfigError: an option is out of range.

    Numerics:
        Gates in the order of torch.nn.LSTM and GRU, whose weights fit. Equal to them on each row alone.

    Cost:
        torch's own kernels, on packed sequences where there is padding (which waits for a GPU once). They cannot be
        compiled or transformed: under ``torch.compile`` and ``torch.func`` the formula above runs step by step (as
        fast on a CPU), and compiling takes time with the length.

    Source:
        Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; Cho et al. 2014, arXiv:1406.1078;
        both ends: Schuster and Paliwal 1997.

    Example:
        >>> import torch
        >>> encoder = RecurrentEncoder("gru", 3, 4, bidirectional=True)
        >>> states, final = encoder(torch.zeros(2, 5, 3), lengths=torch.tensor([5, 0]))
        >>> tuple(states.shape), tuple(final[0].shape), bool(states[1].any())
        ((2, 5, 8), (2, 2, 4), False)
    """

    def __init__(
        self,
        kind: Kind,
        input_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        check_recurrent(
            "RecurrentEncoder", kind, dropout_p, input_dim=input_dim, hidden_dim=hidden_dim, num_layers=num_layers
        )
        self.kind, self.input_dim, self.hidden_dim = kind, input_dim, hidden_dim
        self.num_directions = 2 if bidirectional else 1
        self.output_dim = hidden_dim * self.num_directions
        widths = [input_dim, *[self.output_dim] * (num_layers - 1)]
        self.layers = nn.ModuleList(_Layer(kind, width, hidden_dim, self.num_directions) for width in widths)
        self.dropout = Dropout(dropout_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew (see ``reset_recurrent``)."""
        for layer in self.layers:
            reset_recurrent(layer, self.kind)

    def start(self, batch: int) -> RecurrentState:
        """The state before anything was read: zeros."""
        weight = getattr(self.layers[0], "weight_hh_l0")  # noqa: B009 - a module's attribute has no type
        size = (len(self.layers) * self.num_directions, batch, self.hidden_dim)
        return tuple(weight.new_zeros(size) for _ in range(2 if self.kind == "lstm" else 1))

    def forward(
        self,
        inputs: Float[Tensor, "batch length input_dim"],
        keep: Bool[Tensor, "batch length"] | None = None,
        *,
        lengths: Int[Tensor, "batch"] | None = None,
        state: RecurrentState | None = None,
    ) -> tuple[Float[Tensor, "batch length output_dim"], RecurrentState]:
        """Read a batch.

        Args:
            inputs: Batch first, always.
            keep: True for real inputs; all by default.
            lengths: Instead of ``keep``: how many inputs of each row are real.
            state: What was returned before, to go on from there; zeros by default.

        Returns:
            The top layer's state at every position, zeros at padding; and the state of every layer after the last real
            input (for the backward direction: after the first), which is the one given where a row has none.
            Layers count from below, the forward direction first.

        Raises:
            ShapeError, DTypeError: a shape or a dtype does not fit.
            ConfigError: both ``keep`` and ``lengths`` are given, or a length is out of range.
        """
        keep = self._keep(inputs, keep, lengths)
        state = self.start(inputs.shape[0]) if state is None else state
        self._check_state(inputs, state)
        if torch.compiler.is_compiling() or in_transform() or inputs.shape[0] == 0 or inputs.shape[1] == 0:
            return self._written_out(inputs, keep, state)
        if keep is None or bool(keep.all()):
            return self._stack(inputs, state)
        return self._packed(inputs, keep, state)

    def _packed(self, inputs: Tensor, keep: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Real inputs moved to the front and packed, so that every row ends where it ends."""
        lengths = keep.sum(1)
        length, front = keep.shape[1], torch.arange(keep.shape[1], device=keep.device) < lengths[:, None]
        moved = not bool((front == keep).all())
        order = torch.argsort(~keep, dim=1, stable=True)[..., None] if moved else None
        if order is not None:
            inputs = inputs.gather(1, order.expand_as(inputs))
        empty = lengths == 0
        if some_empty := bool(empty.any()):
            # a row without inputs cannot be packed: it reads one zero, and what comes of it is undone below
            inputs = inputs.masked_fill(empty[:, None, None], 0)
        packed = pack_padded_sequence(inputs, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        read, final = self._stack(packed, tuple(part[:, packed.sorted_indices] for part in state))
        states, _ = pad_packed_sequence(read, batch_first=True, total_length=length)
        final = tuple(part[:, packed.unsorted_indices] for part in final)
        if order is not None:
            states = torch.zeros_like(states).scatter(1, order.expand_as(states), states)
        if some_empty:
            states = states.masked_fill(~keep[..., None], 0)
            final = tuple(torch.where(empty[:, None], old, new) for old, new in zip(state, final, strict=True))
        return states, final

    def _stack(self, inputs: Any, state: RecurrentState) -> tuple[Any, RecurrentState]:
        """Every layer by torch's kernels, on a padded tensor or a packed sequence."""
        finals: list[RecurrentState] = []
        for layer, before in zip(self.layers, self._of_layers(state), strict=True):
            if finals:
                inputs = self._drop(inputs)
            inputs, after = layer(inputs, before)
            finals.append(after)
        return inputs, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def _drop(self, inputs: Any) -> Any:
        if isinstance(inputs, Tensor):
            return self.dropout(inputs)
        return inputs._replace(data=self.dropout(inputs.data))

    def _of_layers(self, state: RecurrentState) -> Iterator[RecurrentState]:
        """The state of each layer, [directions, batch, hidden_dim]."""
        return zip(*(torch.split(part, self.num_directions) for part in state), strict=True)

    def _written_out(self, inputs: Tensor, keep: Tensor | None, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """The formula, step by step: what can be compiled and transformed."""
        finals: list[RecurrentState] = []
        inputs = inputs if keep is None else inputs.masked_fill(~keep[..., None], 0)
        for number, (layer, before) in enumerate(zip(self.layers, self._of_layers(state), strict=True)):
            inputs = self.dropout(inputs) if number else inputs
            ends, outputs = [], []
            for direction in range(self.num_directions):
                read, end = self._one_way(layer, direction, inputs, keep, tuple(part[direction] for part in before))
                outputs.append(read)
                ends.append(end)
            inputs = torch.cat(outputs, dim=-1)
            finals.append(tuple(torch.stack(parts) for parts in zip(*ends, strict=True)))
        return inputs, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def _one_way(
        self, layer: nn.Module, direction: int, inputs: Tensor, keep: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        weight_in, weight, bias_in, bias = (getattr(layer, name) for name in _parameter_names(direction))
        gates = input_gates(self.kind, inputs, weight_in, bias_in, bias).unbind(dim=1)
        steps = range(len(gates))
        outputs: list[Tensor] = list(gates)  # each replaced by the state after it
        for step in reversed(steps) if direction else steps:
            after = recurrent_step(self.kind, gates[step], weight, bias, state)
            if keep is not None:
                real = keep[:, step, None]
                after = tuple(torch.where(real, new, old) for new, old in zip(after, state, strict=True))
            state = after
            outputs[step] = state[0] if keep is None else state[0] * keep[:, step, None]
        if not outputs:
            return inputs.new_zeros(inputs.shape[0], 0, self.hidden_dim), state
        return torch.stack(outputs, dim=1), state

    def _keep(self, inputs: Tensor, keep: Tensor | None, lengths: Tensor | None) -> Tensor | None:
        weight = getattr(self.layers[0], "weight_ih_l0")  # noqa: B009 - a module's attribute has no type
        check_sequence("RecurrentEncoder", "inputs", inputs, self.input_dim, weight)
        batch, length, _ = inputs.shape
        if keep is not None and lengths is not None:
            raise ConfigError(message("RecurrentEncoder", "`keep` and `lengths` say the same: give one of them."))
        if lengths is not None:
            _check_lengths(lengths, batch)
            if not torch.compiler.is_compiling() and bool(((lengths < 0) | (lengths > length)).any()):
                raise ConfigError(
                    message("RecurrentEncoder", must_be("lengths", f"from 0 to {length}", lengths.tolist()))
                )
            return torch.arange(length, device=inputs.device) < lengths.to(inputs.device)[:, None]
        return None if keep is None else check_keep("RecurrentEncoder", "keep", keep, (batch, length))

    def _check_state(self, inputs: Tensor, state: RecurrentState) -> None:
        expected = (len(self.layers) * self.num_directions, inputs.shape[0], self.hidden_dim)
        parts = 2 if self.kind == "lstm" else 1
        check_state("RecurrentEncoder", state, [expected] * parts)


def check_state(caller: str, state: object, shapes: list[tuple[int, ...]]) -> None:
    """Refuse what is no tuple of tensors of these shapes, which are all alike.

    Raises:
        ShapeError: as said.
    """
    parts = state if isinstance(state, tuple | list) else [state]
    found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
    if found != shapes:
        problem = must_be("state", f"{len(shapes)} tensor(s) of shape {shapes[0]}", f"of shapes {found}")
        raise ShapeError(message(caller, problem))


def _check_lengths(lengths: object, batch: int) -> None:
    if not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        found = lengths.dtype if isinstance(lengths, Tensor) else f"a {type(lengths).__name__}"
        raise DTypeError(message("RecurrentEncoder", must_be("lengths", "a tensor of integers", found)))
    if tuple(lengths.shape) != (batch,):
        problem = must_be("lengths", f"of shape ({batch},)", f"of shape {tuple(lengths.shape)}")
        raise ShapeError(message("RecurrentEncoder", problem))


class _Layer(nn.Module):
    """One layer by torch's kernels, with the parameters of torch.nn.LSTM or GRU and their names.

    Not that module itself: ``torch.compile`` refuses whatever holds one.
    """

    def __init__(self, kind: Kind, input_dim: int, hidden_dim: int, num_directions: int) -> None:
        super().__init__()
        self.kind, self.num_directions = kind, num_directions
        gates = (4 if kind == "lstm" else 3) * hidden_dim
        shapes = ((gates, input_dim), (gates, hidden_dim), (gates,), (gates,))
        for direction in range(num_directions):
            for name, shape in zip(_parameter_names(direction), shapes, strict=True):
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, inputs: Any, state: RecurrentState) -> tuple[Any, RecurrentState]:
        """Read a padded tensor, or a packed sequence."""
        weights = [getattr(self, name) for way in range(self.num_directions) for name in _parameter_names(way)]
        run: Any = _VF.lstm if self.kind == "lstm" else _VF.gru
        before: Any = state if self.kind == "lstm" else state[0]
        options = (True, 1, 0.0, self.training, self.num_directions == 2)
        if isinstance(inputs, Tensor):
            states, *after = run(inputs, before, weights, *options, True)
            return states, tuple(after)
        data, *after = run(inputs.data, inputs.batch_sizes, before, weights, *options)
        return inputs._replace(data=data), tuple(after)

    def _apply(self, fn: Any, recurse: bool = True) -> _Layer:
        """Move, and lay the weights side by side where cuDNN wants that (it warns and copies them otherwise)."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        weights = [getattr(self, name) for way in range(self.num_directions) for name in _parameter_names(way)]
        cudnn: Any = torch.backends.cudnn
        if weights[0].is_cuda and cudnn.is_acceptable(weights[0]):
            mode = 2 if self.kind == "lstm" else 3  # cuDNN's numbers of the two
            with torch.cuda.device(weights[0].device), torch.no_grad():
                sizes = (weights[0].shape[1], mode, weights[1].shape[1], 0, 1)
                torch._cudnn_rnn_flatten_weight(weights, 4, *sizes, True, self.num_directions == 2)
        return self


def _parameter_names(direction: int) -> list[str]:
    suffix = "_l0_reverse" if direction else "_l0"
    return [name + suffix for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def input_gates(kind: Kind, inputs: Tensor, weight: Tensor, bias: Tensor, recurrent_bias: Tensor) -> Tensor:
    """W x + b for all steps at once; of an LSTM with both biases, which are only ever added."""
    return functional.linear(inputs, weight, bias + recurrent_bias if kind == "lstm" else bias)


def recurrent_step(
    kind: Kind, gates: Tensor, weight: Tensor, bias: Tensor, state: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """One step of one layer.

    Args:
        kind: "lstm" or "gru".
        gates: Of this step, from ``input_gates``: [batch, 4 (or 3) · hidden_dim], in torch's order of gates.
        weight: U.
        bias: Its bias, which a GRU needs here.
        state: (h,) or (h, c) before, each [batch, hidden_dim].

    Returns:
        (h,) or (h, c) after.
    """
    if kind == "lstm":
        enter, forget, new, leave = torch.addmm(gates, state[0], weight.mT).chunk(4, dim=-1)
        cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell
    recurrent = functional.linear(state[0], weight, bias)
    (reset, update, new), (reset_h, update_h, new_h) = gates.chunk(3, dim=-1), recurrent.chunk(3, dim=-1)
    candidate = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    return (candidate + (update + update_h).sigmoid() * (state[0] - candidate),)


def reset_recurrent(layer: nn.Module, kind: Kind) -> None:
    """Draw the weights of torch.nn.LSTM, GRU or one of their cells anew.

    Glorot-uniform from the inputs, orthogonal for each gate from the state, zero biases; the forget gate of an LSTM
    starts open (bias 1), so that gradients reach far from the beginning.

    Source:
        Jozefowicz, Zaremba and Sutskever 2015, "An Empirical Exploration of Recurrent Network Architectures".
    """
    gates = 4 if kind == "lstm" else 3
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.chunk(gates):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                for gate in parameter.chunk(gates):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(parameter)
                if kind == "lstm" and name.startswith("bias_ih"):
                    nn.init.ones_(parameter.chunk(4)[1])


def check_recurrent(caller: str, kind: str, dropout_p: float, **sizes: int) -> None:
    """Refuse a kind, a share or sizes that no recurrent layer can have.

    Raises:
        ConfigError: with every problem.
    """
    problems = [] if kind in get_args(Kind) else [must_be("kind", '"lstm" or "gru"', repr(kind))]
    check_options(caller, sizes, shares={"dropout_p": dropout_p}, more=problems)
