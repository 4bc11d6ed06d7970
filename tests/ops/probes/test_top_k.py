"""Order, ties, underflow and the rest, on rows that are long enough to be searched by groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.ops.probes import TopK
from regard.ops.probes._select import largest, sum_without
from tests.ops.probes.strips import Dense, stream

LENGTHS = [1, 2, 63, 255, 257, 4097, 5000, 8191, 16384]


def scores_of(kind: str, length: int, dtype: torch.dtype) -> torch.Tensor:
    random = torch.Generator().manual_seed(length)
    scores = torch.randn(2, 3, length, generator=random, dtype=torch.float32)
    position = torch.arange(length, dtype=torch.float32)
    if kind == "ties":
        scores = scores.round()
    elif kind == "flat":
        scores = torch.zeros_like(scores)
    elif kind == "signed zeros":
        scores = torch.where(scores > 0, 0.0, -0.0)
    elif kind == "rising":
        scores = (position // 3).expand(2, 3, length).clone()
    elif kind == "falling":
        scores = (-position).expand(2, 3, length).clone()
    elif kind == "few allowed":
        scores[torch.rand(scores.shape, generator=random) > 5 / length] = -torch.inf
    elif kind == "NaN":
        scores[torch.rand(scores.shape, generator=random) < 0.1] = -torch.nan
        scores[0] = torch.inf
    return scores.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["random", "ties", "flat", "signed zeros", "rising", "falling", "few allowed", "NaN"])
def test_order_is_that_of_a_stable_sort(kind, length, dtype):
    scores = scores_of(kind, length, dtype)
    values, order = torch.sort(scores, dim=-1, descending=True, stable=True)
    weights = torch.where(scores == -torch.inf, 0, torch.rand(scores.shape, dtype=dtype))
    for k in {1, min(16, length), min(65, length)}:
        found = largest(scores, k)
        assert torch.equal(found, order.masked_fill(values == -torch.inf, -1)[..., :k])
        rest = weights.double().gather(-1, order)[..., k:].sum(-1)
        torch.testing.assert_close(sum_without(weights, found).double(), rest, rtol=3e-6, atol=0)


@pytest.mark.parametrize("length", LENGTHS)
def test_scores_that_are_a_view(length):
    scores = scores_of("ties", 2 * length, torch.float32)[..., ::2].transpose(0, 1)
    assert torch.equal(largest(scores, min(3, length)), largest(scores.contiguous(), min(3, length)))


def one_row(scores: list[float]) -> Dense:
    return Dense(np.array(scores, dtype=np.float64)[None, None, None], np.array([[len(scores) - 1]]))


def test_ties_go_to_the_lowest_position():
    value = stream(TopK(3), one_row([1.0, 2.0, 2.0, 0.0, 2.0, 2.0]), 1)
    assert value.indices.flatten().tolist() == [1, 2, 4]


def test_order_survives_weights_that_underflow():
    value = stream(TopK(4), one_row([-2000.0, -1000.0, 0.0, -1500.0, -1000.0]), 1, torch.float32)
    assert value.indices.flatten().tolist() == [2, 1, 4, 3]
    assert value.weights.flatten().tolist() == [1.0, 0.0, 0.0, 0.0]
    assert value.rest.item() == 0.0


def test_a_small_rest_is_exact_where_one_minus_the_sum_is_not():
    value = stream(TopK(1), one_row([40.0, 0.0, 1.0, -0.5]), 1, torch.float32)
    weights = np.exp([0.0, 1.0, -0.5]) / (np.exp(40.0) + np.exp([0.0, 1.0, -0.5]).sum())
    assert 1 - value.weights.item() == 0.0
    assert value.rest.item() == pytest.approx(weights.sum(), rel=1e-6)


def test_rest_leaves_out_the_sink():
    dense = Dense(np.zeros((1, 1, 1, 3)), np.array([[2]]), sinks=np.array([0.0]))
    value = stream(TopK(1), dense, 1)
    assert value.weights.item() == pytest.approx(0.25)
    assert value.rest.item() == pytest.approx(0.5)


def test_missing_keys_are_minus_one():
    value = stream(TopK(4), one_row([-np.inf, 3.0, -np.inf, 5.0]), 1)
    assert value.indices.flatten().tolist() == [3, 1, -1, -1]
    assert value.weights[..., 2:].abs().sum() == 0


def test_few_keys_at_the_end_of_a_long_row():
    scores = [-np.inf] * 5000
    scores[4999], scores[4990] = 1.0, 1.0
    value = stream(TopK(4), one_row(scores), 1)
    assert value.indices.flatten().tolist() == [4990, 4999, -1, -1]


def test_two_runs_agree_in_every_bit():
    random = np.random.default_rng(0)
    dense = Dense(random.normal(size=(1, 2, 3, 5000)).round(1), np.arange(3)[None])
    first, second = (stream(TopK(8), dense, 2, torch.float32) for _ in range(2))
    assert torch.equal(first.indices, second.indices)
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(first.rest, second.rest)
