"""Sums over ranges of columns, exact and deterministic on every device: nothing is scattered or subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_WIDE = 256  # columns from which on a range is summed by itself; narrower ones are gathered many at a time


def sum_ranges(values: Float[Tensor, "*rows n"], ranges: Sequence[tuple[int, int]]) -> Float[Tensor, "*rows ranges"]:
    """Sum of ``values[..., start:stop]`` for every (start, stop), which may overlap, be empty or lie outside [0, n).

    Cost:
        Time and traffic proportional to the widths of the ranges; extra memory no more than a copy of ``values``.
    """
    n = values.shape[-1]
    clipped = [(max(0, start), min(n, stop)) for start, stop in ranges]
    out = values.new_zeros(*values.shape[:-1], len(ranges))
    narrow: dict[int, list[int]] = {}
    for place, (start, stop) in enumerate(clipped):
        if stop - start >= _WIDE:
            out[..., place] = values[..., start:stop].sum(-1)
        elif stop > start:
            narrow.setdefault((stop - start - 1).bit_length(), []).append(place)
    for bits, places in narrow.items():
        width = 1 << bits
        at_once = max(1, n // width)
        for first in range(0, len(places), at_once):
            _sum_narrow(out, values, clipped, places[first : first + at_once], width)
    return out


def _sum_narrow(
    out: Float[Tensor, "*rows ranges"],
    values: Float[Tensor, "*rows n"],
    ranges: Sequence[tuple[int, int]],
    places: Sequence[int],
    width: int,
) -> None:
    """Sum ranges of at most ``width`` columns by gathering them side by side; past its end a range reads zeros."""
    device = values.device
    start = torch.tensor([ranges[place][0] for place in places], device=device)
    stop = torch.tensor([ranges[place][1] for place in places], device=device)
    columns = start[:, None] + torch.arange(width, device=device)
    taken = values.index_select(-1, columns.clamp(max=values.shape[-1] - 1).flatten())
    taken = torch.unflatten(taken, -1, columns.shape)
    out[..., torch.tensor(places, device=device)] = taken.masked_fill(columns >= stop[:, None], 0).sum(-1)
