"""Derivatives of every order, in every mode, for whichever inputs ask (DESIGN §2.11; cases A37, A38, H2 to H5)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev, jvp, vjp, vmap

from regard.ops import Causal, Padding, SlidingWindow, attend, observe, weights
from regard.ops.probes import Entropy
from regard.ops.testing import dense_attention, error_budget
from tests.ops.backends import COMPLETE, each_backend, or_refused, serve, skip_unavailable

KEEP = torch.tensor([[True, True, True, False], [True, False, True, True]])
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": Causal()},
    "padded": {"mask": Causal() & Padding(KEEP)},
    "capped": {"mask": SlidingWindow(2), "logit_softcap": 1.3, "scale": 0.9},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def inputs(*, dtype: torch.dtype = torch.float64, requires: str = "qkv", value_dim: int = 3) -> dict[str, Tensor]:
    shapes = {"q": (2, 2, 4, 4), "k": (2, 1, 4, 4), "v": (2, 1, 4, value_dim)}
    names = {"q": "query", "k": "key", "v": "value"}
    return {names[n]: torch.randn(shapes[n], dtype=dtype).requires_grad_(n in requires) for n in "qkv"}


def dense(query: Tensor, key: Tensor, value: Tensor, *, allowed: Tensor | None = None, **numbers: Any) -> Tensor:
    return dense_attention(query, key, value, allowed=allowed, **numbers)[0]


def allowed_of(options: dict[str, Any]) -> Tensor | None:
    q, k = torch.arange(4)[:, None], torch.arange(4)[None]
    by_name = {
        "plain": None,
        "causal": k <= q,
        "padded": (k <= q) & KEEP[:, None, None],
        "capped": (q - k).abs() < 2,
    }
    (name,) = [name for name, known in OPTIONS.items() if known is options]
    return by_name[name]


def numbers_of(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "mask"}


def close(left: Any, right: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


@each_option
@each_backend
def test_gradcheck(backend: str, options: dict[str, Any]) -> None:
    skip_unavailable(backend)
    tensors = tuple(inputs().values())
    or_refused(
        backend,
        lambda: torch.autograd.gradcheck(
            lambda *qkv: attend(*qkv, **options, backend=backend), tensors, fast_mode=True
        ),
    )


@each_option
@each_backend
def test_a38_h2_gradgradcheck(backend: str, options: dict[str, Any]) -> None:
    skip_unavailable(backend)
    tensors = tuple(inputs().values())
    or_refused(
        backend,
        lambda: torch.autograd.gradgradcheck(
            lambda *qkv: attend(*qkv, **options, backend=backend), tensors, fast_mode=True
        ),
    )


@pytest.mark.parametrize("backend", [*COMPLETE, "auto"])
def test_gradgradcheck_of_bias_and_sinks(backend: str) -> None:
    tensors = inputs()
    bias = torch.randn(1, 2, 4, 4).double().requires_grad_()
    sinks = torch.randn(2).double().requires_grad_()

    def function(bias: Tensor, sinks: Tensor, query: Tensor) -> Tensor:
        rest = {"key": tensors["key"], "value": tensors["value"]}
        return attend(query, **rest, mask=Causal(), bias=bias, sinks=sinks, logit_softcap=2.0, backend=backend)

    given = (bias, sinks, tensors["query"])
    assert torch.autograd.gradcheck(function, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


@each_option
@each_backend
def test_a38_gradient_penalty(backend: str, options: dict[str, Any]) -> None:
    """Double backward as it is used: the norm of a gradient is part of the loss."""
    skip_unavailable(backend)
    tensors = inputs(value_dim=4)  # as wide as the keys: there torch's own kernel has no second derivative
    names = list(tensors)

    def penalty(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        output = function(**tensors)
        (first,) = torch.autograd.grad(output.square().sum(), tensors["query"], create_graph=True)
        return torch.autograd.grad(first.square().sum(), [tensors[name] for name in names])

    found = or_refused(backend, lambda: penalty(lambda **leaves: attend(**leaves, **options, backend=backend)))
    if found is not None:
        allowed, numbers = allowed_of(options), numbers_of(options)
        close(found, penalty(lambda **leaves: dense(**leaves, allowed=allowed, **numbers)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@each_backend
def test_a38_double_backward_keeps_the_dtype(backend: str, dtype: torch.dtype) -> None:
    tensors = inputs(dtype=dtype, value_dim=4)
    output = serve(backend, **tensors, mask=Causal())
    if output is None:
        return
    (first,) = torch.autograd.grad(output.square().sum(), tensors["query"], create_graph=True)
    second = torch.autograd.grad(first.square().sum(), list(tensors.values()))
    assert [gradient.dtype for gradient in (first, *second)] == [dtype] * 4
    assert all(gradient.isfinite().all() for gradient in second)


@each_backend
@pytest.mark.parametrize("which", ["query", "key", "value", "bias", "sinks"])
def test_a37_only_one_input_needs_a_gradient(backend: str, which: str) -> None:
    tensors = inputs(requires="")
    tensors |= {"bias": torch.randn(1, 2, 4, 4).double(), "sinks": torch.randn(2).double()}
    tensors[which].requires_grad_()
    output = serve(backend, **tensors, mask=Causal())
    if output is None:
        return
    assert output.requires_grad
    output.sum().backward()
    gradient = tensors[which].grad
    assert gradient is not None
    assert gradient.shape == tensors[which].shape
    assert all(tensor.grad is None for name, tensor in tensors.items() if name != which)
    upstream = torch.ones_like(output)
    qkv = {name: tensors[name] for name in ("query", "key", "value")}
    allowed = torch.ones(4, 4).tril().bool()
    budgets = error_budget(**qkv, grad_output=upstream, allowed=allowed, bias=tensors["bias"], sinks=tensors["sinks"])
    assert budgets[which].problem(which, gradient) is None


@each_backend
def test_a37_no_input_needs_a_gradient(backend: str) -> None:
    output = serve(backend, **inputs(requires=""), mask=Causal())
    assert output is None or not output.requires_grad


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (1, 1, 4, 4), (2, 1, 1, 4), (2, 2, 4, 1), (4, 4), (1, 1, 1, 1)])
@each_backend
def test_h5_gradient_of_a_broadcast_bias_is_reduced(backend: str, shape: tuple[int, ...]) -> None:
    bias = torch.randn(shape).double().requires_grad_()
    tensors = inputs(requires="")
    output = serve(backend, **tensors, mask=Causal(), bias=bias)
    if output is None:
        return
    upstream = torch.randn_like(output)
    (found,) = torch.autograd.grad(output, bias, upstream)
    allowed = torch.ones(4, 4).tril().bool()
    (exact,) = torch.autograd.grad(dense(**tensors, allowed=allowed, bias=bias), bias, upstream)
    close(found, exact)


@each_backend
def test_h4_gradient_of_a_sum_has_zero_strides(backend: str) -> None:
    tensors = {name: t.detach().mT.contiguous().mT.requires_grad_() for name, t in inputs().items()}
    output = serve(backend, **tensors, mask=Causal())
    if output is None:
        return
    found = torch.autograd.grad(output.sum(), list(tensors.values()))
    plain = {name: t.detach().contiguous().requires_grad_() for name, t in tensors.items()}
    exact = torch.autograd.grad(dense(**plain, allowed=torch.ones(4, 4).tril().bool()).sum(), list(plain.values()))
    close(found, exact)


# torch itself scripts its formulas for forward mode when they are first needed
forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@forward_mode
@pytest.mark.parametrize("backend", ["auto", *COMPLETE])
@each_option
def test_h3_jvp(backend: str, options: dict[str, Any]) -> None:
    tensors = inputs(requires="")
    primals, tangents = tuple(tensors.values()), tuple(torch.randn_like(t) for t in tensors.values())
    result = or_refused_transform(
        backend, lambda: jvp(lambda *qkv: attend(*qkv, **options, backend=backend), primals, tangents)
    )
    if result is not None:
        exact = jvp(lambda *qkv: dense(*qkv, allowed=allowed_of(options), **numbers_of(options)), primals, tangents)
        close(result, exact)


@forward_mode
@pytest.mark.parametrize("backend", ["auto", *COMPLETE])
@each_option
def test_h3_forward_mode_ad(backend: str, options: dict[str, Any]) -> None:
    import torch.autograd.forward_ad as fwad

    tensors = inputs(requires="")
    tangent = torch.randn_like(tensors["key"])
    with fwad.dual_level():
        dual = tensors | {"key": fwad.make_dual(tensors["key"], tangent)}
        output = or_refused_transform(backend, lambda: attend(**dual, **options, backend=backend))
        if output is None:
            return
        found = fwad.unpack_dual(output).tangent
    primals = tuple(tensors.values())
    tangents = (torch.zeros_like(primals[0]), tangent, torch.zeros_like(primals[2]))
    exact = jvp(lambda *qkv: dense(*qkv, allowed=allowed_of(options), **numbers_of(options)), primals, tangents)[1]
    close(found, exact)


@pytest.mark.parametrize("backend", ["auto", *COMPLETE])
def test_h3_vmap_over_every_input_and_over_one(backend: str) -> None:
    tensors = [torch.randn(3, *t.shape).double() for t in inputs(requires="").values()]

    def function(*qkv: Tensor) -> Tensor:
        return attend(*qkv, mask=Causal(), backend=backend)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a slow path would warn
        everywhere = or_refused_transform(backend, lambda: vmap(function)(*tensors))
        query_only = or_refused_transform(
            backend, lambda: vmap(function, in_dims=(0, None, None))(tensors[0], tensors[1][0], tensors[2][0])
        )
    if everywhere is not None:
        close(everywhere, torch.stack([function(*(t[n] for t in tensors)) for n in range(3)]))
    if query_only is not None:
        close(query_only, torch.stack([function(tensors[0][n], tensors[1][0], tensors[2][0]) for n in range(3)]))


def test_h3_vmap_over_bias_and_sinks() -> None:
    tensors = inputs(requires="")
    bias, sinks = torch.randn(3, 1, 2, 4, 4).double(), torch.randn(3, 2).double()
    found = vmap(lambda b, s: attend(**tensors, bias=b, sinks=s))(bias, sinks)
    close(found, torch.stack([dense(**tensors, bias=b, sinks=s) for b, s in zip(bias, sinks, strict=True)]))


@forward_mode
@each_option
def test_h3_functorch_gradients_of_gradients(options: dict[str, Any]) -> None:
    tensors = inputs(requires="")

    def losses(function: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda query: function(query, tensors["key"], tensors["value"]).square().sum()

    ours = losses(lambda *qkv: attend(*qkv, **options))
    theirs = losses(lambda *qkv: dense(*qkv, allowed=allowed_of(options), **numbers_of(options)))
    close(grad(ours)(tensors["query"]), grad(theirs)(tensors["query"]))
    twice = [grad(lambda q, one=one: grad(one)(q).square().sum())(tensors["query"]) for one in (ours, theirs)]
    close(*twice)
    close(jacrev(grad(ours))(tensors["query"]), jacrev(grad(theirs))(tensors["query"]))


def test_h3_per_sample_gradients() -> None:
    tensors = inputs(requires="")

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query[None], key[None], value[None], mask=Causal()).square().sum()

    found = vmap(grad(loss, argnums=(0, 1, 2)))(*tensors.values())
    rows = [grad(loss, argnums=(0, 1, 2))(*(t[n] for t in tensors.values())) for n in range(2)]
    close(found, tuple(torch.stack(column) for column in zip(*rows, strict=True)))


def test_h3_vjp_and_jacobian_match_autograd() -> None:
    tensors = inputs(requires="")
    output, pull = vjp(lambda *qkv: attend(*qkv, mask=Causal()), *tensors.values())
    upstream = torch.randn_like(output)
    leaves = {name: t.clone().requires_grad_() for name, t in tensors.items()}
    exact = torch.autograd.grad(
        dense(**leaves, allowed=torch.ones(4, 4).tril().bool()), list(leaves.values()), upstream
    )
    close(pull(upstream), exact)


def test_weights_are_differentiable_twice() -> None:
    tensors = inputs()

    def function(query: Tensor, key: Tensor) -> Tensor:
        return weights(query, key, mask=Causal())

    assert torch.autograd.gradcheck(function, (tensors["query"], tensors["key"]), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (tensors["query"], tensors["key"]), fast_mode=True)


@each_backend
def test_probes_change_neither_output_nor_gradient_and_are_detached(backend: str) -> None:
    tensors = inputs(dtype=torch.float32)
    plain = serve(backend, **tensors, mask=Causal())
    seen = or_refused(backend, lambda: observe(**tensors, probes=[Entropy()], mask=Causal(), backend=backend))
    if plain is None or seen is None:
        return
    output, observation = seen
    assert not observation.entropy.requires_grad
    upstream = torch.randn_like(plain)
    leaves = list(tensors.values())
    assert torch.equal(output, plain)
    for one, two in zip(
        torch.autograd.grad(output, leaves, upstream), torch.autograd.grad(plain, leaves, upstream), strict=True
    ):
        assert torch.equal(one, two)


@each_backend
def test_checkpointing_gives_the_same_gradients(backend: str) -> None:
    from torch.utils.checkpoint import checkpoint

    skip_unavailable(backend)
    tensors = inputs(value_dim=4)
    plain = serve(backend, **tensors, mask=Causal())
    if plain is None:
        return

    def layer(*qkv: Tensor) -> Tensor:
        return attend(*qkv, mask=Causal(), backend=backend)

    again = checkpoint(layer, *tensors.values(), use_reentrant=False)
    leaves = list(tensors.values())
    close(torch.autograd.grad(again.sum(), leaves), torch.autograd.grad(plain.sum(), leaves), 0)


@each_backend
def test_backward_twice_with_a_kept_graph(backend: str) -> None:
    tensors = inputs(value_dim=4)
    output = serve(backend, **tensors, mask=Causal())
    if output is None:
        return
    leaves = list(tensors.values())
    first = torch.autograd.grad(output.sum(), leaves, retain_graph=True)
    close(first, torch.autograd.grad(output.sum(), leaves), 0)


def or_refused_transform(backend: str, function: Callable[[], Any]) -> Any:
    """A named backend may refuse a transform; `auto` and `reference` must be right."""
    from regard.errors import UnsupportedError

    if backend in ("auto", "reference"):
        return function()
    try:
        return function()
    except UnsupportedError as refusal:
        text = str(refusal)
    assert backend in text
    return None


def requires_grad_patterns() -> Iterator[str]:
    for count in (1, 2):
        yield from map("".join, itertools.combinations("qkv", count))


@pytest.mark.parametrize("pattern", list(requires_grad_patterns()))
@each_backend
def test_a37_some_inputs_need_gradients(backend: str, pattern: str) -> None:
    tensors = inputs(requires=pattern, value_dim=4)
    output = serve(backend, **tensors, mask=Causal())
    if output is None:
        return
    output.sum().backward()
    exact = {name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in tensors.items()}
    dense(**exact, allowed=torch.ones(4, 4).tril().bool()).sum().backward()
    for name, tensor in tensors.items():
        assert (tensor.grad is None) == (exact[name].grad is None)
        if tensor.grad is not None:
            close(tensor.grad, exact[name].grad)


@each_backend
def test_a_mask_changed_after_the_forward_pass_is_noticed(backend: str) -> None:
    """torch refuses to use a saved tensor that was written to; a mask must not silently give other gradients."""
    keep = torch.tensor([[True, True, True, False], [True, False, True, True]])
    tensors = inputs(value_dim=4)
    output = serve(backend, **tensors, mask=Padding(keep))
    if output is None:
        return
    leaves = list(tensors.values())
    expected = torch.autograd.grad(dense(**tensors, allowed=keep.clone()[:, None, None]).sum(), leaves)
    keep[:] = ~keep
    try:
        found = torch.autograd.grad(output.sum(), leaves)
    except RuntimeError as refusal:
        text = str(refusal)
    else:
        close(found, expected)
        return
    assert "modified" in text or "changed" in text
