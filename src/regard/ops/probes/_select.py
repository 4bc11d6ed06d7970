"""The k largest of long rows in exact order, and the sum of all others, each in one pass over memory."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GROUP = 64


def largest(scores: Float[Tensor, "*rows n"], k: int) -> Int[Tensor, "*rows k"]:
    """Columns of the k ≤ n largest scores of each row: by score descending, then lowest column; NaN comes first.

    The k best lie in the k groups with the best maxima (groups compared by maximum, then lowest group): for an element
    of any other group, each of those k groups has an element that precedes it. So long rows are searched by groups,
    and only small ones are sorted.
    """
    n = scores.shape[-1]
    size = _group_size(n, k)
    if size < 2:
        return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]
    maxima = torch.cat([part.amax(-1) for part in _groups(scores, size)], dim=-1)
    groups = largest(maxima, min(k, maxima.shape[-1])).sort(dim=-1).values  # in order, so that ties stay in order
    columns = _columns(groups, size).flatten(-2)
    candidates = scores.gather(-1, columns.clamp(max=n - 1)).masked_fill(columns >= n, -torch.inf)
    return columns.gather(-1, largest(candidates, k)).clamp(max=n - 1)


def sum_without(values: Float[Tensor, "*rows n"], columns: Int[Tensor, "*rows k"]) -> Float[Tensor, "*rows"]:
    """Sum of each row without the given columns; nothing is subtracted, so a small sum is accurate."""
    n, k = values.shape[-1], columns.shape[-1]
    if n <= 4 * _GROUP or n <= k * _GROUP:
        return values.scatter(-1, columns, 0).sum(-1)
    sums = torch.cat([part.sum(-1) for part in _groups(values, _GROUP)], dim=-1)
    columns = columns.sort(dim=-1).values
    groups = columns // _GROUP
    again = torch.zeros_like(groups, dtype=torch.bool)
    again[..., 1:] = groups[..., 1:] == groups[..., :-1]
    inside = _columns(groups, _GROUP)
    members = values[..., None, :].expand(*values.shape[:-1], k, n).gather(-1, inside.clamp(max=n - 1))
    members = members.masked_fill((inside >= n) | again[..., None], 0)
    place = torch.arange(k, device=values.device).expand_as(groups).masked_fill(again, 0).cummax(dim=-1).values
    others = members.flatten(-2).scatter(-1, place * _GROUP + columns % _GROUP, 0)
    return sums.scatter(-1, groups, 0).sum(-1) + others.sum(-1)


def _group_size(n: int, k: int) -> int:
    """Elements per group that keep both the number of groups and the number of candidates small."""
    if n <= max(64, 4 * k):
        return 1
    return min(_GROUP, 1 << (math.isqrt(n // k).bit_length() - 1))


def _groups(rows: Float[Tensor, "*rows n"], size: int) -> list[Float[Tensor, "*rows groups size"]]:
    """The row as whole groups, and the shorter last one if any; views."""
    whole = rows.shape[-1] // size * size
    parts = [torch.unflatten(rows[..., :whole], -1, (-1, size))]
    if whole < rows.shape[-1]:
        parts.append(rows[..., None, whole:])
    return parts


def _columns(groups: Int[Tensor, "*rows k"], size: int) -> Int[Tensor, "*rows k size"]:
    """Columns of the elements of each group; the last group may run past the end."""
    return groups[..., None] * size + torch.arange(size, device=groups.device)
