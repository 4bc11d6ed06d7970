"""Probes as values: what they accept, what they refuse and how they say it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.ops.probes import (
    Distance,
    Entropy,
    FirstKeys,
    HeatMap,
    KeyMass,
    LogSumExp,
    OffsetMass,
    Rows,
    SinkShare,
    SpanMass,
    TopK,
)

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("probe", "attribute", "kind"),
    [
        (LogSumExp(), "log_sum_exp", "row"),
        (Entropy(), "entropy", "row"),
        (TopK(2), "top_k", "row"),
        (Distance(), "distance", "row"),
        (FirstKeys(), "first_keys", "row"),
        (SinkShare(), "sink_share", "row"),
        (OffsetMass([-1]), "offset_mass", "row"),
        (SpanMass([(0, 1)]), "span_mass", "row"),
        (SpanMass([(0, 1)], [(0, 1)]), "span_mass", "column"),
        (KeyMass(), "key_mass", "column"),
        (HeatMap(2, 2), "heat_map", "column"),
        (Rows(), "rows", "either"),
        (TopK(2, name="best"), "best", "row"),
    ],
)
def test_attribute_and_kind(probe, attribute, kind):
    assert probe.attribute == attribute
    assert probe.kind == kind


def test_iterables_become_tuples_so_that_equal_probes_are_equal():
    assert OffsetMass(range(-2, 0)) == OffsetMass([-2, -1]) == OffsetMass(np.array([-2, -1]))
    assert Rows(torch.tensor([3, 1])) == Rows((3, 1))
    assert SpanMass([[0, 2], (2, 5)], iter([(0, 4)])) == SpanMass(((0, 2), (2, 5)), ((0, 4),))
    assert len({TopK(3), TopK(np.int64(3)), TopK(4)}) == 2
    assert pickle.loads(pickle.dumps(SpanMass([(0, 2)]))) == SpanMass([(0, 2)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TopK(0), "TopK(): `k` must be an integer ≥ 1, but is 0."),
        (lambda: TopK(1.5), "TopK(): `k` must be an integer ≥ 1, but is 1.5."),
        (lambda: TopK(True), "TopK(): `k` must be an integer ≥ 1, but is True."),
        (lambda: FirstKeys(-1), "FirstKeys(): `n` must be an integer ≥ 1, but is -1."),
        (lambda: OffsetMass([]), "OffsetMass(): `offsets` must be one or more integers, but is []."),
        (lambda: OffsetMass(3), "OffsetMass(): `offsets` must be one or more integers, but is 3."),
        (lambda: OffsetMass([1, 1]), "OffsetMass(): `offsets` must be integers that all differ, but is [1, 1]."),
        (lambda: Rows([-1]), "Rows(): `indices` must be one or more integers ≥ 0, but is [-1]."),
        (
            lambda: SpanMass([(3, 2)]),
            "SpanMass(): `key_spans` must be spans (start, stop) with 0 ≤ start ≤ stop, but is (3, 2).",
        ),
        (
            lambda: SpanMass([(-1, 2)]),
            "SpanMass(): `key_spans` must be spans (start, stop) with 0 ≤ start ≤ stop, but is (-1, 2).",
        ),
        (
            lambda: SpanMass([1, 2]),
            "SpanMass(): `key_spans` must be one or more pairs of integers (start, stop), but is [1, 2].",
        ),
        (
            lambda: SpanMass([(0, 1)], []),
            "SpanMass(): `query_spans` must be one or more pairs of integers (start, stop), but is [].",
        ),
        (
            lambda: HeatMap(0, 2, length=0),
            "HeatMap(): 2 problems:\n  - `rows` must be an integer ≥ 1, but is 0.\n"
            "  - `length` must be an integer ≥ 1, but is 0.",
        ),
        (
            lambda: Entropy(name="my entropy"),
            "Entropy(): `name` must be a Python name without leading underscore, but is 'my entropy'.",
        ),
        (
            lambda: KeyMass(name="_x"),
            "KeyMass(): `name` must be a Python name without leading underscore, but is '_x'.",
        ),
    ],
)
def test_wrong_arguments_are_refused(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == said
