"""Probes as values: what they accept, what they refuse and how they say it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.ops import probes

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize(
    ("probe", "attribute", "kind"),
    [
        (probes.LogSumExp(), "log_sum_exp", "row"),
        (probes.Entropy(), "entropy", "row"),
        (probes.TopK(2), "top_k", "row"),
        (probes.Distance(), "distance", "row"),
        (probes.FirstKeys(), "first_keys", "row"),
        (probes.SinkShare(), "sink_share", "row"),
        (probes.OffsetMass([-1]), "offset_mass", "row"),
        (probes.SpanMass([(0, 1)]), "span_mass", "row"),
        (probes.SpanMass([(0, 1)], [(0, 1)]), "span_mass", "column"),
        (probes.KeyMass(), "key_mass", "column"),
        (probes.HeatMap(2, 2), "heat_map", "column"),
        (probes.Rows(), "rows", "either"),
        (probes.TopK(2, name="best"), "best", "row"),
    ],
)
def test_attribute_and_kind(probe, attribute, kind):
    assert probe.attribute == attribute
    assert probe.kind == kind


def test_iterables_become_tuples_so_that_equal_probes_are_equal():
    assert probes.OffsetMass(range(-2, 0)) == probes.OffsetMass([-2, -1]) == probes.OffsetMass(np.array([-2, -1]))
    assert probes.Rows(torch.tensor([3, 1])) == probes.Rows((3, 1))
    assert probes.SpanMass([[0, 2], (2, 5)], iter([(0, 4)])) == probes.SpanMass(((0, 2), (2, 5)), ((0, 4),))
    assert len({probes.TopK(3), probes.TopK(np.int64(3)), probes.TopK(4)}) == 2
    assert pickle.loads(pickle.dumps(probes.SpanMass([(0, 2)]))) == probes.SpanMass([(0, 2)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: probes.TopK(0), "TopK(): `k` must be an integer ≥ 1, but is 0."),
        (lambda: probes.TopK(1.5), "TopK(): `k` must be an integer ≥ 1, but is 1.5."),
        (lambda: probes.TopK(True), "TopK(): `k` must be an integer ≥ 1, but is True."),
        (lambda: probes.FirstKeys(-1), "FirstKeys(): `n` must be an integer ≥ 1, but is -1."),
        (lambda: probes.OffsetMass([]), "OffsetMass(): `offsets` must be one or more integers, but is []."),
        (lambda: probes.OffsetMass(3), "OffsetMass(): `offsets` must be one or more integers, but is 3."),
        (lambda: probes.OffsetMass([1, 1]), "OffsetMass(): `offsets` must be integers that all differ, but is [1, 1]."),
        (lambda: probes.Rows([-1]), "Rows(): `indices` must be one or more integers ≥ 0, but is [-1]."),
        (
            lambda: probes.SpanMass([(3, 2)]),
            "SpanMass(): `key_spans` must be spans (start, stop) with 0 ≤ start ≤ stop, but is (3, 2).",
        ),
        (
            lambda: probes.SpanMass([(-1, 2)]),
            "SpanMass(): `key_spans` must be spans (start, stop) with 0 ≤ start ≤ stop, but is (-1, 2).",
        ),
        (
            lambda: probes.SpanMass([1, 2]),
            "SpanMass(): `key_spans` must be one or more pairs of integers (start, stop), but is [1, 2].",
        ),
        (
            lambda: probes.SpanMass([(0, 1)], []),
            "SpanMass(): `query_spans` must be one or more pairs of integers (start, stop), but is [].",
        ),
        (
            lambda: probes.HeatMap(0, 2, length=0),
            "HeatMap(): 2 problems:\n  - `rows` must be an integer ≥ 1, but is 0.\n"
            "  - `length` must be an integer ≥ 1, but is 0.",
        ),
        (
            lambda: probes.Entropy(name="my entropy"),
            "Entropy(): `name` must be a Python name without leading underscore, but is 'my entropy'.",
        ),
        (
            lambda: probes.KeyMass(name="_x"),
            "KeyMass(): `name` must be a Python name without leading underscore, but is '_x'.",
        ),
    ],
)
def test_wrong_arguments_are_refused(make, said):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == said
