"""The recurrent encoder–decoder: translation before the Transformer, without and with attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import UnsupportedError, message, must_be
from regard.models.beam_search import Hypothesis, beam_search, check_search
from regard.models.configuration import check_config, need_config
from regard.models.padding import find_keep
from regard.nn.dropout import Dropout
from regard.nn.embedding import check_tokens
from regard.nn.initial import reset_linear
from regard.nn.recurrent import Kind, RecurrentEncoder, RecurrentState
from regard.nn.recurrent_decoder import AttentionDecoder, DecoderState, Memory

LooksBack = Literal["none", "additive", "dot"]
State = DecoderState | RecurrentState


@dataclass(frozen=True)
class RecurrentEncoderDecoderConfig:
    """What a ``RecurrentEncoderDecoder`` is built from.

    Args:
        source_vocab_size: Ids of the source.
        vocab_size: Ids of the target.
        kind: "lstm" or "gru".
        attention: How the decoder looks back: not at all, by additive or by dot-product scores.
        embed_dim: Width of embeddings, and of what the logits are read from.
        hidden_dim: Width of the decoder's state; the encoder has half of it in each direction, so it is even.
        encoder_layers: Layers that read the source.
        decoder_layers: Layers that write; each begins with the end of the encoder's layer beside it, from the top.
        tie_embeddings: Use the target embedding for the logits too.
        dropout_p: Share dropped in training, from embeddings, between layers and before the logits.
        pad_id: Padding, in source and target.
        bos_id: Begins every target.
        eos_id: Ends every target.

    Raises:
        ConfigError: with every problem.
    """

    source_vocab_size: int
    vocab_size: int
    kind: Kind = "lstm"
    attention: LooksBack = "additive"
    embed_dim: int = 256
    hidden_dim: int = 512
    encoder_layers: int = 1
    decoder_layers: int = 1
    tie_embeddings: bool = False
    dropout_p: float = 0.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_config(
            self,
            sizes=("source_vocab_size", "vocab_size", "embed_dim", "hidden_dim", "encoder_layers", "decoder_layers"),
            ids=("pad_id", "bos_id", "eos_id"),
            choices={"kind": get_args(Kind), "attention": get_args(LooksBack)},
            more=self.problems,
        )

    def problems(self) -> list[str]:
        """What cannot work in one field because of another, one sentence each."""
        found = []
        if self.hidden_dim % 2:
            found.append(must_be("hidden_dim", "even, half for each direction of the encoder", self.hidden_dim))
        if self.decoder_layers > self.encoder_layers:
            found.append(
                must_be("decoder_layers", f"at most encoder_layers ({self.encoder_layers})", self.decoder_layers)
            )
        if not self.pad_id < self.source_vocab_size:
            found.append(must_be("pad_id", f"an id of the source too (below {self.source_vocab_size})", self.pad_id))
        return found


class RecurrentEncoderDecoder(nn.Module):
    """Reads a source from both ends, writes a target one token after another.

        source ─▶ embedding ─▶ ┌─────────────────┐
                               │ encoder  ⇄ × N  │──── states ───┐ memory
                               └────────┬────────┘               │
                                  final │ state        ┌─────────▼─────────┐
                                        ▼              │ attention (if any)│◀─┐ h_t
        target ─▶ embedding ─▶ ┌─────────────────┐     └─────────┬─────────┘  │
              ┌── a_{t−1} ───▶ │ decoder  → × M  │─── h_t ───────┼────────────┘
              │                └─────────────────┘               │ context_t
              └───────────── a_t = tanh(W [context_t; h_t]) ◀────┘
                                        │
                                        ▼  output ─▶ logits

    Without attention a_t = tanh(W h_t), nothing is fed back, and the final state is all the decoder knows.

    Args:
        config: Its sizes and options.

    Numerics:
        Decoding step by step is the computation of ``forward``, so logits agree to rounding.

    Cost:
        Sequential in both lengths. Without attention the target is read by torch's own kernel; with attention a step
        costs a few products of [batch, hidden_dim] and one look over the source.

    Source:
        Sutskever, Vinyals and Le 2014, arXiv:1409.3215; additive scores: Bahdanau et al. 2015, arXiv:1409.0473; dot
        products and input feeding: Luong et al. 2015, arXiv:1508.04025.

    Example:
        >>> import torch
        >>> config = RecurrentEncoderDecoderConfig(10, 12, embed_dim=4, hidden_dim=6)
        >>> model = RecurrentEncoderDecoder(config)
        >>> source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 7]])
        >>> tuple(model(source, target).shape)
        (1, 2, 12)
        >>> len(model.decode(source, max_new_tokens=3, num_beams=2)[0])
        2
    """

    def __init__(self, config: RecurrentEncoderDecoderConfig) -> None:
        super().__init__()
        need_config("RecurrentEncoderDecoder", config, RecurrentEncoderDecoderConfig)
        self.config = config
        embed_dim, hidden_dim, dropout_p = config.embed_dim, config.hidden_dim, config.dropout_p
        self.scale = embed_dim**0.5  # of what is looked up: gates need inputs of variance 1
        self.source_embedding = nn.Embedding(config.source_vocab_size, embed_dim)
        self.target_embedding = nn.Embedding(config.vocab_size, embed_dim)
        self.dropout = Dropout(dropout_p)
        self.encoder = RecurrentEncoder(
            config.kind, embed_dim, hidden_dim // 2, config.encoder_layers, bidirectional=True, dropout_p=dropout_p
        )
        layers = config.decoder_layers
        self.decoder: RecurrentEncoder | AttentionDecoder
        if config.attention == "none":
            self.decoder = RecurrentEncoder(config.kind, embed_dim, hidden_dim, layers, dropout_p=dropout_p)
            self.joined = nn.Linear(hidden_dim, embed_dim)
        else:
            self.decoder = AttentionDecoder(
                *(config.kind, embed_dim, hidden_dim, hidden_dim, layers),
                output_dim=embed_dim,
                attention=config.attention,
                dropout_p=dropout_p,
            )
        self.output = nn.Linear(embed_dim, config.vocab_size, bias=False)
        if config.tie_embeddings:
            self.output.weight = self.target_embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: embeddings (which are scaled up) and logits with variance 1 / embed_dim."""
        for weight in (self.source_embedding.weight, self.output.weight, self.target_embedding.weight):
            nn.init.normal_(weight, std=self.config.embed_dim**-0.5)
        self.encoder.reset_parameters()
        self.decoder.reset_parameters()
        if self.config.attention == "none":
            reset_linear(self.joined)

    def forward(
        self,
        source: Int[Tensor, "batch source_len"],
        target: Int[Tensor, "batch target_len"],
        *,
        source_keep: Bool[Tensor, "batch source_len"] | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits of every next token, the target being known (teacher forcing).

        Args:
            source: Padded anywhere.
            target: Begins with ``bos_id``, padded at the end; what stands there changes nothing before it.
            source_keep: Which source tokens are real; by default those that are not ``pad_id``.
            need_weights: Whether to return the attention too; the logits stay the same.

        Returns:
            Logits [batch, target_len, vocab_size]; with ``need_weights`` also the weights
            [batch, 1, target_len, source_len] in float32: where the model looked for the token after each one.

        Raises:
            ConfigError: an id is not in its vocabulary (looked at in eager mode on CPU).
            ShapeError, DTypeError: tokens or ``source_keep`` are not what they should be.
            UnsupportedError: weights are asked of a model without attention.
        """
        caller, config = "RecurrentEncoderDecoder", self.config
        check_tokens(caller, "target", target, config.vocab_size)
        if need_weights and config.attention == "none":
            raise UnsupportedError(message(caller, 'there are no weights to return: config.attention is "none".'))
        state, memory = self.read(source, source_keep=source_keep)
        logits, weights, _ = self.write(target, state, memory)
        return (logits, weights[:, None]) if need_weights and weights is not None else logits

    def read(
        self, source: Int[Tensor, "batch source_len"], *, source_keep: Bool[Tensor, "batch source_len"] | None = None
    ) -> tuple[State, Memory | None]:
        """Encode the source.

        Args:
            source: As for ``forward``.
            source_keep: As for ``forward``.

        Returns:
            The decoder's first state, and what it may look back at: None without attention.

        Raises:
            ConfigError, ShapeError, DTypeError: as ``forward``.
        """
        caller, config = "RecurrentEncoderDecoder", self.config
        check_tokens(caller, "source", source, config.source_vocab_size)
        keep = find_keep(caller, "source_keep", source, source_keep, config.pad_id)
        states, final = self.encoder(self.dropout(self.source_embedding(source) * self.scale), keep)
        beside = tuple(_both_ends(part)[-config.decoder_layers :] for part in final)
        if isinstance(self.decoder, RecurrentEncoder):
            return beside, None
        return self.decoder.start(len(source), beside), self.decoder.remember(self.dropout(states), keep)

    def write(
        self, target: Int[Tensor, "batch length"], state: State, memory: Memory | None
    ) -> tuple[Float[Tensor, "batch length vocab_size"], Tensor | None, State]:
        """Go on from a state with known tokens, which are not looked at: one for a step, or several.

        Args:
            target: The tokens.
            state: From ``read``, or the call before.
            memory: From ``read``.

        Returns:
            Logits after each of them, the weights [batch, length, source_len] (None without attention), and the state
            to go on from.
        """
        embedded, weights = self.dropout(self.target_embedding(target) * self.scale), None
        if memory is None:
            hidden, state = self.decoder(embedded, state=state)
            vectors = self.joined(hidden).tanh()
        else:
            vectors, weights, state = self.decoder(embedded, state, memory)
        return self.output(self.dropout(vectors)), weights, state

    def decode(
        self,
        source: Int[Tensor, "batch source_len"],
        *,
        source_keep: Bool[Tensor, "batch source_len"] | None = None,
        max_new_tokens: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Write the target.

        Args:
            source: As for ``forward``.
            source_keep: As for ``forward``.
            max_new_tokens: The longest target, its end included.
            num_beams: How many texts are kept at every step; 1 is greedy.
            length_penalty: A text scores log-probability / length ** length_penalty (see ``beam_search``).

        Returns:
            For each row its ``num_beams`` best texts, best first: ids without special ones, the score, and with
            attention the weights of each token [length, source_len].

        Raises:
            ConfigError, ShapeError, DTypeError: as ``forward``, or an option is out of range.
        """
        check_search("RecurrentEncoderDecoder.decode", max_new_tokens, num_beams, length_penalty)
        training = self.training
        self.eval()
        try:
            return self._search(source, source_keep, max_new_tokens, num_beams, length_penalty)
        finally:
            self.train(training)

    def _search(
        self, source: Tensor, source_keep: Tensor | None, max_new_tokens: int, num_beams: int, length_penalty: float
    ) -> list[list[Hypothesis]]:
        def advance(tokens: Tensor, parents: Tensor, state: State) -> tuple[Tensor, Tensor | None, State]:
            logits, weights, state = self.write(tokens[:, None], select_rows(state, parents), memory)
            return logits[:, 0], None if weights is None else weights[:, 0], state

        with torch.no_grad():
            state, memory = self.read(source, source_keep=source_keep)
            rows = torch.arange(len(source), device=source.device).repeat_interleave(num_beams)
            state, memory = select_rows(state, rows), None if memory is None else memory.repeat(num_beams)
        config = self.config
        return beam_search(
            advance,
            state,
            batch=len(source),
            bos_id=config.bos_id,
            eos_id=config.eos_id,
            pad_id=config.pad_id,
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            length_penalty=length_penalty,
            device=source.device,
        )


def _both_ends(state: Tensor) -> Tensor:
    """[layers · 2, batch, half] → [layers, batch, 2 · half]: forward and backward side by side."""
    layers = state.shape[0] // 2
    return state.view(layers, 2, *state.shape[1:]).transpose(1, 2).flatten(2)


def select_rows(state: State, rows: Tensor) -> State:
    """The state of some batch rows, in this order (beams)."""
    return (
        state.select(rows) if isinstance(state, DecoderState) else tuple(part.index_select(1, rows) for part in state)
    )
