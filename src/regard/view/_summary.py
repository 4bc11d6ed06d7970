"""A recording in a few numbers, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.errors import ConfigError, message, must_be
from regard.records import Recording, Sequence
from regard.view import _tokens
from regard.view._seen import Seen


@dataclass(frozen=True)
class LayerSummary:
    """One attention call: means over its heads and queries; None where nothing recorded can tell."""

    name: str
    layer: int | None
    kind: str
    entropy: float | None
    first: float | None


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


@dataclass(frozen=True)
class HeadSummary:
    """One head: its mean entropy in nats."""

    name: str
    layer: int | None
    head: int
    entropy: float


@dataclass(frozen=True)
class Summary:
    """What ``summary`` found: layers in order, pairs from the strongest, heads from the most focused."""

    model: str
    item: int
    items: int
    layers: tuple[LayerSummary, ...]
    pairs: tuple[Pair, ...]
    focused: tuple[HeadSummary, ...]
    notes: tuple[str, ...]


def summary(recording: Recording, *, item: int = 0, pairs: int = 10, heads: int = 5, special: bool = False) -> Summary:
    """The numbers a person wants first.

    Rows of padding, rows that see no key and rows with NaN are left out. Exact rows are used where there are any, else
    the recorded top-k; then a weight that is not among a row's top counts as 0, and the notes say so.

    Args:
        recording: What was seen.
        item: Which item of the batch.
        pairs: How many (query → key) pairs to list. They are pairs of positions: two equal words are two.
        heads: How many of the most focused heads to list.
        special: Whether pairs with a special token count too; they often outweigh all others.

    Raises:
        ConfigError: There is no such item.
    """
    items = _tokens.batch_size(recording)
    if not 0 <= item < items:
        plural = "the recording has 1 item" if items == 1 else f"the recording has {items} items"
        raise ConfigError(message("summary", must_be("item", f"from 0 to {items - 1} ({plural})", item)))
    sequences = _tokens.sequences_of(recording, item)
    padding = {name: _tokens.padding_of(recording, item, sequence) for name, sequence in sequences.items()}
    calls = [_Item(Seen(call), item, sequences, padding) for call in recording.calls]
    notes = [note for call in calls for note in call.notes]
    return Summary(
        model=recording.model.name,
        item=item,
        items=items,
        layers=tuple(call.layer() for call in calls),
        pairs=_strongest(calls, sequences, pairs, special=special),
        focused=_focused(calls, heads),
        notes=tuple(dict.fromkeys([*recording.notes, *notes])),
    )


class _Item:
    """One call, for one batch item."""

    def __init__(
        self, seen: Seen, item: int, sequences: dict[str, Sequence], padding: dict[str, Bool[np.ndarray, "tokens"]]
    ) -> None:
        self.seen, self.call, self.item = seen, seen.call, item
        self.positions = seen.positions(item)
        self.padded_keys = padding[self.call.sequence_k]
        self.used = self._used(padding[self.call.sequence_q])
        self.notes = self._notes(sequences)

    def _used(self, padding: Bool[np.ndarray, "tokens"]) -> Bool[np.ndarray, "heads q"]:
        """Rows that count: a real query that sees something, and no NaN."""
        inside = (self.positions >= 0) & (self.positions < len(padding))
        real = inside.copy()
        real[inside] = ~padding[self.positions[inside]]
        used = np.broadcast_to(real, (self.call.num_heads, len(real))).copy()
        for bad in (self.seen.empty, self.seen.unfit):
            if bad is not None:
                used &= ~bad[self.item if len(bad) > 1 else 0]
        return used

    def _notes(self, sequences: dict[str, Sequence]) -> list[str]:
        notes = []
        if self.seen.unfit is not None and (count := int(self.seen.unfit[self.item].sum())):
            notes.append(f"{self.call.name}: {count} rows hold NaN or infinity and were left out.")
        if self.seen.rows is None and self.seen.top_k is not None:
            notes.append("Pairs come from the top keys of every query: a weight that is not among them counts as 0.")
        return notes

    def mean(self, values: Float[np.ndarray, "batch heads q"] | None) -> float | None:
        """Mean over the rows that count."""
        if values is None or not self.used.any():
            return None
        return float(values[self.item][self.used].mean(dtype=np.float64))

    def layer(self) -> LayerSummary:
        """The call in two numbers."""
        call = self.call
        return LayerSummary(call.name, call.layer, call.kind, self.mean(self.seen.entropy), self.mean(self._first()))

    def _first(self) -> Float[np.ndarray, "batch heads q"] | None:
        """Mass on the first token that is no padding."""
        real = np.flatnonzero(~self.padded_keys)
        at = int(real[0]) - self.call.kv_start if len(real) else 0
        if at == 0 or self.seen.rows is None:
            return self.seen.first if at == 0 else None
        return self.seen.rows[..., at] if 0 <= at < self.call.kv_len else None

    def entropies(self) -> list[HeadSummary]:
        """Mean entropy of every head that has a row."""
        if self.seen.entropy is None:
            return []
        call, values = self.call, self.seen.entropy[self.item]
        return [
            HeadSummary(call.name, call.layer, head, float(values[head][self.used[head]].mean(dtype=np.float64)))
            for head in range(call.num_heads)
            if self.used[head].any()
        ]

    def weights(self) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Known weights of the rows that count: query position, key position, weight; a pair may come per head."""
        if self.seen.rows is not None:
            rows = np.where(self.used[..., None], self.seen.rows[self.item], 0).sum(0, dtype=np.float64)
            row, key = np.nonzero(rows)
            return self.positions[row], key + self.call.kv_start, rows[row, key]
        if self.seen.top_k is None:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, np.zeros(0)
        indices, values = self.seen.top_k.indices[self.item], self.seen.top_k.weights[self.item]
        head, row, place = np.nonzero(self.used[..., None] & (indices >= 0))
        return self.positions[row], indices[head, row, place], values[head, row, place].astype(np.float64)

    def at(self, query: int, key: int) -> Float[np.ndarray, "heads"]:
        """Weight of one pair of positions in every head, −1 where its row does not count; nothing without a row."""
        row, column = np.flatnonzero(self.positions == query), key - self.call.kv_start
        if len(row) == 0:
            return np.zeros(0)
        if self.seen.rows is not None:
            known = 0 <= column < self.call.kv_len
            values = self.seen.rows[self.item][:, row[0], column] if known else np.zeros(self.call.num_heads)
        elif self.seen.top_k is not None:
            listed = self.seen.top_k.indices[self.item][:, row[0]] == key
            values = np.where(listed, self.seen.top_k.weights[self.item][:, row[0]], 0).sum(-1)
        else:
            return np.zeros(0)
        return np.where(self.used[:, row[0]], values, -1).astype(np.float64)


def _focused(calls: Items[_Item], count: int) -> tuple[HeadSummary, ...]:
    return tuple(sorted((head for call in calls for head in call.entropies()), key=lambda head: head.entropy)[:count])


def _strongest(calls: Items[_Item], sequences: dict[str, Sequence], count: int, *, special: bool) -> tuple[Pair, ...]:
    """The strongest pairs of every two sequences that look at each other, together."""
    found: list[Pair] = []
    for names in dict.fromkeys((call.call.sequence_q, call.call.sequence_k) for call in calls):
        chosen = [call for call in calls if (call.call.sequence_q, call.call.sequence_k) == names]
        found += _pairs(chosen, sequences[names[0]], sequences[names[1]], count, special=special)
    return tuple(sorted(found, key=lambda pair: -pair.weight)[:count])


def _pairs(calls: Items[_Item], queries: Sequence, keys: Sequence, count: int, *, special: bool) -> list[Pair]:
    """Mean weight of every pair over the rows that were seen of its query, and the largest one."""
    width = max(call.call.kv_start + call.call.kv_len for call in calls)
    rows_seen = np.zeros(len(queries.tokens), dtype=np.int64)
    codes: np.ndarray = np.zeros(0, dtype=np.int64)
    totals: np.ndarray = np.zeros(0)
    for call in calls:
        inside = call.used & (call.positions >= 0) & (call.positions < len(queries.tokens))
        np.add.at(rows_seen, np.broadcast_to(call.positions, inside.shape)[inside], 1)
        query, key, weight = call.weights()
        keep = _shown(query, queries, special=special) & _shown(key, keys, special=special)
        codes, places = np.unique(np.concatenate([codes, query[keep] * width + key[keep]]), return_inverse=True)
        totals = np.bincount(places, np.concatenate([totals, weight[keep]]), minlength=len(codes))
    means = totals / rows_seen[codes // width]
    best = np.argsort(-means, kind="stable")[:count]
    return [_pair(calls, queries, keys, divmod(int(codes[i]), width), float(means[i])) for i in best.tolist()]


def _shown(positions: Int[np.ndarray, "n"], sequence: Sequence, *, special: bool) -> Bool[np.ndarray, "n"]:
    """Which positions may be part of a pair: those that have a token, and a plain one unless special ones count."""
    allowed = np.array([special or not token.special for token in sequence.tokens], dtype=bool)
    inside = (positions >= 0) & (positions < len(allowed))
    result = np.zeros(len(positions), dtype=bool)
    result[inside] = allowed[positions[inside]]
    return result


def _pair(calls: Items[_Item], queries: Sequence, keys: Sequence, place: tuple[int, int], mean: float) -> Pair:
    """A pair, with the head where it is strongest."""
    peak, where, peak_head = -1.0, calls[0].call, 0
    for call in calls:
        weights = call.at(*place)
        if len(weights) and weights.max() > peak:
            peak, where, peak_head = float(weights.max()), call.call, int(weights.argmax())
    texts = queries.tokens[place[0]].text, keys.tokens[place[1]].text
    return Pair(
        queries.name, place[0], texts[0], keys.name, place[1], texts[1], mean, peak, where.name, where.layer, peak_head
    )
