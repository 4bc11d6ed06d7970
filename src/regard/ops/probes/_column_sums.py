"""Sums over ranges of columns, deterministic on every device: nothing is scattered or subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops.probes._blocks import by_blocks

_WIDE = 256  # columns from which on a range is summed by itself; narrower ones are gathered many at a time


class ColumnRanges:
    """Ranges of columns that are to be summed, sorted by width once, for any number of matrices.

    Args:
        ranges: (start, stop) of each; they may overlap, be empty, or lie outside [0, n).
        n: Number of columns.
        device: Of the matrices.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]], n: int, device: torch.device) -> None:
        edges = torch.tensor(ranges, dtype=torch.int64, device="cpu").clamp(0, n)
        width = edges[:, 1] - edges[:, 0]
        self._count = len(ranges)
        self._wide: list[tuple[int, int, int]] = []
        self._narrow: list[tuple[Tensor, Int[Tensor, "many width"], Tensor | None]] = []
        for place in (width >= _WIDE).nonzero().flatten().tolist():
            self._wide.append((place, *edges[place].tolist()))
        size = 1
        while size < 2 * _WIDE:
            places = ((width <= size) & (width > size // 2) & (width < _WIDE)).nonzero().flatten()
            at_once = max(1, n // size)
            for some in torch.split(places, at_once) if len(places) else ():
                columns = edges[some, 0, None] + torch.arange(size, device="cpu")
                beyond = columns >= edges[some, 1, None]
                self._narrow.append(
                    (some.to(device), columns.clamp(max=n - 1).to(device), beyond.to(device) if beyond.any() else None)
                )
            size *= 2

    def sum(self, values: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows ranges"]:
        """The sum over each range, 0 for an empty one."""
        shape = (*values.shape[:-1], self._count)
        out = by_blocks(self._sum_narrow, values) if self._narrow else values.new_zeros(shape)
        for place, start, stop in self._wide:
            out[..., place] = values[..., start:stop].sum(-1)
        return out

    def _sum_narrow(self, values: Float[Tensor, "rows n"]) -> Float[Tensor, "rows ranges"]:
        """Narrow ranges are gathered side by side; past its end a range reads zeros."""
        out = values.new_zeros(values.shape[0], self._count)
        for places, columns, beyond in self._narrow:
            taken = torch.unflatten(values.index_select(1, columns.flatten()), 1, columns.shape)
            if beyond is not None:
                taken = taken.masked_fill_(beyond, 0)
            out[:, places] = taken.sum(-1)
        return out
