"""The k largest of long rows in exact order, and the sum of all others, each in one pass over memory."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.ops.probes._blocks import block_height

_SHORT = 4096  # rows up to this length are searched faster than grouped
_SIZE = 64  # elements of a group at most


def largest(scores: Float[Tensor, "*rows n"], k: int) -> Int[Tensor, "*rows k"]:
    """Columns of the k ≤ n largest scores of each row: by score descending, then lowest column; −1 for a score of −inf.

    NaN comes before every number. The search finds the right scores without care for ties; rows that have some are put
    right afterwards.
    """
    n = scores.shape[-1]
    values, columns = _some_top(scores, min(k + 1, n))
    if n > k:
        shared = _same(values[..., k - 1], values[..., k]) & (values[..., k] != -torch.inf)
        columns = columns[..., :k]
        for rows in torch.split(shared.nonzero(), block_height(scores)):
            row = rows.unbind(-1)
            columns[row] = _lowest_of_last(scores[row], values[..., :k][row], columns[row])
        values = values[..., :k]
    tied = (_same(values[..., 1:], values[..., :-1]) & (values[..., 1:] != -torch.inf)).any(-1)
    if tied.any():
        columns[tied] = _in_order(values[tied], columns[tied])
    return columns.masked_fill(values == -torch.inf, -1)


def _same(left: Float[Tensor, "..."], right: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Equal, or both NaN."""
    same = left == right
    return same | (left.isnan() & right.isnan()) if right.isnan().any() else same


def _lowest_of_last(
    scores: Float[Tensor, "rows n"], values: Float[Tensor, "rows k"], columns: Int[Tensor, "rows k"]
) -> Int[Tensor, "rows k"]:
    """Where the last of the k scores occurs more often than there is room: take its lowest columns."""
    n, k = scores.shape[-1], values.shape[-1]
    last = values[:, -1:]
    better = ~_same(values, last)
    exact = torch.float32 if n <= 1 << 24 else torch.float64
    descending = -torch.arange(n, dtype=exact, device=scores.device)
    lowest = _some_top(torch.where(_same(scores, last), descending, -torch.inf), k)[1]
    place = torch.arange(k, device=scores.device) - better.sum(-1, keepdim=True)
    return torch.where(better, columns, lowest.gather(-1, place.clamp(min=0)))


def _in_order(values: Float[Tensor, "rows k"], columns: Int[Tensor, "rows k"]) -> Int[Tensor, "rows k"]:
    """Sort a few columns by score, then position."""
    columns, order = columns.sort(dim=-1)
    rank = torch.sort(values.gather(-1, order), dim=-1, descending=True, stable=True).indices
    return columns.gather(-1, rank)


def sum_without(values: Float[Tensor, "*rows n"], columns: Int[Tensor, "*rows k"]) -> Float[Tensor, "*rows"]:
    """Sum of each row without the given columns; nothing is subtracted, so a small sum is accurate.

    A column of −1 stands for none. A row with one must be zero outside the others, as it is when they are all its keys.
    """
    n, k = values.shape[-1], columns.shape[-1]
    columns = columns.clamp(min=0)
    size = _group_size(n, k)
    if size == 1:
        return values.scatter(-1, columns, 0).sum(-1)
    groups = n // size
    whole, tail = values[..., : groups * size], values[..., groups * size :]
    in_tail = columns >= groups * size
    group, order = torch.where(in_tail, groups, columns % groups).sort(dim=-1)  # the tail counts as one more group
    sums = functional.pad(torch.unflatten(whole, -1, (size, groups)).sum(-2), (0, 1)).scatter(-1, group, 0)
    again = functional.pad(group[..., 1:] == group[..., :-1], (1, 0))
    members = whole.gather(-1, _members(group.clamp(max=groups - 1), groups, size).flatten(-2))
    members = torch.unflatten(members, -1, (k, size)).masked_fill((again | (group == groups))[..., None], 0)
    slot = torch.arange(k, device=values.device).expand_as(group).masked_fill(again, 0).cummax(dim=-1).values
    within = (columns // groups).masked_fill(in_tail, 0).gather(-1, order)
    members = members.flatten(-2).scatter(-1, slot * size + within, 0)
    in_tail_at = torch.where(in_tail, columns - groups * size, tail.shape[-1])
    tail = functional.pad(tail, (0, 1)).scatter(-1, in_tail_at, 0)
    return sums.sum(-1) + members.sum(-1) + tail.sum(-1)


def _some_top(scores: Float[Tensor, "*rows n"], k: int) -> tuple[Float[Tensor, "*rows k"], Int[Tensor, "*rows k"]]:
    """The k largest scores in descending order and columns that hold them; any of several equal ones.

    They lie in the k groups with the largest maxima. Group g of G holds columns g, g + G, g + 2G, …: a maximum over
    groups then runs along memory.
    """
    n = scores.shape[-1]
    size = _group_size(n, k)
    if size == 1:
        return torch.topk(scores, k, dim=-1)
    groups = n // size
    maxima = torch.unflatten(scores[..., : groups * size], -1, (size, groups)).amax(-2)
    columns = _members(_some_top(maxima, k)[1], groups, size).flatten(-2)
    tail = torch.arange(groups * size, n, device=scores.device).expand(*scores.shape[:-1], -1)
    columns = torch.cat([columns, tail], dim=-1)
    values, places = _some_top(scores.gather(-1, columns), k)
    return values, columns.gather(-1, places)


def _group_size(n: int, k: int) -> int:
    """A power of two that makes groups and candidates about equally many; 1 where grouping is no use."""
    if n <= _SHORT or n < 16 * k:
        return 1
    return min(_SIZE, 1 << (math.isqrt(n // k).bit_length() - 1))


def _members(group: Int[Tensor, "*rows k"], groups: int, size: int) -> Int[Tensor, "*rows k size"]:
    """The columns g, g + G, g + 2G, … of each group g of G."""
    return group[..., None] + groups * torch.arange(size, device=group.device)
