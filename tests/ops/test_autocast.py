"""Autocast behaves as it does for scaled_dot_product_attention; weights stay float32 (cases H6, A40, E8, A6)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.ops import Causal, Documents, Padding, SlidingWindow, attend, observe, weights
from regard.ops.probes import Entropy
from regard.ops.testing import error_budget
from tests.ops.backends import ALL, each_backend, serve

KEEP = torch.tensor([[True, True, False, True], [True, True, True, False]])
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": Causal()},
    "padding": {"mask": Causal() & Padding(KEEP)},
    "window": {"mask": SlidingWindow(2)},
    "documents": {"mask": Documents(torch.tensor([[0, 0, 1, -1]]))},
    "bool": {"mask": KEEP[:, None, None]},
    "float32 bias": {"bias": torch.linspace(-1, 1, 16).view(4, 4)},
    "float64 bias": {"bias": torch.linspace(-1, 1, 16).view(4, 4).double()},
    "sinks": {"sinks": torch.tensor([0.3, -0.2])},
    "cap": {"logit_softcap": 2.0},
    "dropout": {"dropout_p": 0.5},
}
each_call = pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
each_half = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])


def inputs(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: torch.randn(2, 2, 4, 8, dtype=dtype, requires_grad=True) for name in ("query", "key", "value")}


@each_half
@each_call
@each_backend
def test_h6_autocast_forward_and_backward(backend: str, options: dict[str, Any], half: torch.dtype) -> None:
    tensors = inputs()
    with torch.autocast("cpu", half):
        output = serve(backend, **tensors, **options)
        if output is None:
            return
        assert output.dtype == half
        output.float().square().sum().backward()
    for tensor in tensors.values():
        assert tensor.grad is not None
        assert tensor.grad.dtype == torch.float32
        assert tensor.grad.isfinite().all()


@each_half
def test_a40_autocast_is_a_cast_of_the_inputs(half: torch.dtype) -> None:
    tensors = inputs()
    with torch.autocast("cpu", half):
        output = attend(**tensors, mask=Causal())
    cast = {name: tensor.detach().to(half) for name, tensor in tensors.items()}
    budget = error_budget(**cast, allowed=torch.ones(4, 4).tril().bool())["output"]
    assert budget.problem("output", output) is None


@each_half
@each_call
def test_a40_e8_weights_and_probes_stay_float32(options: dict[str, Any], half: torch.dtype) -> None:
    tensors = inputs()
    plain = {name: value for name, value in options.items() if name != "dropout_p"}
    with torch.autocast("cpu", half):
        found = weights(tensors["query"], tensors["key"], **plain)
        output, seen = observe(**tensors, probes=[Entropy()], **plain)
    assert found.dtype == torch.float32
    assert seen.entropy.dtype == torch.float32
    assert output.dtype == half
    if "sinks" not in options:
        rows = found.sum(-1)
        assert ((rows - 1).abs() < 1e-6).logical_or(rows == 0).all()


def test_mixed_inputs_are_fine_under_autocast() -> None:
    tensors = inputs()
    tensors["key"] = tensors["key"].detach().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert attend(**tensors).dtype == torch.bfloat16


def test_float64_is_left_alone_by_autocast() -> None:
    tensors = inputs(torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(**tensors)
    assert output.dtype == torch.float64
    torch.testing.assert_close(output, attend(**tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias_dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@each_backend
def test_a6_a_bias_of_another_dtype_is_cast(backend: str, dtype: torch.dtype, bias_dtype: torch.dtype) -> None:
    tensors = {name: tensor.detach() for name, tensor in inputs(dtype).items()}
    bias = torch.randn(1, 2, 4, 4).to(bias_dtype)
    bias[..., 2] = torch.finfo(bias_dtype).min  # blocks in its own dtype, whatever it becomes in another
    output = serve(backend, **tensors, bias=bias)
    if output is None:
        return
    assert output.dtype == dtype
    budget = error_budget(**tensors, bias=bias)["output"]
    assert budget.problem("output", output) is None
    tensors["value"][:, :, 2] = 1000.0
    assert torch.equal(output, serve(backend, **tensors, bias=bias))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_weights_and_probes_are_float32_or_float64(dtype: torch.dtype) -> None:
    tensors = inputs(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert weights(tensors["query"], tensors["key"]).dtype == wide
    assert observe(**tensors, probes=[Entropy()])[1].entropy.dtype == wide


@pytest.mark.parametrize(
    ("backend", "backward_inside"),
    # reference is ordinary autograd: inside autocast its backward rounds as everybody's does
    [(name, inside) for name in ALL for inside in (False, True) if not (inside and name == "reference")],
)
def test_gradients_under_autocast_are_as_exact_as_without(backend: str, backward_inside: bool) -> None:
    tensors = {name: tensor.detach().bfloat16().requires_grad_() for name, tensor in inputs().items()}
    upstream = torch.randn(2, 2, 4, 8).bfloat16()
    leaves = list(tensors.values())
    with torch.autocast("cpu", torch.bfloat16):
        output = serve(backend, **tensors, mask=Causal())
        if output is None:
            return
        if backward_inside:
            found = torch.autograd.grad(output, leaves, upstream)
    if not backward_inside:
        found = torch.autograd.grad(output, leaves, upstream)
    plain = serve(backend, **tensors, mask=Causal())
    assert plain is not None
    for one, two in zip(found, torch.autograd.grad(plain, leaves, upstream), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_double_backward_under_autocast(backend: str) -> None:
    tensors = inputs(torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(**tensors, mask=Causal(), backend=backend)
        (first,) = torch.autograd.grad(output.square().sum(), tensors["query"], create_graph=True)
        found = torch.autograd.grad(first.square().sum(), list(tensors.values()))
    output = attend(**tensors, mask=Causal(), backend=backend)
    (first,) = torch.autograd.grad(output.square().sum(), tensors["query"], create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(first.square().sum(), list(tensors.values())))
