"""One recorded call, asked for the quantities a reader wants: stored ones first, else worked out of exact rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from regard.records import Call, attribute_of, widen

PLAIN_K = 16  # how many keys per query are kept of calls that hold every weight
MASK_CELLS = 2**24  # a larger mask is not evaluated to find empty rows


@dataclass(frozen=True, eq=False)
class TopK:
    """The largest weights of every query, their absolute key positions (−1 when fewer), and the mass of the rest."""

    indices: Int[np.ndarray, "batch heads q k"]
    weights: Float[np.ndarray, "batch heads q k"]
    rest: Float[np.ndarray, "batch heads q"]

    def first(self, k: int) -> TopK:
        """Only the ``k`` largest; what is dropped goes to the rest."""
        if k >= self.indices.shape[-1]:
            return self
        dropped = self.weights[..., k:].astype(np.float64).sum(-1)
        rest = (self.rest.astype(np.float64) + dropped).astype(self.rest.dtype)
        return TopK(self.indices[..., :k], self.weights[..., :k], rest)


class Seen:
    """What a call's values tell, whichever probes were on."""

    def __init__(self, call: Call) -> None:
        self.call = call

    def attribute(self, kind: str) -> str | None:
        """Name of the first probe of a type, preferring the one with the usual name."""
        usual = attribute_of(kind)
        named = [name for name, options in self.call.probes.items() if options.get("type") == kind]
        if usual in named or (not named and any(name.partition(".")[0] == usual for name in self.call.values)):
            return usual
        return named[0] if named else None

    def value(self, kind: str, suffix: str = "") -> Shaped[np.ndarray, "..."] | None:
        """A stored value; bits of bfloat16 as float32."""
        stored = self.call.values.get(f"{self.attribute(kind)}{suffix}")
        return widen(stored) if stored is not None and stored.dtype == np.uint16 else stored

    @cached_property
    def rows(self) -> Float[np.ndarray, "batch heads q k"] | None:
        """Every weight, if the recording holds them all."""
        rows, indices = self.value("Rows"), self.value("Rows", ".indices")
        if rows is None:
            return None
        if indices is None:
            return rows
        whole = len(indices) == self.call.q_len and np.array_equal(np.sort(indices), np.arange(self.call.q_len))
        return rows[:, :, np.argsort(indices)] if whole else None

    @cached_property
    def top_k(self) -> TopK | None:
        """The stored top-k, else the sixteen largest of exact rows."""
        indices, weights, rest = (self.value("TopK", suffix) for suffix in (".indices", ".weights", ".rest"))
        if indices is not None and weights is not None and rest is not None:
            return TopK(indices, weights, rest)
        return None if self.rows is None else self._top_of(self.rows)

    def _top_of(self, rows: Float[np.ndarray, "batch heads q k"]) -> TopK:
        """By weight, then by lowest index; keys of weight 0 are not listed."""
        order = np.argsort(-rows, axis=-1, kind="stable")[..., :PLAIN_K]
        weights = np.take_along_axis(rows, order, axis=-1)
        with np.errstate(invalid="ignore"):
            rest = np.maximum(rows.sum(-1, dtype=np.float64) - weights.sum(-1, dtype=np.float64), 0)
        indices = np.where(weights == 0, -1, order + self.call.kv_start)
        return TopK(indices, weights, rest.astype(rows.dtype))

    @cached_property
    def entropy(self) -> Float[np.ndarray, "batch heads q"] | None:
        """Entropy of every row in nats."""
        stored = self.value("Entropy")
        if stored is not None or self.rows is None:
            return stored
        wide = self.rows.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(wide == 0, 0, wide * np.log(wide))
        result: np.ndarray = 0.0 - terms.sum(-1)
        return result

    @cached_property
    def first(self) -> Float[np.ndarray, "batch heads q"] | None:
        """Mass on the key at position 0."""
        name = self.attribute("FirstKeys")
        if name is not None and self.call.probes.get(name, {}).get("n", 1) == 1:
            return self.value("FirstKeys")
        if self.rows is None or self.call.kv_start > 0 or self.call.kv_len == 0:
            return None
        return self.rows[..., 0]

    @cached_property
    def first_keys(self) -> tuple[Float[np.ndarray, "batch heads q"], int] | None:
        """Mass on the first keys and how many those are: one where that is known, else as many as were asked for."""
        if self.first is not None:
            return self.first, 1
        stored, name = self.value("FirstKeys"), self.attribute("FirstKeys")
        return None if stored is None else (stored, int(self.call.probes.get(name or "", {}).get("n", 1)))

    @cached_property
    def sink(self) -> Float[np.ndarray, "batch heads q"] | None:
        """Share of the learned sink."""
        return self.value("SinkShare")

    @cached_property
    def key_mass(self) -> Float[np.ndarray, "batch heads k"] | None:
        """Mass that every key received, summed over the queries."""
        stored = self.value("KeyMass")
        if stored is not None or self.rows is None:
            return stored
        total: np.ndarray = self.rows.sum(-2, dtype=np.float64)
        return total

    @cached_property
    def unfit(self) -> Bool[np.ndarray, "batch heads q"] | None:
        """Rows with a NaN or an infinity in any of their values; None without any value per row."""
        return self._rows_with(lambda values: ~np.isfinite(values))

    @cached_property
    def nan(self) -> Bool[np.ndarray, "batch heads q"] | None:
        """Rows with a NaN in any of their values."""
        return self._rows_with(np.isnan)

    def _rows_with(self, test: Callable[[np.ndarray], np.ndarray]) -> Bool[np.ndarray, "batch heads q"] | None:
        parts = (("Entropy", ""), ("FirstKeys", ""), ("SinkShare", ""), ("TopK", ".weights"), ("TopK", ".rest"))
        stored = [self.rows, *(self.value(kind, suffix) for kind, suffix in parts)]
        bad = [test(values) for values in stored if values is not None]
        if not bad:
            return None
        rows: np.ndarray = np.logical_or.reduce([here if here.ndim == 3 else here.any(-1) for here in bad])
        return rows

    @cached_property
    def empty(self) -> Bool[np.ndarray, "batch_or_1 heads_or_1 q"] | None:
        """Rows whose query may see no key: all of the mass is missing. None where nothing stored can tell."""
        if (lse := self.value("LogSumExp")) is not None and not self.call.has_sinks:
            nothing: np.ndarray = np.isneginf(lse)
            return nothing
        if self.rows is not None:
            blank: np.ndarray = np.logical_not((self.rows != 0).any(-1))
            return blank
        if self.top_k is not None:
            absent: np.ndarray = (self.top_k.indices < 0).all(-1) & (self.top_k.rest == 0)
            return absent
        return self._empty_by_mask()

    def _empty_by_mask(self) -> Bool[np.ndarray, "batch_or_1 heads_or_1 q"] | None:
        """The same from the mask program, where that is a moment's work."""
        call = self.call
        if call.mask is None or call.q_len * call.kv_len > MASK_CELLS:
            return None
        keys = np.arange(call.kv_start, call.kv_start + call.kv_len, dtype=np.int64)
        blind: np.ndarray = np.logical_not(call.mask.allowed(call.q_positions, keys).any(-1))
        return blind

    def positions(self, item: int) -> Int[np.ndarray, "q"]:
        """Absolute position of each query of a batch item."""
        table = self.call.q_positions
        row: np.ndarray = table[item if len(table) > 1 else 0]
        return row
