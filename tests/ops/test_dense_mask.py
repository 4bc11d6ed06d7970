"""A mask filled in says what ``weights`` does with it."""

from __future__ import annotations

import pytest
import torch

from regard.errors import DTypeError, ShapeError
from regard.ops import Causal, Documents, Padding, Prefix, SlidingWindow, Where, dense_mask, weights

SHAPE = (2, 1, 3, 5)
KEEP = torch.tensor([[True, True, False, True, True], [False, True, True, True, False]])
MASKS = [
    Causal() & Padding(KEEP),
    ~SlidingWindow(2) | Prefix(1),
    Documents(torch.tensor([[0, 0, 1, 1, -1]])),
    Where(lambda b, h, i, j: (i + j + b) % 2 == 0),
    torch.rand(3, 5, generator=torch.Generator().manual_seed(0)) > 0.5,
    torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) > 0.5,
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("q_start", ["end", "start", 1])
def test_what_is_allowed_is_what_gets_weight(mask, q_start) -> None:
    found = dense_mask(mask, SHAPE, q_start=q_start)
    seen = weights(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 5, 4), mask=mask, q_start=q_start) > 0
    assert torch.equal(found.expand(2, 1, 3, 5), seen)
    assert seen.any()
    assert not seen.all()


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ShapeError, match=r"dense_mask\(\)"):
        dense_mask(Padding(KEEP), (2, 1, 3, 6))
    with pytest.raises(DTypeError, match=r"dense_mask\(\): `mask`"):
        dense_mask(torch.zeros(3, 5), SHAPE)
