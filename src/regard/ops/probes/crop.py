"""A rectangle of exact weights: the queries and the keys of two ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Strip
from regard.ops.probes._arguments import Arguments, Span
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._gather import nothing_seen, same_batch, take_batch


@dataclass(frozen=True)
class Crop(Probe):
    """The exact weights between two ranges of absolute positions.

    Entry (r, c) is the weight of the query at position rows[0] + r on the key at cols[0] + c, and 0 where there is no
    such query or key; if two queries have a position, the later one counts.

    Args:
        rows: Range [start, stop) of queries.
        cols: Range [start, stop) of keys.
        name: Name of the result; "crop" if None.

    Cost:
        Memory of the rectangle.
    """

    rows: Span
    cols: Span
    name: str | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "either"

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.span("rows")
        arguments.span("cols")
        arguments.done()

    def define(self, strip: Strip) -> Float[Tensor, "batch heads rows cols"]:
        """One weight after another."""
        found = self._empty(strip)
        positions = strip.q_positions.expand(found.shape[0], -1).tolist()
        for batch, places in enumerate(positions):
            for row, place in enumerate(places):
                for column, key in enumerate(strip.k_positions.tolist()):
                    if self.rows[0] <= place < self.rows[1] and self.cols[0] <= key < self.cols[1]:
                        weight = strip.weights[batch, :, row, column]
                        found[batch, :, place - self.rows[0], key - self.cols[0]] = weight
        return found

    def begin(self) -> State:
        """A rectangle of zeros, once the first strip tells its size."""
        return _Rectangle(self)

    def _empty(self, strip: Strip) -> Tensor:
        batch, heads = strip.weights.shape[:2]
        size = self.rows[1] - self.rows[0], self.cols[1] - self.cols[0]
        return strip.weights.new_zeros(batch, heads, *size)


class _Rectangle(State):
    """The weights met so far."""

    def __init__(self, probe: Crop) -> None:
        self._probe = probe
        self._found: Float[Tensor, "batch heads rows cols"] | None = None

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Copy the part of the rectangle that these rows hold."""
        probe = self._probe
        if self._found is None:
            self._found = probe._empty(strip)
        same_batch("Crop", self._found.shape[0], strip.geometry)
        first = strip.geometry.kv_start + strip.key
        start, stop = max(first, probe.cols[0]), min(first + strip.weights.shape[3], probe.cols[1])
        inside = (strip.q_positions >= probe.rows[0]) & (strip.q_positions < probe.rows[1])
        one_for_all = strip.q_positions.shape[0] == 1
        for batch, row in inside.nonzero().tolist():
            which = slice(None) if one_for_all else slice(batch, batch + 1)
            place = int(strip.q_positions[batch, row]) - probe.rows[0]
            self._found[which, :, place] = 0
            if start < stop:
                columns = slice(start - probe.cols[0], stop - probe.cols[0])
                self._found[which, :, place, columns] = strip.weights[which, :, row, start - first : stop - first]

    def value(self) -> Float[Tensor, "batch heads rows cols"]:
        """The rectangle so far."""
        if self._found is None:
            raise nothing_seen("Crop")
        return self._found.clone()

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        if self._found is not None:
            self._found = take_batch(self._found, index)
