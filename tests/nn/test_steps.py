"""Each stage of an attention call against its formula, in float64."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import DTypeError, ShapeError
from regard.nn import ALiBi, MultiHeadAttention, RelativeBias, Rotary, SelfAttention, steps
from regard.ops import Causal, Padding

X = torch.randn(2, 6, 16, dtype=torch.float64)
MEMORY = torch.randn(2, 5, 16, dtype=torch.float64)


def made(**options: object) -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, **options).double().eval()  # type: ignore[arg-type]


def heads(x: Tensor, count: int) -> Tensor:
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def test_every_stage_is_its_formula() -> None:
    module = made(num_kv_heads=2)
    found = steps(module, X, mask=Causal())
    query = heads(X @ module.query.weight.T + module.query.bias, 4)
    key = heads(X @ module.key.weight.T + module.key.bias, 2).repeat_interleave(2, dim=1)
    value = heads(X @ module.value.weight.T + module.value.bias, 2).repeat_interleave(2, dim=1)
    scores = query @ key.transpose(2, 3)
    scaled = scores / 2
    masked = scaled.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
    weights = masked.exp() / masked.exp().sum(dim=-1, keepdim=True)
    context = weights @ value
    output = context.transpose(1, 2).reshape(2, 6, 16) @ module.output.weight.T + module.output.bias
    for name, wanted in {
        "query": query,
        "key": key,
        "value": value,
        "scores": scores,
        "scaled": scaled,
        "masked": masked,
        "weights": weights,
        "context": context,
        "output": output,
    }.items():
        torch.testing.assert_close(getattr(found, name), wanted, msg=name)


@pytest.mark.parametrize(
    "module",
    [
        made(),
        made(scale=0.3, sinks=True),
        made(positions=Rotary(4)),
        made(positions=ALiBi(4)),
        made(positions=RelativeBias(4)),
        made(value_dim=3, head_dim=5),
        SelfAttention(16, 4, shared_heads=True, scale="embed").double(),
    ],
)
def test_the_last_stages_are_what_the_module_returns(module: MultiHeadAttention | SelfAttention) -> None:
    mask = Causal() & Padding(torch.tensor([[True] * 6, [False] * 2 + [True] * 4]))
    found = steps(module, X, mask=mask)
    output, weights = module(X, mask=mask, need_weights=True)
    torch.testing.assert_close(found.output, output)
    torch.testing.assert_close(found.weights, weights)
    assert torch.equal(found.weights[1, :, :2], torch.zeros(4, 2, 6, dtype=torch.float64)), "empty rows"
    torch.testing.assert_close(output, module(X, mask=mask), rtol=0, atol=1e-12)


def test_another_sequence_and_a_mask_of_numbers() -> None:
    module, mask = made(), torch.tensor([[[1.0, 1, 0, 1, 0]] * 6] * 2)
    found = steps(module, X, MEMORY, mask=mask)
    torch.testing.assert_close(found.output, module(X, MEMORY, mask=mask))
    assert torch.equal(found.weights[..., [2, 4]], torch.zeros(2, 4, 6, 2, dtype=torch.float64))


def test_they_carry_gradients() -> None:
    module, x = made(), X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(steps(module, x, mask=Causal()).output.square().sum(), x)
    (wanted,) = torch.autograd.grad(module(x, mask=Causal()).square().sum(), x)
    torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("positions", [ALiBi(4), RelativeBias(4), Rotary(4), None])
def test_every_stage_is_of_the_dtype_of_the_inputs(positions: torch.nn.Module | None, dtype: torch.dtype) -> None:
    module = made(positions=positions).to(dtype)
    found = steps(module, X.to(dtype), mask=Causal())
    assert {getattr(found, field.name).dtype for field in fields(found)} == {dtype}
    torch.testing.assert_close(found.output, module(X.to(dtype), mask=Causal()), atol=0.05, rtol=0)


REFUSED: dict[str, tuple[Any, ...]] = {
    "a key of another batch": (X, MEMORY[:1]),
    "values of another length": (X, MEMORY, MEMORY[:, :3]),
    "a mask of another shape": (X, None, None, torch.ones(4, 5).bool()),
    "a mask of rows": (X, None, None, torch.ones(2, 6).bool()),
    "another dtype": (X.float(),),
    "a mask for a key": (X, Causal()),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_call_refuses_they_refuse_in_the_same_words(refused: str) -> None:
    module = made()
    with pytest.raises((ShapeError, DTypeError)) as wanted:
        module(*REFUSED[refused])
    with pytest.raises(type(wanted.value), match=re.escape(str(wanted.value))):
        steps(module, *REFUSED[refused])


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_attention_is_named() -> None:
    with pytest.raises(DTypeError, match=r"(?s)steps\(\): `attention` must be .* a MultiheadAttention.*from_torch"):
        steps(torch.nn.MultiheadAttention(16, 4), X)  # type: ignore[arg-type]
