"""Rows that are long enough for the ways that only long rows take: blocks, groups, one row after another."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.ops.probes import Distance, Entropy, HeatMap, KeyMass, SpanMass, TopK
from tests.ops.probes.strips import Dense, stream

KEYS = 20_000


@pytest.fixture(scope="module")
def dense() -> Dense:
    random = np.random.default_rng(0)
    logits = (random.normal(size=(2, 2, 3, KEYS)) * 4).round(3)
    logits[random.random(logits.shape) < 0.2] = -np.inf
    logits[0, 1, 1] = -np.inf
    return Dense(logits, np.array([[15_000], [19_000]]) + np.arange(3))


WORDS = [(start, start + 1 + start % 7) for start in range(0, KEYS, 30)]
MIXED = [(0, KEYS), (7, 7), (3, 300), (19_990, 30_000), (30_000, 30_001), *WORDS[:50]]


@pytest.mark.parametrize(
    "probe",
    [
        Entropy(),
        TopK(16),
        Distance(),
        KeyMass(),
        HeatMap(2, 50),
        HeatMap(5, 300, length=KEYS),
        SpanMass(WORDS),
        SpanMass(MIXED),
        SpanMass([(0, 500), (400, KEYS)]),
        SpanMass(MIXED, [(0, 15_001), (15_001, KEYS)]),
    ],
    ids=lambda probe: repr(probe)[:40],
)
def test_long_rows_are_as_defined(probe, dense):
    wanted = probe.define(dense.strip(slice(0, 3), slice(0, KEYS)))
    value = stream(probe, dense, 3)
    if isinstance(probe, TopK):
        assert torch.equal(value.indices, wanted.indices)
        value, wanted = value.rest, wanted.rest
    torch.testing.assert_close(value, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("probe", [Entropy(), Distance(), KeyMass(), SpanMass(WORDS), TopK(16)])
def test_two_runs_agree_in_every_bit(probe, dense):
    first, second = stream(probe, dense, 3, torch.float32), stream(probe, dense, 3, torch.float32)
    if not dataclasses.is_dataclass(first):
        assert torch.equal(first, second)
        return
    for field in dataclasses.fields(first):
        assert torch.equal(getattr(first, field.name), getattr(second, field.name))


def test_entropy_of_a_uniform_row_and_of_one_key():
    uniform = Dense(np.zeros((1, 1, 1, KEYS)), np.array([[0]]))
    assert stream(Entropy(), uniform, 1, torch.float32).item() == pytest.approx(np.log(KEYS), rel=1e-6)
    scores = np.full((1, 1, 1, KEYS), -500.0)
    scores[..., 77] = 500.0
    only = stream(Entropy(), Dense(scores, np.array([[0]])), 1, torch.float32)
    assert only.item() == 0.0
    assert not torch.signbit(only).item()
