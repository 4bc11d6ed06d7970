"""Probes through the public functions, against their definition on a matrix that numpy computed."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from regard.ops import Causal, Padding, measure, observe, probes
from tests.ops.probes.strips import Dense

PROBES = [
    probes.LogSumExp(),
    probes.Entropy(),
    probes.TopK(5),
    probes.Distance(),
    probes.FirstKeys(2),
    probes.SinkShare(),
    probes.OffsetMass([-1, 0]),
    probes.SpanMass([(0, 7), (5, 40)]),
    probes.SpanMass([(0, 7), (5, 40)], [(0, 9), (9, 41)], name="span_means"),
    probes.KeyMass(),
    probes.HeatMap(4, 6, length=48),
    probes.Rows([8, 11, 36]),
]


@pytest.fixture(autouse=True)
def _small_strips(monkeypatch):
    """So few cells that even these calls come in several strips."""
    monkeypatch.setattr(importlib.import_module("regard.ops.measure"), "STRIP_CELLS", 1000)


def inputs(q_len: int, kv_len: int):
    random = torch.Generator().manual_seed(q_len)
    query = torch.randn(2, 4, q_len, 8, generator=random, dtype=torch.float64)
    key = torch.randn(2, 2, kv_len, 8, generator=random, dtype=torch.float64)
    keep = torch.rand(2, kv_len, generator=random) < 0.8
    return query, key, keep, torch.randn(4, generator=random, dtype=torch.float64)


def dense(query, key, keep, sinks) -> Dense:
    """Causal and padded, with queries at the end."""
    q_len, kv_len = query.shape[2], key.shape[2]
    logits = np.einsum("bhqd,bhkd->bhqk", query.numpy(), key.numpy().repeat(2, axis=1)) * 8**-0.5
    positions = kv_len - q_len + np.arange(q_len)
    allowed = (np.arange(kv_len) <= positions[:, None]) & keep.numpy()[:, None, None, :]
    return Dense(np.where(allowed, logits, -np.inf), positions[None], sinks=None if sinks is None else sinks.numpy())


def assert_same(value, wanted):
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            assert_same(getattr(value, field.name), getattr(wanted, field.name))
    else:
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize(("q_len", "kv_len"), [(12, 12), (5, 41)])
def test_measured_values_are_the_definitions(q_len, kv_len, with_sinks):
    query, key, keep, sinks = inputs(q_len, kv_len)
    sinks = sinks if with_sinks else None
    whole = dense(query, key, keep, sinks).strip(slice(0, q_len), slice(0, kv_len))
    seen = measure(query, key, PROBES, mask=Causal() & Padding(keep), sinks=sinks)
    _, observed = observe(query, key, key, PROBES, mask=Causal() & Padding(keep), sinks=sinks)
    for probe in PROBES:
        assert_same(getattr(seen, probe.attribute), probe.define(whole))
        assert_same(getattr(observed, probe.attribute), probe.define(whole))


def test_a_generation_gives_what_one_call_gives():
    query, key, keep, _ = inputs(12, 12)
    whole = dense(query, key, keep, None).strip(slice(0, 12), slice(0, 12))
    seen = measure(query[:, :, :9], key[:, :, :9], PROBES, mask=Causal() & Padding(keep[:, :9]))
    for stop in (10, 11, 12):
        step = slice(stop - 1, stop)
        seen = measure(query[:, :, step], key[:, :, :stop], into=seen, mask=Causal() & Padding(keep[:, :stop]))
    for probe in PROBES:
        assert_same(getattr(seen, probe.attribute), probe.define(whole))
