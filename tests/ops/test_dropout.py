"""Dropout: replayed exactly, right on average, refused when illegal, unseen by weights (DESIGN §2, lines 8, 9; A43)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.ops import Causal, Padding, attend, observe
from regard.ops.probes import Entropy, KeyMass, LogSumExp
from tests.ops.backends import COMPLETE, each_backend, or_refused, skip_unavailable

each_complete = pytest.mark.parametrize("backend", [*COMPLETE, "auto"])


def identity_values(q_len: int, kv_len: int, *, batch: int = 2, heads: int = 2) -> dict[str, Tensor]:
    """With an identity as values the output is the dropped weights themselves."""
    return {
        "query": torch.randn(batch, heads, q_len, 4).double(),
        "key": torch.randn(batch, heads, kv_len, 4).double(),
        "value": torch.eye(kv_len).double().expand(batch, heads, kv_len, kv_len),
    }


def seeded(seed: int, **options: Any) -> Tensor:
    torch.manual_seed(seed)
    return attend(**options)


@each_complete
def test_dropped_weights_are_zero_or_scaled_up(backend: str) -> None:
    tensors = identity_values(40, 50)
    plain = attend(**tensors, backend=backend)
    dropped = attend(**tensors, dropout_p=0.25, backend=backend)
    gone = dropped == 0
    torch.testing.assert_close(dropped, torch.where(gone, 0.0, plain / 0.75), rtol=1e-12, atol=1e-12)
    count = gone.numel()
    share = gone.double().mean().item()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / count)


@each_complete
def test_every_axis_draws_its_own_mask(backend: str) -> None:
    gone = attend(**identity_values(64, 64), dropout_p=0.5, backend=backend) == 0
    views = [gone[0, 0], gone[0, 1], gone[1, 0], gone[0, 0].T, gone[0, 0].roll(1, 0), gone[0, 0].roll(1, 1)]
    for n, one in enumerate(views):
        for two in views[:n]:
            agreement = (one == two).double().mean().item()
            assert abs(agreement - 0.5) < 0.1, "independent coins agree half the time"
    for axis in (0, 1):
        spread = (gone[0, 0].double().mean(axis) - 0.5).abs().max().item()
        assert spread < 5 * 0.5 / math.sqrt(64), "no row and no column is favoured"


@each_complete
def test_a43_the_same_seed_gives_the_same_output_and_gradients(backend: str) -> None:
    tensors = {name: torch.randn(2, 2, 9, 4, requires_grad=True) for name in ("query", "key", "value")}

    def once(seed: int) -> list[Tensor]:
        output = seeded(seed, **tensors, dropout_p=0.5, mask=Causal(), backend=backend)
        return [output, *torch.autograd.grad(output.square().sum(), list(tensors.values()))]

    first, again, other = once(3), once(3), once(4)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@each_complete
def test_a_second_call_draws_anew(backend: str) -> None:
    tensors = identity_values(9, 9)
    torch.manual_seed(0)
    first = attend(**tensors, dropout_p=0.5, backend=backend)
    assert not torch.equal(first, attend(**tensors, dropout_p=0.5, backend=backend))


def test_backends_drop_the_same_weights() -> None:
    """The mask is a function of (seed, b, h, i, j), so who computes it does not matter."""
    tensors = identity_values(37, 70)
    one, two = (seeded(5, **tensors, dropout_p=0.5, mask=Causal(), backend=backend) for backend in COMPLETE)
    assert torch.equal(one == 0, two == 0)
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@each_complete
def test_backward_replays_the_mask(backend: str) -> None:
    """Finite differences through the same seed: a backward that drew anew would be far off."""
    tensors = {name: torch.randn(1, 2, 5, 4).double() for name in ("query", "key", "value")}
    direction = {name: torch.randn_like(tensor) for name, tensor in tensors.items()}

    def loss(step: float) -> Tensor:
        moved = {name: (t + step * direction[name]).requires_grad_() for name, t in tensors.items()}
        return seeded(11, **moved, dropout_p=0.4, mask=Causal(), backend=backend).square().sum()

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}
    value = seeded(11, **leaves, dropout_p=0.4, mask=Causal(), backend=backend).square().sum()
    torch.manual_seed(999)  # what happens between forward and backward must not matter
    gradients = torch.autograd.grad(value, list(leaves.values()))
    slope = sum((g * direction[name]).sum() for g, name in zip(gradients, leaves, strict=True))
    step = 1e-6
    torch.testing.assert_close(slope, (loss(step) - loss(-step)) / (2 * step), rtol=1e-6, atol=1e-7)


@each_complete
def test_gradcheck_with_dropout(backend: str) -> None:
    tensors = tuple(torch.randn(1, 1, 4, 3).double().requires_grad_() for _ in range(3))

    def function(*qkv: Tensor) -> Tensor:
        torch.manual_seed(2)
        return attend(*qkv, dropout_p=0.5, backend=backend)

    assert torch.autograd.gradcheck(function, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


@each_backend
def test_a43_no_dropout_is_no_dropout(backend: str) -> None:
    skip_unavailable(backend)
    tensors = identity_values(5, 6)
    state = torch.get_rng_state()
    plain = or_refused(backend, lambda: attend(**tensors, backend=backend))
    zero = or_refused(backend, lambda: attend(**tensors, dropout_p=0.0, backend=backend))
    if plain is not None:
        assert torch.equal(plain, zero)
        assert torch.equal(state, torch.get_rng_state()), "no dropout draws no random number"


@each_complete
def test_a43_dropping_everything_gives_zeros(backend: str) -> None:
    tensors = {name: torch.randn(1, 2, 5, 4, requires_grad=True) for name in ("query", "key", "value")}
    output = attend(**tensors, dropout_p=1.0, backend=backend)
    assert torch.count_nonzero(output) == 0
    for gradient in torch.autograd.grad(output.sum(), list(tensors.values())):
        assert torch.count_nonzero(gradient) == 0


@pytest.mark.parametrize("dropout_p", [-0.1, 1.5, float("nan"), float("inf")])
@each_backend
def test_a43_an_illegal_probability_is_refused(backend: str, dropout_p: float) -> None:
    skip_unavailable(backend)
    with pytest.raises(ValueError, match=r"dropout_p.*(?:0|1)"):
        attend(**identity_values(2, 2), dropout_p=dropout_p, backend=backend)


@each_complete
def test_e4_a41_probes_are_taken_before_dropout(backend: str) -> None:
    tensors = identity_values(6, 7)
    probes = [Entropy(), LogSumExp(), KeyMass()]
    _, plain = observe(**tensors, probes=probes, mask=Causal(), backend=backend)
    _, dropped = observe(**tensors, probes=probes, mask=Causal(), dropout_p=0.5, backend=backend)
    for name in ("entropy", "log_sum_exp", "key_mass"):
        torch.testing.assert_close(getattr(dropped, name), getattr(plain, name), rtol=1e-12, atol=1e-12)


@each_complete
def test_a35_one_key_has_weight_one_under_dropout(backend: str) -> None:
    tensors = {"query": torch.randn(1, 2, 3, 4), "key": torch.randn(1, 2, 1, 4), "value": torch.ones(1, 2, 1, 1)}
    output, seen = observe(**tensors, probes=[KeyMass()], dropout_p=0.2, backend=backend)
    assert torch.equal(seen.key_mass, torch.full((1, 2, 1), 3.0))
    assert set(output.flatten().tolist()) <= {0.0, 1.25}


@each_complete
def test_dropout_leaves_empty_rows_and_masked_keys_alone(backend: str) -> None:
    keep = torch.tensor([[False, False, True, True], [True, True, True, False]])
    tensors = identity_values(4, 4)
    tensors["key"][0, :, 0] = float("nan")
    output = attend(**tensors, mask=Causal() & Padding(keep), dropout_p=0.5, backend=backend)
    assert output.isfinite().all()
    assert torch.count_nonzero(output[0, :, :2]) == 0
    assert torch.count_nonzero(output[0, :, :, :2]) == 0


def test_observing_does_not_change_what_is_dropped() -> None:
    tensors = identity_values(6, 7)
    torch.manual_seed(1)
    plain = attend(**tensors, dropout_p=0.5)
    torch.manual_seed(1)
    watched, _ = observe(**tensors, probes=[Entropy()], dropout_p=0.5)
    assert torch.equal(plain, watched)
