"""Rotary positions: differences only, partial heads, scalings that refuse what they cannot do."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from regard.nn import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling

SCHEMES = {
    "halves": Rotary(8),
    "interleaved": Rotary(8, interleaved=True),
    "part of a head": Rotary(6),
    "linear": Rotary(8, scaling=LinearScaling(2.0)),
    "yarn": Rotary(8, scaling=YarnScaling(2.0, 32)),
    "llama3": Rotary(8, scaling=Llama3Scaling(2.0, 32)),
    "dynamic": Rotary(8, scaling=DynamicScaling(2.0, 32)),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_i5_scores_depend_on_differences_only(name: str) -> None:
    rotary = SCHEMES[name].double()
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).unbind()

    def score(query_at: int, key_at: int) -> torch.Tensor:
        return (rotary(q, torch.tensor([query_at])) * rotary(k, torch.tensor([key_at]))).sum()

    torch.testing.assert_close(score(5, 3), score(2, 0), atol=1e-12, rtol=0)
    assert not torch.allclose(score(5, 3), score(5, 1))


def test_the_rest_of_a_head_stays_as_it_is() -> None:
    x = torch.randn(1, 2, 5, 8)
    turned = Rotary(6)(x, torch.arange(5))
    assert torch.equal(turned[..., 6:], x[..., 6:])
    assert torch.equal(turned[..., :6], Rotary(6)(x[..., :6], torch.arange(5)))


@pytest.mark.parametrize("name", SCHEMES)
def test_consecutive_positions_are_kept_and_equal(name: str) -> None:
    rotary = SCHEMES[name]
    kept = [rotary.turns_from(3, 5, dtype=torch.bfloat16, device=torch.device("cpu")) for _ in range(2)]
    assert kept[0].cos is kept[1].cos
    torch.testing.assert_close(kept[0], rotary.turns(torch.arange(3, 8)), rtol=0, atol=0)


def test_what_was_kept_in_inference_mode_does_not_break_training() -> None:
    rotary = Rotary(4, base=777.0)
    with torch.inference_mode():
        rotary.turns_from(0, 6, dtype=torch.float32, device=torch.device("cpu"))
    x = torch.randn(1, 1, 6, 4, requires_grad=True)
    turns = rotary.turns_from(0, 6, dtype=torch.float32, device=torch.device("cpu"))
    torch.autograd.grad(rotary.turn(x, turns).square().sum(), x)


def test_rows_of_a_batch_and_half_precision() -> None:
    x = torch.randn(2, 3, 4, 8)
    positions = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]])
    rotary = Rotary(8)
    torch.testing.assert_close(rotary(x, positions)[1:], rotary(x[1:], positions[1]))
    assert torch.equal(rotary(x.bfloat16(), positions), rotary(x.bfloat16().float(), positions).bfloat16())


def test_it_copies_and_pickles() -> None:
    x = torch.randn(1, 1, 3, 8)
    rotary = SCHEMES["yarn"].float()
    for other in (copy.deepcopy(rotary), pickle.loads(pickle.dumps(rotary))):
        assert torch.equal(other(x, torch.arange(3)), rotary(x, torch.arange(3)))


def test_gradients() -> None:
    x = torch.randn(1, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    for name in ("halves", "interleaved", "part of a head"):
        assert torch.autograd.gradcheck(lambda t, name=name: SCHEMES[name](t, torch.arange(3)), x)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Rotary(7), "`dim` must be even"),
        (lambda: Rotary(8, base=1.0), "`base` must be above 1"),
        (lambda: Rotary(8, scaling=2.0), "`scaling` must be LinearScaling"),
        (lambda: Rotary(2, scaling=DynamicScaling(2.0, 8)), "at least 4"),
        (lambda: LinearScaling(0.5), "`factor` must be at least 1"),
        (lambda: DynamicScaling(2.0, 0), "`max_len` must be at least 1"),
        (lambda: YarnScaling(2.0, 8, beta_fast=1.0, beta_slow=2.0), "`beta_fast` must be above beta_slow"),
        (lambda: Llama3Scaling(2.0, 8, low_freq_factor=4.0), "`high_freq_factor` must be above low_freq_factor"),
        (lambda: Rotary(8)(torch.randn(1, 1, 3, 6), torch.arange(3)), "of width 8 or more"),
        (lambda: Rotary(8)(torch.randn(1, 1, 3, 8), torch.arange(4)), "`positions` must be of length 3"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
