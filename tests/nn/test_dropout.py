"""Dropout from a counter: the rate, the scale, the independence of its elements, and what reproduces a mask."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.nn import Dropout, dropout

STANDARD_ERRORS = 4.5  # a right generator fails one such check in 150,000


def dropped(p: float, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """1.0 where an element of ones was dropped."""
    return (dropout(torch.ones(shape), p, seed=torch.tensor(seed)) == 0).double()


@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.3, 1 / 3, 0.5, 0.85, 0.999])
def test_the_share_is_p_and_not_a_multiple_of_a_256th(p: float) -> None:
    count, runs = 2_000_000, 4
    share = sum(float(dropped(p, (count,), seed).mean()) for seed in range(runs)) / runs
    assert abs(share - p) < STANDARD_ERRORS * math.sqrt(p * (1 - p) / (count * runs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_stays_is_scaled_and_the_dtype_kept(dtype: torch.dtype) -> None:
    out = dropout(torch.full((64, 64), 3.0, dtype=dtype), 0.25, seed=torch.tensor(1))
    assert out.dtype == dtype
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 4.0))


def test_elements_of_a_call_are_independent_of_their_neighbours() -> None:
    p, count = 0.3, 1_000_000
    drops = dropped(p, (count,), seed=7) - p
    for lag in (1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 512, 1024, 4096):
        correlation = float((drops[lag:] * drops[:-lag]).mean()) / (p * (1 - p))
        assert abs(correlation) < STANDARD_ERRORS / math.sqrt(count - lag), lag


def test_patterns_of_eight_neighbours_come_as_often_as_they_should() -> None:
    p, words = 0.5, 400_000
    bits = dropped(p, (words, 8), seed=3)
    codes = (bits * 2.0 ** torch.arange(8)).sum(dim=1).long()
    counts, expected = torch.bincount(codes, minlength=256).double(), words / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - 255) < STANDARD_ERRORS * math.sqrt(2 * 255)


def test_blocks_that_share_a_threshold_vary_as_independent_elements_do() -> None:
    p, blocks = 0.101, 100_000  # 25.9 of 256: thresholds of 25 and 26 are mixed
    per_block = dropped(p, (blocks, 64), seed=5).sum(dim=1)
    wanted = 64 * p * (1 - p)
    assert abs(float(per_block.var()) / wanted - 1) < 0.01 + STANDARD_ERRORS * math.sqrt(2 / blocks)


@pytest.mark.parametrize("other", [1, 2, 64, 2**32, 2**61])
def test_masks_of_different_seeds_have_nothing_in_common(other: int) -> None:
    p, count = 0.4, 1_000_000
    both = ((dropped(p, (count,), 0) - p) * (dropped(p, (count,), other) - p)).mean()
    assert abs(float(both) / (p * (1 - p))) < STANDARD_ERRORS / math.sqrt(count)


def test_manual_seed_reproduces_and_calls_differ() -> None:
    x = torch.ones(100, 30)
    torch.manual_seed(5)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(5)
    assert torch.equal(dropout(x, 0.5), first)
    assert not torch.equal(first, second)
    assert torch.equal(dropout(x, 0.5, seed=torch.tensor(9)), dropout(x, 0.5, seed=torch.tensor(9)))


def test_checkpointing_replays_the_mask() -> None:
    x = torch.randn(50, 40, requires_grad=True)
    torch.manual_seed(1)
    out = checkpoint(lambda t: dropout(t, 0.5).square(), x, use_reentrant=False)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad == 0, out == 0)


def test_the_gradient_passes_where_the_value_did() -> None:
    x = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    seed = torch.tensor(2)
    assert torch.autograd.gradcheck(lambda t: dropout(t, 0.3, seed=seed), x)
    assert torch.autograd.gradgradcheck(lambda t: dropout(t, 0.3, seed=seed).square(), x)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7), (64,), (65,), (2, 3, 129)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    assert dropout(x, 0.5).shape == shape
    assert dropout(x.expand(2, *shape).transpose(0, -1), 0.5).shape == x.expand(2, *shape).transpose(0, -1).shape


def test_evaluation_and_a_share_of_zero_return_the_input_itself() -> None:
    x = torch.randn(4, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(Dropout(1.0)(x), torch.zeros(4, 4))


def test_a_module_copies_and_pickles() -> None:
    module = Dropout(0.25)
    module(torch.randn(3))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.p == 0.25
    assert repr(module) == "Dropout(p=0.25)"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "half", True])
def test_a_share_that_is_none_is_refused(p: object) -> None:
    with pytest.raises(ValueError, match="`p` must be between 0 and 1"):
        Dropout(p)  # type: ignore[arg-type]
