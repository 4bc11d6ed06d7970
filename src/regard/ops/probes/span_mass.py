"""How much attention goes to spans of keys: from each query, or from spans of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments, Span
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._column_sums import ColumnRanges
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.probes._gather import nothing_seen, same_batch, take_batch
from regard.ops.probes._row import RowState, weighted_sum


@dataclass(frozen=True)
class SpanMass(Probe):
    """The mass on spans of keys, for example words, sentences or documents.

    A span is a range [start, stop) of absolute positions; spans may overlap and may be empty. Without ``query_spans``:
    from each query to each key span, Σ w over the span. With them: the mean of that over the queries of each query
    span that were seen, 0 if none was; over several calls (generation) the queries of all calls count.

    Args:
        key_spans: Ranges of keys.
        query_spans: Ranges of queries, or None for every query by itself.
        name: Name of the result; "span_mass" if None.

    Numerics:
        Sums over key spans are in the dtype of the weights, sums over queries in float64.
    """

    key_spans: Iterable[Span]
    query_spans: Iterable[Span] | None = None
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.spans("key_spans")
        if self.query_spans is not None:
            arguments.spans("query_spans")
        arguments.done()

    @property
    def kind(self) -> Kind:
        """Row without query spans, column with them."""
        return "row" if self.query_spans is None else "column"

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q_or_spans key_spans"]:
        """Add up the keys of each span, then average the queries of each span."""
        position = strip.k_positions
        masses = [
            torch.where((position >= start) & (position < stop), strip.weights, 0).sum(-1)
            for start, stop in self.key_spans
        ]
        by_query = torch.stack(masses, -1)
        if self.query_spans is None:
            return by_query
        means = []
        for start, stop in self.query_spans:
            member = (strip.q_positions >= start) & (strip.q_positions < stop)
            total = torch.where(member[:, None, :, None], by_query, 0).double().sum(2)
            means.append(total / member.sum(-1).clamp(min=1)[:, None, None])
        return torch.stack(means, 2).to(strip.geometry.dtype)

    def _rows(self, strip: Strip) -> Float[Tensor, "batch heads r key_spans"]:
        """Mass of each row on each key span."""
        first = strip.geometry.kv_start + strip.key
        spans = [(start - first, stop - first) for start, stop in self.key_spans]
        return ColumnRanges(spans, strip.weights.shape[3], strip.weights.device).sum(strip.weights)

    def begin(self) -> State:
        """An empty state."""
        if self.query_spans is None:
            return RowState("SpanMass", self._rows)
        return _SpanMeans(self._rows, tuple(self.query_spans))

    def question(self, geometry: Geometry) -> Question:
        """One sum per query and key span."""
        spans = tuple(self.key_spans)
        return Question(Asked.SPANS, len(spans), numbers=tuple(bound for span in spans for bound in span))

    def merge(
        self,
        values: Sequence[Tensor],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> Any:
        """Σ share · value; refused with query spans, whose means need the final weights."""
        if self.query_spans is not None:
            return super().merge(values, shares, sink_shares)
        return weighted_sum(values, shares)


class _SpanMeans(State):
    """Float64 sums over the queries of each span, and how many there were."""

    def __init__(self, rows: Callable[[Strip], Tensor], query_spans: tuple[Span, ...]) -> None:
        self._rows = rows
        self._spans = query_spans
        self._sums: Float[Tensor, "batch heads query_spans key_spans"] | None = None
        self._counts: Int[Tensor, "batch query_spans"] | None = None
        self._dtype = torch.float32

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Add these rows to the spans their queries are in."""
        self._add(strip.geometry, strip.q_positions, self._rows(strip).double())

    def absorb(self, answer: Answer) -> None:
        """Add the rows of a call."""
        self._add(answer.geometry, answer.geometry.q_positions, answer.values.double())

    def _add(self, geometry: Geometry, positions: Int[Tensor, "batch_or_1 r"], masses: Tensor) -> None:
        if self._sums is None or self._counts is None:
            batch, heads, _, key_spans = masses.shape
            self._sums = masses.new_zeros(batch, heads, len(self._spans), key_spans)
            self._counts = torch.zeros(batch, len(self._spans), dtype=torch.int64, device=masses.device)
            self._dtype = geometry.dtype
        same_batch("SpanMass", self._sums.shape[0], geometry)
        if positions.numel() == 0:
            return
        lowest, highest = int(positions.min()), int(positions.max())
        for place, (start, stop) in enumerate(self._spans):
            if start <= highest and stop > lowest:
                member = (positions >= start) & (positions < stop)
                self._sums[:, :, place] += torch.where(member[:, None, :, None], masses, 0).sum(2)
                self._counts[:, place] += member.sum(-1)

    def value(self) -> Float[Tensor, "batch heads query_spans key_spans"]:
        """The means so far."""
        if self._sums is None or self._counts is None:
            raise nothing_seen("SpanMass")
        return (self._sums / self._counts.clamp(min=1)[:, None, :, None]).to(self._dtype)

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        if self._sums is not None and self._counts is not None:
            self._sums, self._counts = take_batch(self._sums, index), take_batch(self._counts, index)
