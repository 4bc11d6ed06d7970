"""The exact weights of chosen queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.probes._gather import KeyRange, expand_positions, nothing_seen, same_batch, take_batch


@dataclass(frozen=True)
class Rows(Probe):
    """The exact weights of the queries at the given absolute positions, or of all queries.

    Column t is the key at absolute position s + t, where s is the lowest ``kv_start`` seen; rows of early calls, which
    had fewer keys, are 0 behind them. With ``indices``, row n belongs to position ``indices[n]`` in every batch row (0
    while no query has that position; if two have it, the later one counts). Without, rows follow each other in the
    order of the queries, whatever their positions.

    Args:
        indices: Absolute query positions, all different; None for every query.
        name: Name of the result; "rows" if None.

    Cost:
        Memory of what is asked for: with None that is the whole matrix.
    """

    indices: Iterable[int] | None = None
    name: str | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "either"

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        if self.indices is not None:
            arguments.integers("indices", least=0)
        arguments.done()

    def define(self, strip: Strip) -> Float[Tensor, "batch heads rows kv"]:
        """Rows of the matrix."""
        if self.indices is None:
            return strip.weights.clone()
        batch, heads, _, columns = strip.weights.shape
        indices = tuple(self.indices)
        positions = expand_positions(strip.q_positions, batch).tolist()
        out = strip.weights.new_zeros(batch, heads, len(indices), columns)
        for b in range(batch):
            for place, index in enumerate(indices):
                for row, position in enumerate(positions[b]):
                    if position == index:
                        out[b, :, place] = strip.weights[b, :, row]
        return out

    def begin(self) -> State:
        """An empty state without keys."""
        return _AllRows() if self.indices is None else _ChosenRows(tuple(self.indices))

    def question(self, geometry: Geometry) -> Question | None:
        """Whole rows of weights; by strips where each batch row has positions of its own."""
        if self.indices is None:
            return Question(Asked.WEIGHTS, geometry.q_len, numbers=tuple(range(geometry.q_len)))
        if geometry.q_positions.shape[0] > 1:
            return None
        queries = tuple(_queries_at(geometry, tuple(self.indices)).values())
        return Question(Asked.WEIGHTS, len(queries), numbers=queries)


def _queries_at(geometry: Geometry, positions: tuple[int, ...]) -> dict[int, int]:
    """Index of the last query at each of the positions, by place in ``positions``; only of those that have one."""
    at = {position: query for query, position in enumerate(geometry.q_positions[0].tolist())}
    return {place: at[position] for place, position in enumerate(positions) if position in at}


class _AllRows(State):
    """Every strip as it came, with the absolute position of its first key."""

    def __init__(self) -> None:
        self._keys = KeyRange()
        self._pieces: list[tuple[Tensor, int]] = []

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Keep a copy of these rows."""
        if self._pieces:
            same_batch("Rows", self._pieces[0][0].shape[0], strip.geometry)
        self._keys.widen(strip.geometry)
        self._pieces.append((strip.weights.clone(), strip.geometry.kv_start + strip.key))

    def absorb(self, answer: Answer) -> None:
        """Keep the rows of a call."""
        if self._pieces:
            same_batch("Rows", self._pieces[0][0].shape[0], answer.geometry)
        self._keys.widen(answer.geometry)
        self._pieces.append((answer.values, answer.geometry.kv_start))

    @torch.no_grad()
    def value(self) -> Float[Tensor, "batch heads rows kv"]:
        """All rows in order of time, every key at its place."""
        if not self._pieces:
            raise nothing_seen("Rows")
        batch, heads = self._pieces[0][0].shape[:2]
        height = sum(piece.shape[2] for piece, _ in self._pieces)
        out = self._pieces[0][0].new_zeros(batch, heads, height, self._keys.length)
        row = 0
        for piece, position in self._pieces:
            out[:, :, row : row + piece.shape[2], self._keys.columns(position, piece.shape[3])] = piece
            row += piece.shape[2]
        return out

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        self._pieces = [(take_batch(piece, index), position) for piece, position in self._pieces]


class _ChosenRows(State):
    """One row of weights per asked position."""

    def __init__(self, indices: tuple[int, ...]) -> None:
        self._indices = indices
        self._keys = KeyRange()
        self._rows: Float[Tensor, "batch heads rows kv"] | None = None

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Copy the rows that were asked for."""
        geometry, weights = strip.geometry, strip.weights
        rows = self._widened(geometry)
        columns = self._keys.columns(geometry.kv_start + strip.key, weights.shape[3])
        positions = strip.q_positions
        asked = torch.tensor(self._indices, device=positions.device)
        one_for_all = positions.shape[0] == 1
        for batch, row, place in (positions[:, :, None] == asked).nonzero().tolist():
            which = slice(None) if one_for_all else slice(batch, batch + 1)
            rows[which, :, place] = 0
            rows[which, :, place, columns] = weights[which, :, row]

    def absorb(self, answer: Answer) -> None:
        """Copy the rows of a call."""
        geometry = answer.geometry
        rows = self._widened(geometry)
        columns = self._keys.columns(geometry.kv_start, geometry.kv_len)
        for number, place in enumerate(_queries_at(geometry, self._indices)):
            rows[:, :, place] = 0
            rows[:, :, place, columns] = answer.values[:, :, number]

    def _widened(self, geometry: Geometry) -> Float[Tensor, "batch heads rows kv"]:
        """The rows, with room for the keys of a call."""
        if self._rows is None:
            shape = geometry.batch, geometry.num_heads, len(self._indices), 0
            self._rows = torch.zeros(shape, dtype=geometry.dtype, device=geometry.device)
        same_batch("Rows", self._rows.shape[0], geometry)
        (self._rows,) = self._keys.widen(geometry, self._rows)
        return self._rows

    def value(self) -> Float[Tensor, "batch heads rows kv"]:
        """The rows asked for, every key at its place."""
        if self._rows is None:
            raise nothing_seen("Rows")
        return self._rows.clone()

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        if self._rows is not None:
            self._rows = take_batch(self._rows, index)
