"""The recurrent classifier: a text read from both ends, pooled to one vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.errors import UnsupportedError, message
from regard.models.configuration import check_config, need_config
from regard.models.padding import find_keep
from regard.nn.additive import AdditiveAttention
from regard.nn.dropout import Dropout
from regard.nn.embedding import check_tokens
from regard.nn.initial import reset_linear
from regard.nn.recurrent import Kind, RecurrentEncoder, RecurrentState
from regard.ops import Padding

Pooling = Literal["last", "mean", "max", "attention"]


@dataclass(frozen=True)
class RecurrentClassifierConfig:
    """What a ``RecurrentClassifier`` is built from.

    Args:
        vocab_size: How many ids there are.
        num_classes: How many classes there are.
        kind: "lstm" or "gru".
        pooling: "last" (the end of each direction), "mean", "max", or "attention" (additive, with a learned query).
        embed_dim: Width of embeddings.
        hidden_dim: Width of the state of one direction.
        num_layers: Recurrent layers.
        dropout_p: Share dropped in training, from embeddings, between layers and before the output.
        pad_id: Padding.

    Raises:
        ConfigError: with every problem.
    """

    vocab_size: int
    num_classes: int
    kind: Kind = "lstm"
    pooling: Pooling = "max"
    embed_dim: int = 128
    hidden_dim: int = 128
    num_layers: int = 1
    dropout_p: float = 0.0
    pad_id: int = 0

    def __post_init__(self) -> None:
        check_config(
            self,
            sizes=("vocab_size", "num_classes", "embed_dim", "hidden_dim", "num_layers"),
            ids=("pad_id",),
            choices={"kind": get_args(Kind), "pooling": get_args(Pooling)},
        )


class RecurrentClassifier(nn.Module):
    """Reads a text from both ends and names its class.

        tokens ─▶ embedding ─▶ ┌──────────────────┐ ─ states ─▶ pooling ─▶ output ─▶ logits of classes
                               │ LSTM / GRU ⇄ × N │
                               └──────────────────┘

    A text without tokens is pooled to zeros.

    Args:
        config: Its sizes and options.

    Source:
        Graves and Schmidhuber 2005 (both ends); max over states: Conneau et al. 2017, arXiv:1705.02364; attention:
        Yang et al. 2016, "Hierarchical Attention Networks", equations 5 to 7, with additive scores.

    Example:
        >>> import torch
        >>> model = RecurrentClassifier(RecurrentClassifierConfig(12, 3, embed_dim=4, hidden_dim=5))
        >>> tuple(model(torch.tensor([[4, 5, 0], [6, 0, 0]])).shape)
        (2, 3)
    """

    def __init__(self, config: RecurrentClassifierConfig) -> None:
        super().__init__()
        need_config("RecurrentClassifier", config, RecurrentClassifierConfig)
        self.config = config
        self.scale = config.embed_dim**0.5  # of what is looked up: gates need inputs of variance 1
        self.embedding = nn.Embedding(config.vocab_size, config.embed_dim)
        self.dropout = Dropout(config.dropout_p)
        self.encoder = RecurrentEncoder(
            *(config.kind, config.embed_dim, config.hidden_dim, config.num_layers),
            bidirectional=True,
            dropout_p=config.dropout_p,
        )
        width = 2 * config.hidden_dim
        if config.pooling == "attention":
            self.attention = AdditiveAttention(width, width, width)
            self.query = nn.Parameter(torch.empty(width))
        self.output = nn.Linear(width, config.num_classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: embeddings, which are scaled up, with variance 1 / embed_dim."""
        nn.init.normal_(self.embedding.weight, std=self.config.embed_dim**-0.5)
        self.encoder.reset_parameters()
        if self.config.pooling == "attention":
            self.attention.reset_parameters()
            nn.init.normal_(self.query, std=self.query.shape[0] ** -0.5)
        reset_linear(self.output)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits of the classes.

        Args:
            tokens: Padded anywhere.
            keep: True for real tokens; by default those that are not ``pad_id``.
            need_weights: Whether to return the attention too; the logits stay the same.

        Returns:
            Logits [batch, num_classes]; with ``need_weights`` also the weights [batch, 1, 1, length] in float32.

        Raises:
            ConfigError: an id is not in the vocabulary (looked at in eager mode on CPU).
            ShapeError, DTypeError: ``tokens`` or ``keep`` are not what they should be.
            UnsupportedError: weights are asked of another pooling than "attention".
        """
        caller, config = "RecurrentClassifier", self.config
        if need_weights and config.pooling != "attention":
            problem = f'there are no weights to return: config.pooling is "{config.pooling}".'
            raise UnsupportedError(message(caller, problem))
        check_tokens(caller, "tokens", tokens, config.vocab_size)
        keep = find_keep(caller, "keep", tokens, keep, config.pad_id)
        states, final = self.encoder(self.dropout(self.embedding(tokens) * self.scale), keep)
        pooled, weights = self._pool(states, keep, final)
        logits: Tensor = self.output(self.dropout(pooled))
        return (logits, weights) if need_weights and weights is not None else logits

    def _pool(self, states: Tensor, keep: Tensor, final: RecurrentState) -> tuple[Tensor, Tensor | None]:
        """One vector for each text, and the weights that made it, if any did."""
        match self.config.pooling:
            case "attention":
                query = self.query.expand(len(states), 1, -1)
                pooled, weights = self.attention(query, states, mask=Padding(keep))
                return pooled[:, 0], weights[:, None]
            case "last":
                return torch.cat((final[0][-2], final[0][-1]), dim=-1), None
            case "mean":  # padding is zeros already
                return states.sum(dim=1) / keep.sum(dim=1, keepdim=True).clamp(min=1), None
            case "max":
                if states.shape[1] == 0:
                    return states.sum(dim=1), None
                highest = states.masked_fill(~keep[..., None], float("-inf")).amax(dim=1)
                return highest.masked_fill(~keep.any(dim=1, keepdim=True), 0), None
