"""The recurrent language model: the next token from a state of fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.configuration import check_config, need_config
from regard.models.padding import find_keep
from regard.models.sampling import continue_texts
from regard.nn.dropout import Dropout
from regard.nn.embedding import check_tokens
from regard.nn.initial import reset_linear
from regard.nn.recurrent import Kind, RecurrentEncoder, RecurrentState


@dataclass(frozen=True)
class RecurrentLMConfig:
    """What a ``RecurrentLM`` is built from.

    Args:
        vocab_size: How many ids there are.
        kind: "lstm" or "gru".
        embed_dim: Width of embeddings, and of what the logits are read from.
        hidden_dim: Width of the state.
        num_layers: Recurrent layers.
        tie_embeddings: Use the embedding for the logits too.
        dropout_p: Share dropped in training, from embeddings, between layers and before the logits.
        pad_id: Padding.
        bos_id: Begins a text.
        eos_id: Ends a text.

    Raises:
        ConfigError: with every problem.
    """

    vocab_size: int
    kind: Kind = "lstm"
    embed_dim: int = 256
    hidden_dim: int = 512
    num_layers: int = 1
    tie_embeddings: bool = False
    dropout_p: float = 0.0
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_config(
            self,
            sizes=("vocab_size", "embed_dim", "hidden_dim", "num_layers"),
            ids=("pad_id", "bos_id", "eos_id"),
            choices={"kind": get_args(Kind)},
        )


class RecurrentLM(nn.Module):
    """Predicts every next token from all before it, which it remembers in one state.

        tokens ─▶ embedding ─▶ ┌──────────────────┐ ─▶ narrow ─▶ output ─▶ logits
                   state ────▶ │ LSTM / GRU → × N │ ────▶ state
                               └──────────────────┘

    ``narrow`` brings the state to embed_dim where the widths differ.

    Args:
        config: Its sizes and options.

    Source:
        Mikolov et al. 2010, "Recurrent neural network based language model"; tied embeddings: Press and Wolf 2017,
        arXiv:1608.05859.

    Example:
        >>> import torch
        >>> model = RecurrentLM(RecurrentLMConfig(12, embed_dim=4, hidden_dim=6))
        >>> tuple(model(torch.tensor([[1, 5, 7]])).shape)
        (1, 3, 12)
    """

    def __init__(self, config: RecurrentLMConfig) -> None:
        super().__init__()
        need_config("RecurrentLM", config, RecurrentLMConfig)
        self.config = config
        self.scale = config.embed_dim**0.5  # of what is looked up: gates need inputs of variance 1
        self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
        self.dropout = Dropout(config.dropout_p)
        self.layers = RecurrentEncoder(
            config.kind, config.embed_dim, config.hidden_dim, config.num_layers, dropout_p=config.dropout_p
        )
        same = config.embed_dim == config.hidden_dim
        self.narrow = nn.Identity() if same else nn.Linear(config.hidden_dim, config.embed_dim, bias=False)
        self.output = nn.Linear(config.embed_dim, config.vocab_size)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: embeddings (which are scaled up) and logits with variance 1 / embed_dim."""
        for weight in (self.output.weight, self.embedding.weight):
            nn.init.normal_(weight, std=self.config.embed_dim**-0.5)
        nn.init.zeros_(self.output.bias)
        self.layers.reset_parameters()
        if isinstance(self.narrow, nn.Linear):
            reset_linear(self.narrow)

    def forward(
        self, tokens: Int[Tensor, "batch length"], *, keep: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Logits of every next token.

        Args:
            tokens: Padded anywhere.
            keep: True for real tokens; by default those that are not ``pad_id``.

        Raises:
            ConfigError: an id is not in the vocabulary (looked at in eager mode on CPU).
            ShapeError, DTypeError: ``tokens`` or ``keep`` are not what they should be.
        """
        logits, _ = self.step(tokens, keep=keep)
        return logits

    def step(
        self,
        tokens: Int[Tensor, "batch length"],
        state: RecurrentState | None = None,
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
    ) -> tuple[Float[Tensor, "batch length vocab_size"], RecurrentState]:
        """Go on from a state: logits after each of these tokens, and the state after them.

        Args:
            tokens: One or more.
            state: From the call before; the beginning by default.
            keep: As for ``forward``.

        Raises:
            ConfigError, ShapeError, DTypeError: as ``forward``.
        """
        check_tokens("RecurrentLM", "tokens", tokens, self.config.vocab_size)
        keep = find_keep("RecurrentLM", "keep", tokens, keep, self.config.pad_id)
        states, state = self.layers(self.dropout(self.embedding(tokens) * self.scale), keep, state=state)
        return self.output(self.dropout(self.narrow(states))), state

    def generate(
        self,
        prompt: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> list[list[int]]:
        """Write on.

        Args:
            prompt: At least one token in each row (``bos_id`` to begin a text); padded anywhere.
            keep: As for ``forward``.
            max_new_tokens: The most that is written.
            temperature: 0 takes the best token; else one is drawn from softmax(logits / temperature).
            top_k: Draw among the best k only.
            seed: Where chance starts: the same call draws the same. Rows share it, so a row alone draws otherwise than
                in a batch.

        Returns:
            The new ids of each row, up to its end, without special ones.

        Raises:
            ConfigError: an option is out of range, or a prompt is empty.
            ShapeError, DTypeError: as ``forward``.
        """
        return continue_texts(
            self, prompt, keep, max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, seed=seed
        )
