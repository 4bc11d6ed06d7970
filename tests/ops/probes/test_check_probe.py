"""check_probe(): every probe passes, and every way of being wrong is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from regard.ops import probes
from regard.ops.probes._row import RowState

SPANS = ((0, 3), (2, 9), (5, 5), (8, 600))
PROBES = [
    probes.LogSumExp(),
    probes.Entropy(),
    probes.TopK(1),
    probes.TopK(3),
    probes.TopK(200),
    probes.Distance(),
    probes.FirstKeys(4),
    probes.SinkShare(),
    probes.OffsetMass([-1, 0, 2]),
    probes.SpanMass(SPANS),
    probes.SpanMass(SPANS, [(0, 4), (3, 300), (400, 500)]),
    probes.KeyMass(),
    probes.HeatMap(100, 37, length=512),
    probes.Rows(),
    probes.Rows([3, 0, 7, 500]),
    probes.Crop((2, 9), (0, 6)),
    probes.Crop((0, 300), (4, 4)),
    probes.MatchMass([place % 3 for place in range(400)]),
    probes.MatchMass([place % 5 for place in range(90)], [-1, *(place % 5 for place in range(300))], before_only=True),
]


@pytest.mark.parametrize("probe", PROBES, ids=repr)
def test_probes_pass(probe):
    probes.check_probe(probe)


@pytest.mark.parametrize("probe", [probes.HeatMap(3, 4), probes.HeatMap(30, 40)], ids=repr)
def test_a_heat_map_without_length_passes_for_one_call(probe):
    probes.check_probe(probe, generation=False)


@dataclass(frozen=True)
class Sharpness(probes.RowProbe):
    """Σ w², right in all but what a subclass breaks."""

    def define(self, strip):
        return strip.weights.square().sum(-1)

    def merge(self, values, shares, sink_shares=None):
        return sum(share**2 * value for value, share in zip(values, shares, strict=True))


def test_a_new_probe_of_one_formula_passes():
    probes.check_probe(Sharpness())


class BreaksState(Sharpness):
    state: ClassVar[type[RowState]]

    def begin(self) -> probes.State:
        return self.state(type(self).__name__, self.rows)


class Forgets(RowState):
    """Misses every strip that starts at the third row."""

    def update(self, strip):
        if strip.row != 4:
            super().update(strip)


class Unmoved(RowState):
    """Does not follow the beams."""

    def select(self, index):
        super().select(torch.zeros_like(index))


class Writes(RowState):
    """Changes what it is shown."""

    def update(self, strip):
        super().update(strip)
        strip.weights.data.zero_()


class Aliases(RowState):
    """Keeps the strip itself instead of a copy."""

    def update(self, strip):
        super().update(strip)
        self._pieces[-1] = strip.lse.detach()


class Attached(RowState):
    """Keeps the graph."""

    def update(self, strip):
        self._batch = strip.geometry.batch
        self._pieces.append(self._rows(strip))


class Grows(RowState):
    """Returns a buffer that changes later."""

    def value(self):
        first = super().value()
        self._kept = getattr(self, "_kept", torch.zeros(first.shape, dtype=first.dtype))
        if self._kept.shape == first.shape:
            self._kept.copy_(first)
            return self._kept
        self._kept.fill_(7)
        return first


@pytest.mark.parametrize("state", [Forgets, Unmoved, Writes, Aliases, Attached, Grows])
def test_a_wrong_state_is_found(state):
    broken = type(state.__name__, (BreaksState,), {"state": state})
    with pytest.raises(AssertionError, match=state.__name__):
        probes.check_probe(broken())


class LowPrecision(Sharpness):
    def rows(self, strip):
        return strip.weights.float().square().sum(-1).to(strip.geometry.dtype)


class WrongDtype(Sharpness):
    def rows(self, strip):
        return strip.weights.square().sum(-1).double()


class IgnoresKeyOffset(Sharpness):
    def define(self, strip):
        return (strip.weights * torch.arange(strip.weights.shape[3])).sum(-1)


class IgnoresPositions(Sharpness):
    def define(self, strip):
        return strip.weights.sum(-1) * strip.geometry.q_positions[:1, None, strip.rows]


class SpoilsOtherRows(Sharpness):
    def rows(self, strip):
        return self.define(strip) + 0 * strip.weights.sum((2, 3))[..., None]


class WrongMerge(Sharpness):
    def merge(self, values, shares, sink_shares=None):
        return super(Sharpness, self).merge(values, shares)


@dataclass(frozen=True)
class EntropyWithoutSink(probes.Entropy):
    def merge(self, values, shares, sink_shares=None):
        return super().merge(values, shares, None)


@dataclass(frozen=True)
class UnorderedTopK(probes.TopK):
    """Takes any of the keys with equal scores: here the last ones."""

    def rows(self, strip):
        order = torch.sort(strip.logits.flip(-1), dim=-1, descending=True, stable=True)
        chosen = (strip.logits.shape[3] - 1 - order.indices).masked_fill(order.values == -torch.inf, -1)[..., : self.k]
        rest = strip.weights.gather(-1, order.indices)[..., self.k :].sum(-1)
        return self._value(strip, chosen, rest)


@dataclass(frozen=True)
class NarrowKeyMass(probes.KeyMass):
    """Forgets where a strip's first key is."""

    def begin(self) -> probes.State:
        state = super().begin()
        state._keys.columns = lambda position, count: slice(0, count)
        return state


@dataclass(frozen=True)
class OpenedHeatMap(probes.HeatMap):
    """Takes any number of calls although it has no length."""

    def begin(self) -> probes.State:
        state = super().begin()
        state._check = lambda strip: None
        return state


@pytest.mark.parametrize(
    "probe",
    [
        LowPrecision(),
        WrongDtype(),
        IgnoresKeyOffset(),
        IgnoresPositions(),
        SpoilsOtherRows(),
        WrongMerge(),
        EntropyWithoutSink(),
        UnorderedTopK(2),
        NarrowKeyMass(),
    ],
    ids=lambda probe: type(probe).__name__,
)
def test_a_wrong_probe_is_found(probe):
    with pytest.raises(AssertionError, match=type(probe).__name__):
        probes.check_probe(probe)


def test_a_probe_that_should_refuse_a_second_call_is_found():
    with pytest.raises(AssertionError, match="must raise ConfigError"):
        probes.check_probe(OpenedHeatMap(3, 4), generation=False)


def test_the_message_says_what_differs():
    with pytest.raises(AssertionError, match=r"LowPrecision\(\), .*, strips of 1 rows: value\[.*\] is .* instead of "):
        probes.check_probe(LowPrecision())
