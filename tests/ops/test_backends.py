"""Every backend computes what `reference` computes, in every dtype, forward and backward (DESIGN §2, lines 1 to 6).

How far a result may be off is derived, not chosen: see regard.ops.testing.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.ops import attend
from regard.ops.testing import Budget, error_budget
from tests.ops.backends import ALL, DTYPES, each_backend, each_way, play, serve
from tests.ops.calls import Call, calls

pytestmark = pytest.mark.usefixtures("unchecked")  # many examples; test_oracle.py has the shapes checked
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


@each_dtype
@each_way
@given(data=st.data())
@settings(max_examples=20)
def test_output_equals_reference(way: str, dtype: torch.dtype, data: st.DataObject) -> None:
    call: Call = data.draw(calls(dtype=dtype, infinite_bias=True))
    with play(way) as backend:
        output = serve(backend, call.query, call.key, call.value, **call.options)
    if output is None:
        return
    assert output.dtype == dtype
    wide = call.to(torch.float64)
    options = wide.options | {"bias": call.bias}  # a bias blocks at the lowest number of its own dtype
    exact = attend(wide.query, wide.key, wide.value, **options, backend="reference")
    budget = error_budget(call.query, call.key, call.value, **call.numbers)["output"]
    problem = Budget(exact, budget.allowed).problem("output", output)
    assert problem is None, f"{problem}\n{call}"


def gradients(call: Call, backend: str, grad_output: Tensor) -> dict[str, Tensor] | None:
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in call.tensors.items()}
    output = serve(backend, **leaves, **{k: v for k, v in call.options.items() if k not in leaves})
    if output is None:
        return None
    found = torch.autograd.grad(output, list(leaves.values()), grad_output.to(output), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
    }


@each_dtype
@each_way
@given(data=st.data(), zero_stride=st.booleans())
@settings(max_examples=15)
def test_gradients_equal_reference(way: str, dtype: torch.dtype, data: st.DataObject, zero_stride: bool) -> None:
    call: Call = data.draw(calls(dtype=dtype))
    shape = (*call.query.shape[:3], call.value.shape[3])
    seeded = torch.Generator().manual_seed(5)
    random = torch.randn(shape, generator=seeded).to(dtype)
    upstream = torch.ones((), dtype=dtype).expand(shape) if zero_stride else random
    with play(way) as backend:
        found = gradients(call, backend, upstream)
    if found is None:
        return
    budgets = error_budget(call.query, call.key, call.value, upstream, **call.numbers)
    for name, gradient in found.items():
        problem = budgets[name].problem(f"gradient of {name}", gradient)
        assert problem is None, f"{problem}\n{call}"


@given(call=calls())
@settings(max_examples=30)
def test_auto_serves_every_call(call: Call) -> None:
    output = attend(call.query, call.key, call.value, **call.options)
    exact = attend(call.query, call.key, call.value, **call.options, backend="reference")
    allowed = error_budget(call.query, call.key, call.value, **call.numbers)["output"].allowed
    assert Budget(exact, allowed).problem("output", output) is None


@each_backend
@pytest.mark.parametrize(("q_len", "kv_len"), [(65, 129), (130, 300), (1, 1031), (257, 63)])
def test_lengths_past_the_edges_of_tiles(backend: str, q_len: int, kv_len: int) -> None:
    from tests.ops.calls import causal

    call = Call(torch.randn(1, 2, q_len, 16), torch.randn(1, 1, kv_len, 16), torch.randn(1, 1, kv_len, 16), causal())
    allowed = torch.arange(kv_len) <= torch.arange(kv_len - q_len, kv_len)[:, None]
    upstream = torch.randn(1, 2, q_len, 16)
    found = gradients(call, backend, upstream)
    output = serve(backend, call.query, call.key, call.value, **call.options)
    if output is None or found is None:
        return
    budgets = error_budget(call.query, call.key, call.value, upstream, allowed=allowed)
    for name, result in {"output": output, **found}.items():
        assert budgets[name].problem(name, result) is None


@pytest.mark.parametrize("backend", [name for name in ALL if name != "reference"])
def test_results_repeat_bit_for_bit(backend: str) -> None:
    query, key, value = (torch.randn(2, 3, 70, 16, requires_grad=True) for _ in range(3))

    def once() -> list[Tensor] | None:
        output = serve(backend, query, key, value)
        if output is None:
            return None
        return [output, *torch.autograd.grad(output.square().sum(), [query, key, value])]

    first, second = once(), once()
    assert (first is None) == (second is None)
    for one, two in zip(first or [], second or [], strict=True):
        assert torch.equal(one, two)
