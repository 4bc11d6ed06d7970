"""How much attention each key receives from all queries together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.probes._gather import KeyRange, nothing_seen, same_batch, take_batch

_ENTRIES = 1 << 16  # sums that are kept in the cache while rows are added


@dataclass(frozen=True)
class KeyMass(Probe):
    """How much attention a key receives: Σ over queries of w.

    Over several calls (generation) the masses add up and the keys grow. Entry t is the key at absolute position
    s + t, where s is the lowest ``kv_start`` seen: 0 unless the first call already read a slid cache.

    Args:
        name: Name of the result; "key_mass" if None.

    Numerics:
        Added up in float64 in the order of the queries, so strip heights and step lengths change nothing; by the
        native kernels in float32 over up to 48 neighbouring queries first.
    """

    name: str | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = "column"

    def __post_init__(self) -> None:
        Arguments(self).done()

    def define(self, strip: Strip) -> Float[Tensor, "batch heads kv"]:
        """Σ over the rows."""
        return strip.weights.double().sum(2).to(strip.geometry.dtype)

    def begin(self) -> State:
        """An empty state without keys."""
        return _Masses()

    def question(self, geometry: Geometry) -> Question:
        """One sum per key."""
        return Question(Asked.KEY_MASS)


class _Masses(State):
    """One float64 number per head and key position seen so far."""

    def __init__(self) -> None:
        self._keys = KeyRange()
        self._sums: Float[Tensor, "batch heads kv"] | None = None
        self._dtype = torch.float32

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Add these rows."""
        sums = self._widened(strip.geometry)
        columns = self._keys.columns(strip.geometry.kv_start + strip.key, strip.weights.shape[3])
        add_rows(sums[..., columns], strip.weights)

    def absorb(self, answer: Answer) -> None:
        """Add the sums of a call."""
        geometry = answer.geometry
        self._widened(geometry)[..., self._keys.columns(geometry.kv_start, geometry.kv_len)] += answer.values

    def _widened(self, geometry: Geometry) -> Float[Tensor, "batch heads kv"]:
        """The sums, with room for the keys of a call."""
        if self._sums is None:
            self._sums = torch.zeros(geometry.batch, geometry.num_heads, 0, dtype=torch.float64, device=geometry.device)
        same_batch("KeyMass", self._sums.shape[0], geometry)
        self._dtype = geometry.dtype
        (self._sums,) = self._keys.widen(geometry, self._sums)
        return self._sums

    def value(self) -> Float[Tensor, "batch heads kv"]:
        """The masses so far."""
        if self._sums is None:
            raise nothing_seen("KeyMass")
        return self._sums.to(self._dtype, copy=True)

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        if self._sums is not None:
            self._sums = take_batch(self._sums, index)


def add_rows(sums: Float[Tensor, "batch heads c"], weights: Float[Tensor, "batch heads r c"]) -> None:
    """Add Σ over the rows to ``sums`` in its own precision, one row at a time: no wide copy, always the same order."""
    width = max(2048, _ENTRIES // max(1, sums.shape[0] * sums.shape[1]))
    for some_sums, some_weights in zip(torch.split(sums, width, -1), torch.split(weights, width, -1), strict=True):
        for row in range(weights.shape[2]):
            some_sums.add_(some_weights[:, :, row])
