"""The attention matrix made small: mean mass between bins of queries and bins of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigError, message
from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._column_sums import ColumnRanges
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.probes._gather import nothing_seen, same_batch, take_batch
from regard.ops.probes.key_mass import add_rows


@dataclass(frozen=True)
class HeatMap(Probe):
    """A small picture of a large matrix: mean over a bin of queries of the mass on a bin of keys.

    Without ``length``, query i of q_len is in row ⌊i·rows/q_len⌋ and key j of kv_len in column ⌊j·cols/kv_len⌋, for one
    call. With ``length``, bins are those of absolute positions, ⌊position·rows/length⌋ and ⌊position·cols/length⌋, so
    that the steps of a generation add up in one map. A row of the map sums to the mean mass its queries give to keys:
    1 without sinks and empty rows. Bins without queries (more bins than queries, positions not reached) are 0.

    Args:
        rows: Number of query bins.
        cols: Number of key bins.
        length: Total length that the bins divide, for several calls; None for one call.
        name: Name of the result; "heat_map" if None.

    Raises:
        ConfigError: when a second call comes without ``length``, or mass falls on positions outside [0, length).

    Numerics:
        Added up in float64 in the order of the queries; by the native kernels in float32 within a tile first.

    Cost:
        Rows are added up before columns are, so one pass over the weights.
    """

    rows: int
    cols: int
    length: int | None = None
    name: str | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "column"

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.integer("rows", least=1)
        arguments.integer("cols", least=1)
        if self.length is not None:
            arguments.integer("length", least=1)
        arguments.done()

    def define(self, strip: Strip) -> Float[Tensor, "batch heads rows cols"]:
        """Membership of queries and keys as two matrices, and their product with the weights between them."""
        geometry = strip.geometry
        queries, keys = self._query_bins(strip), self._key_bins(geometry)
        on_bins = torch.stack([_where_sum(strip.weights, keys == col, -1) for col in range(self.cols)], -1)
        means = []
        for row in range(self.rows):
            member = queries == row
            total = _where_sum(on_bins, member[:, None, :, None], 2)
            means.append(total / member.sum(-1).clamp(min=1)[:, None, None])
        return torch.stack(means, 2).to(geometry.dtype)

    def begin(self) -> State:
        """An empty map."""
        return _Map(self)

    def question(self, geometry: Geometry) -> Question | None:
        """Sums per bin; by strips where positions reach beyond ``length``, which is then for the strips to refuse."""
        if self.length is None:
            return Question(Asked.HEAT_MAP, self.rows, self.cols)
        positions = geometry.q_positions
        inside = positions.numel() > 0 and 0 <= int(positions.min()) <= int(positions.max()) < self.length
        if not inside or geometry.kv_start < 0 or geometry.kv_end > self.length:
            return None
        return Question(Asked.HEAT_MAP, self.rows, self.cols, self.length)

    def _query_bins(self, strip: Strip) -> Int[Tensor, "batch_or_1 r"]:
        """Bin of each of the strip's queries."""
        if self.length is not None:
            return _floor_bins(strip.q_positions, self.rows, self.length)
        index = torch.arange(strip.rows.start, strip.rows.stop, device=strip.weights.device)
        return _floor_bins(index[None], self.rows, strip.geometry.q_len)

    def _key_bins(self, geometry: Geometry) -> Int[Tensor, "kv"]:
        """Bin of each key of the call."""
        start, length = (0, geometry.kv_len) if self.length is None else (geometry.kv_start, self.length)
        return _floor_bins(torch.arange(start, start + geometry.kv_len, device=geometry.device), self.cols, length)

    def _key_edges(self, geometry: Geometry, first: int) -> list[tuple[int, int]]:
        """Each column bin as a range of the columns of a strip whose first key has index ``first``."""
        length = geometry.kv_len if self.length is None else self.length
        before = first if self.length is None else first + geometry.kv_start
        edges = [-(-col * length // self.cols) - before for col in range(self.cols + 1)]
        return list(pairwise(edges))


def _floor_bins(positions: Int[Tensor, "*any"], bins: int, length: int) -> Int[Tensor, "*any"]:
    return torch.div(positions * bins, max(1, length), rounding_mode="floor")


def _where_sum(values: Tensor, member: Tensor, dim: int) -> Tensor:
    """Float64 sum over members only, so that NaN elsewhere stays elsewhere."""
    return torch.where(member, values, 0).double().sum(dim)


class _Map(State):
    """Float64 sums per bin, and how many queries each row has seen."""

    def __init__(self, probe: HeatMap) -> None:
        self._probe = probe
        self._sums: Float[Tensor, "batch heads rows cols"] | None = None
        self._counts: Int[Tensor, "batch rows"] | None = None
        self._call: tuple[int, int, int] | None = None
        self._next_row = 0
        self._dtype = torch.float32

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Add these rows."""
        geometry = strip.geometry
        sums, counts = self._begun(geometry)
        self._check(strip)
        bins = ColumnRanges(self._probe._key_edges(geometry, strip.key), strip.weights.shape[3], strip.weights.device)
        for which, bin_row, run in self._runs(strip):
            weights = strip.weights[which, :, run]
            summed = torch.zeros_like(weights[:, :, 0], dtype=torch.float64)
            add_rows(summed, weights)
            sums[which, :, bin_row] += bins.sum(summed)
            counts[which, bin_row] += weights.shape[2]

    def absorb(self, answer: Answer) -> None:
        """Add the sums of a call."""
        geometry, probe = answer.geometry, self._probe
        sums, counts = self._begun(geometry)
        if probe.length is None:
            self._check_only_call(geometry, 0, geometry.q_len)
            bins = _floor_bins(torch.arange(geometry.q_len, device=geometry.device)[None], probe.rows, geometry.q_len)
        else:
            bins = _floor_bins(geometry.q_positions, probe.rows, probe.length)
        sums += answer.values
        counts.scatter_add_(1, bins.expand(geometry.batch, -1), torch.ones_like(bins).expand(geometry.batch, -1))

    def _begun(self, geometry: Geometry) -> tuple[Tensor, Tensor]:
        """The sums and counts, made when the first call tells their shape."""
        if self._sums is None or self._counts is None:
            rows, cols, device = self._probe.rows, self._probe.cols, geometry.device
            self._sums = torch.zeros(geometry.batch, geometry.num_heads, rows, cols, dtype=torch.float64, device=device)
            self._counts = torch.zeros(geometry.batch, rows, dtype=torch.int64, device=device)
            self._dtype = geometry.dtype
        same_batch("HeatMap", self._sums.shape[0], geometry)
        return self._sums, self._counts

    def _runs(self, strip: Strip) -> Iterator[tuple[slice, int, slice]]:
        """Stretches of rows in the same bin: (batch rows, bin, rows of the strip)."""
        bins = self._probe._query_bins(strip).cpu()
        same = bins.shape[0] == 1 or bool((bins == bins[:1]).all())
        for batch in range(1 if same else bins.shape[0]):
            which = slice(None) if same else slice(batch, batch + 1)
            values, counts = torch.unique_consecutive(bins[batch], return_counts=True)
            stop = 0
            for bin_row, count in zip(values.tolist(), counts.tolist(), strict=True):
                start, stop = stop, stop + count
                yield which, bin_row, slice(start, stop)

    def _check(self, strip: Strip) -> None:
        """Without a length there is one call; with one, everything must lie inside."""
        length, geometry = self._probe.length, strip.geometry
        if length is None:
            self._check_only_call(geometry, strip.row, strip.rows.stop)
            return
        positions = strip.q_positions
        if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < length:
            raise _outside("query", int(positions.min()), int(positions.max()), length)
        inside = max(0, length - geometry.kv_start - strip.key)
        if inside < strip.weights.shape[3] and bool((strip.weights[..., inside:] != 0).any()):
            raise _outside("key", geometry.kv_start + strip.key, geometry.kv_start + strip.keys.stop - 1, length)

    def _check_only_call(self, geometry: Geometry, first_row: int, end_row: int) -> None:
        call = (geometry.q_len, geometry.kv_len, geometry.kv_start)
        if self._call is not None and (call != self._call or first_row < self._next_row):
            raise ConfigError(
                message(
                    "HeatMap",
                    "a second call needs `length`, the total length of all calls.",
                    hint=f"HeatMap({self._probe.rows}, {self._probe.cols}, length=…) bins absolute positions.",
                )
            )
        self._call, self._next_row = call, end_row

    def value(self) -> Float[Tensor, "batch heads rows cols"]:
        """The means so far."""
        if self._sums is None or self._counts is None:
            raise nothing_seen("HeatMap")
        return (self._sums / self._counts.clamp(min=1)[:, None, :, None]).to(self._dtype)

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        if self._sums is not None and self._counts is not None:
            self._sums, self._counts = take_batch(self._sums, index), take_batch(self._counts, index)


def _outside(what: str, first: int, last: int, length: int) -> ConfigError:
    problem = f"`length` must hold every position, but is {length} and {what} positions reach from {first} to {last}."
    return ConfigError(message("HeatMap", problem))
