"""How much of a query's attention lies on keys chosen by position: the first ones, or those at an offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._fused import Asked, Question
from regard.ops.probes._row import RowProbe


@dataclass(frozen=True)
class FirstKeys(RowProbe):
    """The mass on the first keys of the sequence: Σ w over keys at absolute positions below n.

    Many models park attention they have no use for on the first token; n=1 measures that.

    Args:
        n: How many positions count as first.
        name: Name of the result; "first_keys" if None.
    """

    n: int = 1
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.integer("n", least=1)
        arguments.done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query."""
        return Question(Asked.FIRST_KEYS, self.n)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """Σ w of each row over positions < n."""
        first = strip.geometry.kv_start + strip.key
        return strip.weights[..., : max(0, self.n - first)].sum(-1)


@dataclass(frozen=True)
class OffsetMass(RowProbe):
    """The weight on the key at a fixed distance: w at key position = query position + offset.

    Offset −1 is the token before (previous-token heads), 0 the token itself, +1 the next. A query has 0 where there is
    no such key.

    Args:
        offsets: Relative positions, negative for earlier keys; all different.
        name: Name of the result; "offset_mass" if None.
    """

    offsets: Iterable[int]
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.integers("offsets")
        arguments.done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query and offset."""
        offsets = tuple(self.offsets)
        return Question(Asked.OFFSETS, len(offsets), numbers=offsets)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q offsets"]:
        """One weight per row and offset."""
        batch, heads, rows, columns = strip.weights.shape
        offsets = torch.tensor(tuple(self.offsets), device=strip.weights.device)
        if columns == 0:
            return strip.weights.new_zeros(batch, heads, rows, len(offsets))
        first = strip.geometry.kv_start + strip.key
        column = (strip.q_positions[:, :, None] + offsets - first)[:, None].expand(batch, heads, -1, -1)
        found = strip.weights.gather(-1, column.clamp(0, columns - 1))
        return torch.where((column >= 0) & (column < columns), found, 0)
