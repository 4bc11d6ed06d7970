"""One call for one batch item: which of its rows count, and what they hold."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.view._seen import Seen


class ItemCall:
    """One call, for one batch item."""

    def __init__(self, seen: Seen, item: int, padding: dict[str, Bool[np.ndarray, "tokens"]]) -> None:
        self.seen, self.call, self.item = seen, seen.call, item
        self.positions = seen.positions(item)
        self.padded_keys = padding[self.call.sequence_k]
        self.used = self._used(padding[self.call.sequence_q])

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

    def notes(self) -> list[str]:
        """What a reader of the numbers must know."""
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

    def first(self) -> Float[np.ndarray, "batch heads q"] | None:
        """Mass on the first token that is no padding."""
        real = np.flatnonzero(~self.padded_keys)
        at = int(real[0]) - self.call.kv_start if len(real) else 0
        if at == 0 or self.seen.rows is None:
            return self.seen.first if at == 0 else None
        return self.seen.rows[..., at] if 0 <= at < self.call.kv_len else None

    def entropies(self) -> dict[int, float]:
        """Mean entropy of every head that has a row."""
        if self.seen.entropy is None:
            return {}
        values = self.seen.entropy[self.item]
        heads = np.flatnonzero(self.used.any(-1)).tolist()
        return {head: float(values[head][self.used[head]].mean(dtype=np.float64)) for head in heads}

    def weights(
        self, rows: Int[np.ndarray, "r"]
    ) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Known weights of some rows, where they count: query position, key position, weight; a pair may come often."""
        used = self.used[:, rows, None]
        if self.seen.rows is not None:
            total = np.where(used, self.seen.rows[self.item][:, rows], 0).sum(0, dtype=np.float64)
            row, key = np.nonzero(total)
            return self.positions[rows[row]], key + self.call.kv_start, total[row, key]
        if self.seen.top_k is None:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, np.zeros(0)
        indices, values = self.seen.top_k.indices[self.item][:, rows], self.seen.top_k.weights[self.item][:, rows]
        head, row, place = np.nonzero(used & (indices >= 0))
        return self.positions[rows[row]], indices[head, row, place], values[head, row, place].astype(np.float64)

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
