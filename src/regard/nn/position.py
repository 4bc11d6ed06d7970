"""Positions as vectors: what is added to the embeddings before the first layer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError, message, must_be
from regard.nn.options import check_options
from regard.ops.transforms import is_free_to_look_at

Positions = Int[Tensor, "length"] | Int[Tensor, "batch length"]


class SinusoidalPositions(nn.Module):
    """Sines and cosines of many wavelengths, from 2π to 10000 · 2π.

        table[p, 2i] = sin(p / 10000^(2i / dim)),   table[p, 2i + 1] = cos(p / 10000^(2i / dim))

    There is no longest sequence, and nothing is learned.

    Args:
        dim: Width of the embeddings; if it is odd the last column is a sine.

    Raises:
        ConfigError: if ``dim`` is less than 1.

    Numerics:
        Angles in float64, rounded once to the dtype of the embeddings: there is no buffer that a cast could round.

    Source:
        Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_options("SinusoidalPositions", {"dim": dim})
        self.dim = dim

    def forward(
        self, x: Float[Tensor, "batch length dim"], positions: Positions | None = None
    ) -> Float[Tensor, "batch length dim"]:
        """Add positions.

        Args:
            x: Embeddings, batch first.
            positions: Of each, one row for all batch rows or one each; 0, 1, … by default.

        Raises:
            ShapeError: if the width is not ``dim``, or positions do not fit.
        """
        positions = _positions("SinusoidalPositions", x, positions, self.dim)
        even = torch.arange(0, self.dim, 2, device=x.device, dtype=torch.float64)
        angles = positions.double()[..., None] * 10_000.0 ** (-even / self.dim)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., : self.dim]
        return x + table.to(x.dtype)

    def extra_repr(self) -> str:
        """Show the width in ``print(module)``."""
        return f"dim={self.dim}"


class LearnedPositions(nn.Module):
    """A learned vector for every position up to a longest one.

    Args:
        max_len: How many positions there are.
        dim: Width of the embeddings.

    Raises:
        ConfigError: if a size is less than 1.

    Source:
        Devlin et al. 2019, arXiv:1810.04805.
    """

    def __init__(self, max_len: int, dim: int) -> None:
        super().__init__()
        check_options("LearnedPositions", {"max_len": max_len, "dim": dim})
        self.max_len, self.dim = max_len, dim
        # built here, as a compiler cannot trace the building
        self._beyond = message("LearnedPositions", must_be("positions", f"from 0 to {max_len - 1}", "beyond that"))
        self.table = nn.Embedding(max_len, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(
        self, x: Float[Tensor, "batch length dim"], positions: Positions | None = None
    ) -> Float[Tensor, "batch length dim"]:
        """Add positions.

        Args:
            x: Embeddings, batch first.
            positions: Of each, one row for all batch rows or one each; 0, 1, … by default.

        Raises:
            ShapeError: if the width is not ``dim``, positions do not fit, or one is not below ``max_len`` (given
                positions are looked at only where that is free: eager mode, CPU). In compiled code given positions
                out of range end in a RuntimeError.
        """
        given = positions
        positions = _positions("LearnedPositions", x, positions, self.dim)
        if given is None and x.shape[1] > self.max_len:
            problem = must_be("x", f"no longer than max_len ({self.max_len})", f"of length {x.shape[1]}")
            raise ShapeError(message("LearnedPositions", problem))
        if given is not None and given.numel() and is_free_to_look_at(given):
            low, high = given.aminmax()
            if low < 0 or high >= self.max_len:
                problem = must_be("positions", f"from 0 to {self.max_len - 1}", f"from {int(low)} to {int(high)}")
                raise ShapeError(message("LearnedPositions", problem))
        elif given is not None and torch.compiler.is_compiling():
            torch._assert_async(((given >= 0) & (given < self.max_len)).all(), self._beyond)
        added: Tensor = x + self.table(positions)
        return added


def _positions(caller: str, x: Tensor, positions: Tensor | None, dim: int) -> Tensor:
    """The positions of a call, checked."""
    if x.dim() != 3 or x.shape[2] != dim:
        problem = must_be("x", f"of shape [batch, length, {dim}]", f"of shape {tuple(x.shape)}")
        raise ShapeError(message(caller, problem))
    if positions is None:
        return torch.arange(x.shape[1], device=x.device)
    if positions.dim() not in (1, 2) or positions.shape[-1] != x.shape[1]:
        expected = f"of shape [{x.shape[1]}] or [batch, {x.shape[1]}]"
        raise ShapeError(message(caller, must_be("positions", expected, f"of shape {tuple(positions.shape)}")))
    return positions
