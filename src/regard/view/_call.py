"""One call as the payload holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.records.quantise import FLOOR_LOG2, STEP, pool, pool_map, quantise
from regard.view._blobs import Blobs
from regard.view._seen import Seen

MAX_FLAGS = 20


@dataclass(frozen=True)
class Detail:
    """How much of each call the page carries.

    Args:
        exact_limit: Calls of at most this many queries and keys carry every weight.
        map_side: Longest side of a map.
        k: Keys per query of the top-k; None: all that were recorded.
        curves: Whether to carry mass per key and shares per query.
        share: One call of how many is carried.
    """

    exact_limit: int = 128
    map_side: int = 256
    k: int | None = None
    curves: bool = True
    share: int = 1


def is_exact(seen: Seen, detail: Detail) -> bool:
    """Whether the page carries every weight of a call."""
    return seen.rows is not None and max(seen.call.q_len, seen.call.kv_len) <= detail.exact_limit


def written(seen: Seen, number: int, detail: Detail, blobs: Blobs) -> dict[str, Any]:
    """A call as the payload holds it; its arrays go to ``blobs``."""
    call, name = seen.call, f"c{number}"
    exact = is_exact(seen, detail)
    curves = detail.curves or exact
    first, first_n = (seen.first_keys if curves else None) or (None, None)
    return {
        "name": call.name,
        "layer": call.layer,
        "kind": call.kind,
        "heads": call.num_heads,
        "q": call.q_len,
        "k": call.kv_len,
        "queries": call.sequence_q,
        "keys": call.sequence_k,
        "q_positions": call.q_positions.tolist(),
        "k_start": int(call.kv_start),
        "exact": exact,
        "weights": blobs.add(f"{name}.weights", "f32", seen.rows if exact else None),
        "map": None if exact else _map(seen, name, detail, blobs),
        "topk": None if exact else _top_k(seen, name, detail, blobs),
        "entropy": blobs.add(f"{name}.entropy", "f32", seen.entropy),
        "first": blobs.add(f"{name}.first", "f32", first),
        "first_n": first_n,
        "sink": blobs.add(f"{name}.sink", "f32", seen.sink if curves else None),
        "key_mass": blobs.add(f"{name}.key_mass", "f32", seen.key_mass if curves else None),
        "flags": flags(seen),
    }


def _map(seen: Seen, name: str, detail: Detail, blobs: Blobs) -> dict[str, Any] | None:
    found = map_of(seen, detail.map_side)
    if found is None:
        return None
    rows, cols = found.shape[-2:]
    blob = blobs.add(f"{name}.map", "u8", quantise(found))
    return {"blob": blob, "rows": rows, "cols": cols, "floor_log2": FLOOR_LOG2, "step": STEP}


def _top_k(seen: Seen, name: str, detail: Detail, blobs: Blobs) -> dict[str, Any] | None:
    if seen.top_k is None or detail.k == 0:
        return None
    top = seen.top_k if detail.k is None else seen.top_k.first(detail.k)
    return {
        "indices": blobs.add(f"{name}.top.indices", "i32", top.indices),
        "weights": blobs.add(f"{name}.top.weights", "f32", top.weights),
        "rest": blobs.add(f"{name}.top.rest", "f32", top.rest),
        "k": top.indices.shape[-1],
    }


def map_of(seen: Seen, side: int) -> Float[np.ndarray, "batch heads rows cols"] | None:
    """A map no longer than ``side``: pooled from exact weights, else the recorded one made smaller."""
    call = seen.call
    if not call.q_len or not call.kv_len:
        return None
    if seen.rows is not None:
        return pool(seen.rows, rows=min(side, call.q_len), cols=min(side, call.kv_len))
    stored = seen.value("HeatMap")
    if stored is None:
        return None
    stored = _reached(seen, stored)
    rows, cols = (_size(length, side) for length in stored.shape[-2:])
    if (rows, cols) != stored.shape[-2:]:
        stored = pool_map(stored, q_len=call.q_len, rows=rows, cols=cols)
    return stored


def _reached(seen: Seen, stored: Float[np.ndarray, "batch heads r c"]) -> Float[np.ndarray, "batch heads rows cols"]:
    """The part of a map of a longer sequence that was reached: bins up to the last query and the last key."""
    call, length = seen.call, _length(seen)
    if length is None:
        return stored
    ends = (int(call.q_positions.max()) + 1, call.kv_start + call.kv_len)
    starts = (int(call.q_positions.min()), call.kv_start)
    cut = []
    for bins, start, end in zip(stored.shape[-2:], starts, ends, strict=True):
        cut.append(slice(start * bins // length, min(bins, -(-end * bins // length))))
    return stored[..., cut[0], cut[1]]


def _length(seen: Seen) -> int | None:
    """Length of the text that a recorded map was made for, where that is not the call's own."""
    call = seen.call
    length = call.probes.get(seen.attribute("HeatMap") or "", {}).get("length")
    return None if length is None or length == call.q_len == call.kv_len else int(length)


def is_shifted(seen: Seen) -> bool:
    """Whether the map's bins are those of a longer text, so that it may be one bin off."""
    return seen.rows is None and _length(seen) is not None


def _size(length: int, side: int) -> int:
    """How many bins, at most ``side``, to make of ``length``: a divisor, for exactness, unless that is small."""
    if length <= side:
        return length
    return next((size for size in range(side, side // 2, -1) if length % size == 0), side)


def has_map(seen: Seen) -> bool:
    """Whether there is anything to make a map of."""
    return bool(seen.call.q_len and seen.call.kv_len) and (seen.rows is not None or seen.value("HeatMap") is not None)


def flags(seen: Seen) -> list[str]:
    """Where there is a NaN or an infinity, by item, head and row."""
    found: list[tuple[str, str, np.ndarray]] = []
    if seen.nan is not None and seen.unfit is not None:
        found += [("NaN", "row", seen.nan), ("infinity", "row", seen.unfit & ~seen.nan)]
    if seen.rows is None and (stored := seen.value("HeatMap")) is not None:
        found.append(("NaN", "map row", np.isnan(stored).any(-1)))
    if seen.rows is None and seen.key_mass is not None:
        found.append(("NaN", "the mass of key", np.isnan(seen.key_mass)))
    texts = [text for what, place, bad in found for text in _places(what, place, bad)]
    hidden = sum(int(bad.sum()) for _, _, bad in found) - MAX_FLAGS
    return [*texts[:MAX_FLAGS], f"… and {hidden} more"] if hidden > 0 else texts


def _places(what: str, place: str, bad: np.ndarray) -> list[str]:
    several = len(bad) > 1
    return [
        f"{what} in {f'item {item}, ' if several else ''}head {head}, {place} {row}"
        for item, head, row in np.argwhere(bad)[:MAX_FLAGS].tolist()
    ]
