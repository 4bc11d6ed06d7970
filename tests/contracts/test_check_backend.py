"""The contract suite that any backend must pass: ours pass it, and it notices one that should not."""

from __future__ import annotations

import pytest
import torch

from regard.ops.testing import Budget, check_backend, error_budget
from tests.ops.backends import ALL, COMPLETE, play, skip_unavailable

pytestmark = pytest.mark.usefixtures("unchecked")  # many scenes; the shapes are checked elsewhere


@pytest.mark.parametrize("backend", ALL)
def test_backend_keeps_the_contract(backend: str) -> None:
    skip_unavailable(backend)
    report = check_backend(backend)
    assert report.backend == backend
    if backend in COMPLETE:
        assert not report.refused
    assert all(len(reason) > 20 for reason in report.refused.values())
    assert "plain/float32" in report.passed


def test_tiled_in_small_blocks_keeps_the_contract() -> None:
    with play("tiled in small blocks") as backend:
        assert not check_backend(backend, dtypes=[torch.float32]).refused


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        check_backend("nonsense")


def test_a_budget_sees_wrong_shapes_nan_and_errors() -> None:
    query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
    budget = error_budget(query, key, value)["output"]
    right = budget.exact.float()
    assert budget.problem("output", right) is None
    assert "shape" in (budget.problem("output", right[:, :, :2]) or "")
    assert budget.excess(right * 1.0001) > 1
    broken = right.clone()
    broken[0, 0, 0, 0] = float("nan")
    assert budget.excess(broken) == float("inf")
    assert budget.excess(torch.full_like(right, float("inf"))) == float("inf")


def test_a_budget_wants_nan_where_the_exact_value_is_nan() -> None:
    nan = torch.tensor([float("nan"), 1.0]).double()
    budget = Budget(nan, torch.full((2,), 1e-6).double())
    assert budget.excess(torch.tensor([float("nan"), 1.0])) == 0
    assert budget.excess(torch.tensor([0.0, 1.0])) == float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_budget_is_of_the_order_of_one_rounding(dtype: torch.dtype) -> None:
    """Wide enough for honest arithmetic, far too narrow for a wrong formula."""
    query, key, value = (torch.randn(2, 2, 9, 8, dtype=dtype) for _ in range(3))
    budget = error_budget(query, key, value)["output"]
    eps = torch.finfo(dtype).eps
    assert budget.allowed.max() < 60 * eps
    wrong = (query.double() @ key.double().mT * 8**-0.5 * 1.2).softmax(-1) @ value.double()
    assert budget.excess(wrong) > 1
