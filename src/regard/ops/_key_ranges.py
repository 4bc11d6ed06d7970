"""Masks as what the kernels read: a range of keys per query, and bits where a range does not say it all."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.ops._lower import Lowered
from regard.ops._strip import Geometry
from regard.records.mask_program import Op, instructions

STRIP_CELLS = 1 << 24
"""Cells of a mask that are looked at together (16 MiB of bool) where it has to be evaluated."""

TILE_QUERIES = 16

Scan = Callable[[Tensor], tuple[Tensor, Tensor, bool]]
Cut = Callable[[Tensor], tuple[Tensor, Tensor]]
_Range = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class KeyRanges:
    """Query i may see keys low[i] ≤ j < high[i], and of those the ones whose bit is set, if there are bits.

    Args:
        low: First key, by index.
        high: One past the last.
        tiles: Number of each tile of 16 queries and 64 keys in ``bits``, −1 for none allowed, −2 for all.
        bits: 16 words of 64 keys for each numbered tile.
    """

    low: Int[Tensor, "batch_or_1 heads_or_1 q"]
    high: Int[Tensor, "batch_or_1 heads_or_1 q"]
    tiles: Int[Tensor, "batch_or_1 heads_or_1 q_tiles k_tiles"] | None = None
    bits: Int[Tensor, "tiles 16"] | None = None


_known: weakref.WeakKeyDictionary[Lowered, KeyRanges] = weakref.WeakKeyDictionary()


def key_ranges(mask: Lowered, geometry: Geometry, *, scan: Scan, cut: Cut) -> KeyRanges:
    """The mask of a call as ranges. A lowered mask keeps them, so that layers that share a mask share them.

    Args:
        mask: The mask.
        geometry: Of the call it was lowered for.
        scan: Reads a bool tensor of four dimensions as ranges.
        cut: Cuts it into tiles of bits.
    """
    if geometry.q_len == 0 or geometry.kv_len == 0:
        nothing = torch.zeros(1, 1, geometry.q_len, dtype=torch.int32, device=geometry.device)
        return KeyRanges(nothing, nothing)
    found = _known.get(mask)
    if found is None:
        found = _known[mask] = _from_program(mask, geometry) or _evaluated(mask, geometry, scan, cut)
    return found


def _from_program(mask: Lowered, geometry: Geometry) -> KeyRanges | None:
    """By arithmetic, in linear time; None where the program holds something that is no range by itself."""
    stack: list[_Range] = []
    for op, operands in instructions(mask.code):
        if op is Op.AND:
            (low, high), (other_low, other_high) = stack.pop(), stack.pop()
            stack.append((torch.maximum(low, other_low), torch.minimum(high, other_high)))
            continue
        leaf = _leaf(mask, op, operands, geometry)
        if leaf is None:
            return None
        stack.append(leaf)
    ((low, high),) = stack
    low, high = (side.clamp(0, geometry.kv_len) for side in (low, high))
    batch, heads = max(low.shape[0], high.shape[0]), max(low.shape[1], high.shape[1])
    shape = batch, heads, geometry.q_len
    return KeyRanges(*(side.expand(shape).to(torch.int32).contiguous() for side in (low, high)))


def _leaf(mask: Lowered, op: Op, operands: tuple[int, ...], geometry: Geometry) -> _Range | None:
    """First and end key of every query under one rule, as [batch or 1, 1, q or 1]; None if it is not a range."""
    place = (geometry.q_positions - geometry.kv_start)[:, None]
    first, end = (torch.full((1, 1, 1), key, device=geometry.device) for key in (0, geometry.kv_len))
    match op:
        case Op.EVERYTHING:
            return first, end
        case Op.CAUSAL:
            return first, place + 1
        case Op.WINDOW:
            return place - operands[0] + 1, place + operands[0]
        case Op.PREFIX:
            return first, mask.tensors[operands[0]][:, None, None] - geometry.kv_start
        case Op.PADDING:
            return _run(mask.tensors[operands[0]])
        case Op.DOCUMENTS:
            return _document_runs(mask.tensors[operands[0]], mask.tensors[operands[1]])
        case _:
            return None


def _run(keep: Tensor) -> _Range | None:
    """The keys that are kept, if they follow each other."""
    count = keep.sum(dim=1)
    first = keep.int().argmax(dim=1)
    last = keep.shape[1] - 1 - keep.flip(1).int().argmax(dim=1)
    if not bool(((last - first + 1 == count) | (count == 0)).all()):
        return None
    return first[:, None, None], (first + count)[:, None, None]


def _document_runs(key_ids: Tensor, query_ids: Tensor) -> _Range | None:
    """Where each query's document starts and ends, if every document is one run of keys."""
    batch = max(key_ids.shape[0], query_ids.shape[0])
    key_ids, query_ids = key_ids.expand(batch, -1), query_ids.expand(batch, -1)
    kv_len = key_ids.shape[1]
    change = torch.ones_like(key_ids, dtype=torch.bool)
    change[:, 1:] = key_ids[:, 1:] != key_ids[:, :-1]
    row, start = change.nonzero(as_tuple=True)
    ids = key_ids[row, start]
    stop = torch.cat([start[1:], start.new_tensor([kv_len])])
    stop = torch.where(stop == 0, kv_len, stop)  # the next run is the first of the next row
    real = ids >= 0
    row, start, stop, ids = row[real], start[real], stop[real], ids[real]
    span = max(int(key_ids.max()), int(query_ids.max()), 0) + 1
    if span > (1 << 62) // batch:
        return None
    place, order = torch.sort(row * span + ids)
    if bool((place[1:] == place[:-1]).any()):
        return None
    wanted = torch.arange(batch, device=row.device)[:, None] * span + query_ids
    if len(place) == 0:
        nothing = torch.zeros(batch, 1, query_ids.shape[1], dtype=torch.int64, device=row.device)
        return nothing, nothing
    at = torch.searchsorted(place, wanted).clamp(max=len(place) - 1)
    found = (place[at] == wanted) & (query_ids >= 0)
    return torch.where(found, start[order][at], 0)[:, None], torch.where(found, stop[order][at], 0)[:, None]


def _evaluated(mask: Lowered, geometry: Geometry, scan: Scan, cut: Cut) -> KeyRanges:
    """By looking at every cell, some rows at a time."""
    strips = list(_strips(mask, geometry))
    scanned = [scan(mask.allowed(geometry, rows, slice(None))) for rows in strips]
    lows, highs, gaps = zip(*scanned, strict=True)
    low, high = torch.cat(lows, dim=2), torch.cat(highs, dim=2)
    if not any(gaps):
        return KeyRanges(low, high)
    tiles: list[Tensor] = []
    bits: list[Tensor] = []
    count = 0
    for rows in strips:
        some, its_bits = cut(mask.allowed(geometry, rows, slice(None)))
        tiles.append(torch.where(some >= 0, some + count, some))
        bits.append(its_bits)
        count += len(its_bits)
    return KeyRanges(low, high, torch.cat(tiles, dim=2), torch.cat(bits))


def _strips(mask: Lowered, geometry: Geometry) -> list[slice]:
    cells = mask.allowed(geometry, slice(0, 1), slice(None)).shape
    rows = max(1, STRIP_CELLS // max(1, cells[0] * cells[1] * geometry.kv_len) // TILE_QUERIES) * TILE_QUERIES
    return [slice(start, min(start + rows, geometry.q_len)) for start in range(0, geometry.q_len, rows)]
