"""Every probe against a few lines of Python floats that share no code with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.ops import probes
from tests.ops.probes.strips import Dense, dense_calls, stream

BUDGET = {torch.float64: 1e-12, torch.float32: 4e-6}


def rows_of(dense: Dense, row, *more: int) -> np.ndarray:
    """The value that ``row(weights, query position, batch, head, index)`` gives for each row."""
    out = np.zeros((*dense.shape[:3], *more))
    for b, h, i in np.ndindex(*dense.shape[:3]):
        out[b, h, i] = row(dense.weights[b, h, i].tolist(), dense.position(b, i), (b, h, i))
    return out


def keys_of(dense: Dense):
    """Absolute position of each key."""
    return range(dense.kv_start, dense.kv_start + dense.shape[3])


def oracle_log_sum_exp(dense):
    return rows_of(dense, lambda w, p, at: dense.lse[at])


def oracle_sink_share(dense):
    return rows_of(dense, lambda w, p, at: dense.sink_share[at])


def oracle_entropy(dense):
    return rows_of(dense, lambda w, p, at: -math.fsum(x * math.log(x) for x in w if x > 0))


def oracle_distance(dense):
    return rows_of(dense, lambda w, p, at: math.fsum(x * abs(p - j) for x, j in zip(w, keys_of(dense), strict=True)))


def oracle_first_keys(dense, n):
    return rows_of(dense, lambda w, p, at: math.fsum(x for x, j in zip(w, keys_of(dense), strict=True) if j < n))


def oracle_offset_mass(dense, offsets):
    def row(w, p, at):
        found = dict(zip(keys_of(dense), w, strict=True))
        return [found.get(p + offset, 0.0) for offset in offsets]

    return rows_of(dense, row, len(offsets))


def oracle_span_mass(dense, spans):
    def row(w, p, at):
        pairs = list(zip(keys_of(dense), w, strict=True))
        return [math.fsum(x for j, x in pairs if start <= j < stop) for start, stop in spans]

    return rows_of(dense, row, len(spans))


def oracle_span_means(dense, spans, query_spans):
    by_query = oracle_span_mass(dense, spans)
    out = np.zeros((*dense.shape[:2], len(query_spans), len(spans)))
    for b, h, s in np.ndindex(*out.shape[:3]):
        start, stop = query_spans[s]
        inside = [by_query[b, h, i] for i in range(dense.shape[2]) if start <= dense.position(b, i) < stop]
        out[b, h, s] = np.mean(inside, axis=0) if inside else 0
    return out


def oracle_key_mass(dense):
    out = np.zeros((*dense.shape[:2], dense.shape[3]))
    for b, h, j in np.ndindex(*out.shape):
        out[b, h, j] = math.fsum(dense.weights[b, h, :, j].tolist())
    return out


def oracle_heat_map(dense, rows, cols, length):
    batch, heads, q_len, kv_len = dense.shape
    out = np.zeros((batch, heads, rows, cols))
    for b, h, r in np.ndindex(batch, heads, rows):
        if length is None:
            inside = [i for i in range(q_len) if i * rows // q_len == r]
        else:
            inside = [i for i in range(q_len) if dense.position(b, i) * rows // length == r]
        for i in inside:
            for j in range(kv_len):
                col = j * cols // kv_len if length is None else (dense.kv_start + j) * cols // length
                out[b, h, r, col] += dense.weights[b, h, i, j] / len(inside)
    return out


def oracle_rows(dense, indices):
    if indices is None:
        return dense.weights
    out = np.zeros((*dense.shape[:2], len(indices), dense.shape[3]))
    for b, h, i in np.ndindex(*dense.shape[:3]):
        if dense.position(b, i) in indices:
            out[b, h, indices.index(dense.position(b, i))] = dense.weights[b, h, i]
    return out


SPANS = ((0, 3), (2, 9), (5, 5), (8, 40), (1, 2))
QUERIES = ((0, 4), (3, 14), (6, 6), (40, 50))
CASES = {
    "log_sum_exp": (probes.LogSumExp(), oracle_log_sum_exp),
    "entropy": (probes.Entropy(), oracle_entropy),
    "distance": (probes.Distance(), oracle_distance),
    "first_keys": (probes.FirstKeys(5), lambda d: oracle_first_keys(d, 5)),
    "sink_share": (probes.SinkShare(), oracle_sink_share),
    "offset_mass": (probes.OffsetMass([-2, 0, 1, 7]), lambda d: oracle_offset_mass(d, (-2, 0, 1, 7))),
    "span_mass": (probes.SpanMass(SPANS), lambda d: oracle_span_mass(d, SPANS)),
    "span_means": (probes.SpanMass(SPANS, QUERIES), lambda d: oracle_span_means(d, SPANS, QUERIES)),
    "key_mass": (probes.KeyMass(), oracle_key_mass),
    "heat_map": (probes.HeatMap(3, 4), lambda d: oracle_heat_map(d, 3, 4, None)),
    "fine heat_map": (probes.HeatMap(11, 13), lambda d: oracle_heat_map(d, 11, 13, None)),
    "long heat_map": (probes.HeatMap(7, 5, length=33), lambda d: oracle_heat_map(d, 7, 5, 33)),
    "rows": (probes.Rows(), lambda d: oracle_rows(d, None)),
    "chosen rows": (probes.Rows([7, 0, 3, 90]), lambda d: oracle_rows(d, [7, 0, 3, 90])),
}


@pytest.mark.parametrize("name", CASES)
@given(dense=dense_calls(), height=st.integers(1, 7))
def test_streaming_equals_the_oracle(name, dense, height):
    probe, oracle = CASES[name]
    wanted = oracle(dense)
    for dtype, budget in BUDGET.items():
        value = stream(probe, dense, height, dtype)
        assert value.dtype == dtype
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value.numpy(), wanted, rtol=budget, atol=budget)


@pytest.mark.parametrize("name", CASES)
@given(dense=dense_calls())
def test_definition_equals_the_oracle(name, dense):
    probe, oracle = CASES[name]
    whole = dense.strip(slice(0, dense.shape[2]), slice(0, dense.shape[3]))
    np.testing.assert_allclose(probe.define(whole).numpy(), oracle(dense), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("fast", [True, False])
@given(dense=dense_calls(), height=st.integers(1, 7))
def test_top_k_equals_the_oracle(k, fast, dense, height):
    whole = dense.strip(slice(0, dense.shape[2]), slice(0, dense.shape[3]))
    value = stream(probes.TopK(k), dense, height) if fast else probes.TopK(k).define(whole)
    for at in np.ndindex(*dense.shape[:3]):
        scores, weights = dense.logits[at].tolist(), dense.weights[at].tolist()
        allowed = [j for j, score in enumerate(scores) if score > -math.inf]
        best = sorted(allowed, key=lambda j: (-scores[j], j))[:k]
        missing = k - len(best)
        assert value.indices[at].tolist() == [j + dense.kv_start for j in best] + [-1] * missing
        np.testing.assert_allclose(value.weights[at], [weights[j] for j in best] + [0.0] * missing, rtol=1e-15)
        rest = math.fsum(weights[j] for j in allowed if j not in best)
        assert value.rest[at].item() == pytest.approx(rest, rel=1e-13, abs=0)
