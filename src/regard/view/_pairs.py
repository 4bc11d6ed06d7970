"""The strongest pairs of positions, over all heads of all calls."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.records import Sequence
from regard.view._item import ItemCall

_BLOCK = 512  # queries that are ranked together: bounds the memory


@dataclass(frozen=True)
class Pair:
    """How strongly one position looks at another.

    Args:
        sequence_q: Sequence of the query.
        query: Its position.
        query_text: Its token.
        sequence_k: Sequence of the key.
        key: Its position.
        key_text: Its token.
        weight: Mean weight over all heads of all calls between the two sequences.
        peak: The largest of those weights.
        peak_name: The call it is in.
        peak_layer: That call's layer.
        peak_head: And the head.
    """

    sequence_q: str
    query: int
    query_text: str
    sequence_k: str
    key: int
    key_text: str
    weight: float
    peak: float
    peak_name: str
    peak_layer: int | None
    peak_head: int


def strongest(calls: Items[ItemCall], sequences: dict[str, Sequence], count: int, *, special: bool) -> tuple[Pair, ...]:
    """The strongest pairs of every two sequences that look at each other, together."""
    found: list[Pair] = []
    for names in dict.fromkeys((call.call.sequence_q, call.call.sequence_k) for call in calls):
        chosen = [call for call in calls if (call.call.sequence_q, call.call.sequence_k) == names]
        queries, keys = sequences[names[0]], sequences[names[1]]
        ranked = sorted(_ranked(chosen, queries, keys, count, special=special), key=lambda entry: (-entry[0], entry[1]))
        found += [_pair(chosen, queries, keys, place, mean) for mean, place in ranked[:count]]
    return tuple(sorted(found, key=lambda pair: -pair.weight)[:count])


def _ranked(
    calls: Items[ItemCall], queries: Sequence, keys: Sequence, count: int, *, special: bool
) -> Iterator[tuple[float, tuple[int, int]]]:
    """The strongest pairs of every block of queries: mean weight, and the positions of query and key."""
    shown_queries, shown_keys = _shown(queries, special=special), _shown(keys, special=special)
    width = len(shown_keys)
    for start in range(0, len(shown_queries), _BLOCK):
        seen = np.zeros(_BLOCK, dtype=np.int64)
        codes, weights = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for call in calls:
            rows = np.flatnonzero((call.positions >= start) & (call.positions < start + _BLOCK))
            np.add.at(seen, call.positions[rows] - start, call.used[:, rows].sum(0))
            query, key, weight = call.weights(rows)
            keep = _has(shown_queries, query) & _has(shown_keys, key)
            codes.append((query[keep] - start) * width + key[keep])
            weights.append(weight[keep])
        pairs, places = np.unique(np.concatenate(codes), return_inverse=True)
        means = np.bincount(places, np.concatenate(weights), minlength=len(pairs)) / seen[pairs // max(width, 1)]
        for best in np.argsort(-means, kind="stable")[:count].tolist():
            query_at, key_at = divmod(int(pairs[best]), width)
            yield float(means[best]), (start + query_at, key_at)


def _shown(sequence: Sequence, *, special: bool) -> Bool[np.ndarray, "tokens"]:
    """Which tokens may be part of a pair."""
    return np.array([special or not token.special for token in sequence.tokens], dtype=bool)


def _has(shown: Bool[np.ndarray, "tokens"], positions: Int[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Which positions have a token that may be part of a pair."""
    result: np.ndarray = np.zeros(len(positions), dtype=bool)
    inside = (positions >= 0) & (positions < len(shown))
    result[inside] = shown[positions[inside]]
    return result


def _pair(calls: Items[ItemCall], queries: Sequence, keys: Sequence, place: tuple[int, int], mean: float) -> Pair:
    """A pair, with the head where it is strongest."""
    peak, where, peak_head = -1.0, calls[0].call, 0
    for call in calls:
        weights: Float[np.ndarray, "heads"] = call.at(*place)
        if len(weights) and weights.max() > peak:
            peak, where, peak_head = float(weights.max()), call.call, int(weights.argmax())
    texts = queries.tokens[place[0]].text, keys.tokens[place[1]].text
    return Pair(
        queries.name, place[0], texts[0], keys.name, place[1], texts[1], mean, peak, where.name, where.layer, peak_head
    )
