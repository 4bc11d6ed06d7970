"""From token ids to vectors: what goes into the first layer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.nn.dropout import Dropout
from regard.nn.options import check_options
from regard.nn.position import LearnedPositions, SinusoidalPositions
from regard.ops.transforms import is_free_to_look_at


class TokenEmbedding(nn.Module):
    """Token vectors, with absolute positions added where the model has them.

        output = dropout(table[token] · √embed_dim + position)          with ``scaled``
        output = dropout(table[token] + position)                       without

    Args:
        vocab_size: Number of tokens.
        embed_dim: Width.
        positions: Added to the vectors; None where attention itself knows positions, or nothing does.
        scaled: Whether vectors are drawn with variance 1 / embed_dim and scaled up to 1, as beside sinusoids of
            amplitude 1; otherwise they are drawn with a standard deviation of 0.02, as beside learned positions.
        dropout_p: Share of the features dropped in training.

    Raises:
        ConfigError: if a size, a share or ``positions`` cannot be.

    Source:
        Vaswani et al. 2017, section 3.4; without scaling: Devlin et al. 2019, arXiv:1810.04805.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        *,
        positions: SinusoidalPositions | LearnedPositions | None = None,
        scaled: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        wrong: list[str] = []
        if not isinstance(positions, SinusoidalPositions | LearnedPositions | None):
            expected = "SinusoidalPositions, LearnedPositions or None"
            wrong.append(must_be("positions", expected, f"a {type(positions).__name__}"))
        sizes = {"vocab_size": vocab_size, "embed_dim": embed_dim}
        check_options("TokenEmbedding", sizes, shares={"dropout_p": dropout_p}, more=wrong)
        self.table = nn.Embedding(vocab_size, embed_dim)
        self.positions = positions
        self.scale = embed_dim**0.5 if scaled else 1.0
        self.dropout = Dropout(dropout_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        embed_dim = self.table.embedding_dim
        nn.init.normal_(self.table.weight, std=embed_dim**-0.5 if self.scale != 1 else 0.02)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        positions: Int[Tensor, "length"] | Int[Tensor, "batch length"] | None = None,
        *,
        check: bool = True,
    ) -> Float[Tensor, "batch length embed_dim"]:
        """Look up.

        Args:
            tokens: Ids.
            positions: Of each token; 0, 1, … by default.
            check: Whether to look at the ids; False where ``check_tokens`` has.

        Raises:
            ShapeError, DTypeError: if they are no [batch, length] of integers.
            ConfigError: if an id is not in the vocabulary. Looked at only where that is free: eager mode, CPU.
        """
        if check:
            check_tokens("TokenEmbedding", "tokens", tokens, self.table.num_embeddings)
        x: Tensor = self.table(tokens)
        x = x * self.scale if self.scale != 1 else x
        x = x if self.positions is None else self.positions(x, positions)
        dropped: Tensor = self.dropout(x)
        return dropped


def check_tokens(caller: str, name: str, tokens: Tensor, vocab_size: int) -> None:
    """Refuse what is no [batch, length] of ids of the vocabulary; ids are looked at where that is free.

    Raises:
        ShapeError, DTypeError: if it is no tensor of integers with two dimensions.
        ConfigError: if an id is not in the vocabulary; names it and where it stands.
    """
    if not isinstance(tokens, Tensor):
        raise DTypeError(message(caller, must_be(name, "a tensor of ids", type(tokens).__name__)))
    if tokens.dim() != 2:
        hint = f"a single text is {name}[None]" if tokens.dim() == 1 else None
        problem = must_be(name, "of shape [batch, length]", f"of shape {tuple(tokens.shape)}")
        raise ShapeError(message(caller, problem, hint=hint))
    if tokens.dtype not in (torch.int64, torch.int32):
        raise DTypeError(message(caller, must_be(name, "token ids (int64 or int32)", tokens.dtype)))
    if not is_free_to_look_at(tokens):
        return
    wrong = (tokens < 0) | (tokens >= vocab_size)
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        found = f"{int(tokens[row, column])} at row {row}, position {column}"
        raise ConfigError(message(caller, must_be(name, f"ids from 0 to {vocab_size - 1}", found)))
