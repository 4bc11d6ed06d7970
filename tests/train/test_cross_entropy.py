"""The summed cross-entropy of a training step, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.train.cross_entropy import _CELLS, cross_entropy_sum


def drawn(rows: int, classes: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits in float64, and labels of which every third counts for nothing."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (rows,), generator=generator)
    labels[::3] = -100
    return 4 * torch.randn(rows, classes, dtype=torch.float64, generator=generator), labels


def exact(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss and the gradient of three times it, by torch in float64."""
    wide = logits.double().requires_grad_()
    loss = functional.cross_entropy(wide, labels, reduction="sum", label_smoothing=smoothing, ignore_index=-100)
    (gradient,) = torch.autograd.grad(3 * loss, wide)
    return loss, gradient


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "classes"), [(7, 5), (40, _CELLS // 8), (2, 2 * _CELLS), (1, 3)])
def test_loss_and_gradient_are_those_of_float64(
    rows: int, classes: int, smoothing: float, dtype: torch.dtype, rounding: float
) -> None:
    logits, labels = drawn(rows, classes)
    ours = logits.to(dtype).requires_grad_()
    loss = cross_entropy_sum(ours, labels, smoothing=smoothing)
    (3 * loss).backward()
    right, gradient = exact(ours.detach(), labels, smoothing)
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(loss.double(), right, rtol=min(rounding, 1e-6), atol=1e-12)  # summed in no bfloat16
    assert ours.grad is not None
    assert ours.grad.dtype == dtype
    torch.testing.assert_close(ours.grad.double(), gradient, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_large_logits_do_not_overflow(offset: float) -> None:
    logits, labels = drawn(6, 9)
    assert torch.allclose(cross_entropy_sum(logits + offset, labels), exact(logits, labels, 0.0)[0])


def test_labels_that_count_for_nothing_leave_zeros() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    loss = cross_entropy_sum(logits, torch.full((3,), -100))
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_impossible_classes_have_no_gradient() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    loss = cross_entropy_sum(logits, torch.tensor([1]))
    loss.backward()
    assert torch.isfinite(loss)
    share = torch.tensor([0.0, 1.0]).softmax(dim=0)[0]
    torch.testing.assert_close(logits.grad, torch.tensor([[share, -share, 0.0]]))


def test_a_loss_that_is_no_number_is_said_to_be_none() -> None:
    assert cross_entropy_sum(torch.tensor([[torch.nan, 1.0]]), torch.tensor([1])).isnan()


def test_the_gradient_can_be_taken_twice_from_one_loss_and_changes_nothing() -> None:
    logits, labels = drawn(5, 6)
    before, ours = logits.clone(), logits.clone().requires_grad_()
    loss = cross_entropy_sum(ours, labels, smoothing=0.1)
    first, second = (torch.autograd.grad(loss, ours, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(ours.detach(), before)
