"""Gradients by the native kernels: what the suites for all backends do not reach, because it needs many blocks of rows,
tiles of keys or threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.ops import ALiBi, Allowed, Causal, Documents, Padding, SlidingWindow, attend
from regard.ops._backends import native
from regard.ops._validate import make_call
from regard.ops.testing import error_budget
from tests.ops.backends import skip_unavailable

pytestmark = pytest.mark.usefixtures("unchecked")
NAN, INF = float("nan"), float("inf")
HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _available() -> None:
    skip_unavailable("native")


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(
    q_len: int,
    kv_len: int,
    *,
    batch: int = 1,
    heads: tuple[int, int] = (2, 2),
    dims: tuple[int, int] = (16, 16),
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """Query, key and value; the last two as slices of one tensor with tokens before heads, as layers make them."""
    together = random(batch, kv_len, heads[1], sum(dims), dtype=dtype, seed=1).transpose(1, 2)
    key, value = together.split(dims, dim=3)
    return {"query": random(batch, heads[0], q_len, dims[0], dtype=dtype, seed=2), "key": key, "value": value}


def gradients(tensors: dict[str, Tensor], upstream: Tensor, backend: str = "native", **options: Any) -> list[Tensor]:
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    output = attend(**leaves, **options, backend=backend)
    return list(torch.autograd.grad(output, list(leaves.values()), upstream))


MASKS = ("none", "causal", "window", "documents", "bits", "padding", "empty rows")


def masked(kind: str, batch: int, heads: int, q_len: int, kv_len: int) -> tuple[Any, Tensor | None]:
    """A mask, and the same as a bool tensor."""
    place, key = torch.arange(kv_len - q_len, kv_len)[:, None], torch.arange(kv_len)[None]
    match kind:
        case "causal":
            return Causal(), key <= place
        case "window":
            return Causal() & SlidingWindow(70), (key <= place) & (place - key < 70)
        case "documents":
            ids, its = (torch.arange(size)[None] // 61 % 3 for size in (kv_len, q_len))
            return Documents(ids, its), (its[:, :, None] == ids[:, None])[:, None]
        case "bits":
            cells = random(batch, heads, q_len, kv_len, seed=3) > 0.4
            cells[..., 64:192] = False
            return Allowed(cells), cells
        case "padding":
            keep = key < torch.arange(1, batch + 1)[:, None] * kv_len // (batch + 1)
            return Padding(keep), keep[:, None, None]
        case "empty rows":
            cells = (key <= place) & (place % 3 != 0)
            return cells[None, None], cells
        case _:
            return None, None


@st.composite
def whole_calls(draw: st.DrawFn) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Tensors, options of attend() and options of error_budget()."""
    batch, heads = draw(st.integers(1, 2)), draw(st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]))
    q_len, kv_len = draw(st.integers(1, 150)), draw(st.integers(1, 300))
    dims = draw(st.sampled_from([(16, 16), (64, 64), (5, 7), (24, 3), (40, 72), (1, 1)]))
    dtype = draw(st.sampled_from([torch.float32, *HALVES]))
    tensors = inputs(q_len, kv_len, batch=batch, heads=heads, dims=dims, dtype=dtype)
    bias_shape = draw(st.sampled_from([None, None, (batch, heads[0], q_len, kv_len), (1, heads[0], q_len, 1)]))
    if bias_shape is not None:
        tensors["bias"] = random(*bias_shape, dtype=dtype, seed=4)
        if draw(st.booleans()):
            tensors["bias"].masked_fill_(random(*bias_shape, seed=5) > 1, -INF)
    if draw(st.booleans()):
        tensors["sinks"] = random(heads[0], dtype=dtype, seed=6)
    mask, allowed = masked(draw(st.sampled_from(MASKS)), batch, heads[0], q_len, kv_len)
    options = {"logit_softcap": draw(st.sampled_from([None, None, 1.5]))}
    return tensors, options | {"mask": mask}, options | {"allowed": allowed}


@given(call=whole_calls(), count=st.sampled_from([1, 2, 3]))
@settings(max_examples=60, deadline=None)
def test_gradients_of_whole_calls_are_within_budget(call: Any, count: int) -> None:
    tensors, options, meaning = call
    shape = (*tensors["query"].shape[:3], tensors["value"].shape[3])
    upstream = random(*shape, dtype=tensors["query"].dtype, seed=7)
    with threads(count):
        found = gradients(tensors, upstream, **options)
    budgets = error_budget(**tensors, grad_output=upstream, **meaning)
    for (name, tensor), gradient in zip(tensors.items(), found, strict=True):
        assert gradient.dtype == tensor.dtype
        problem = budgets[name].problem(f"gradient of {name}", gradient)
        assert problem is None, problem


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("q_len", "kv_len", "count"), [(300, 300, 2), (7, 700, 3), (500, 33, 2)])
def test_one_head_on_many_threads(q_len: int, kv_len: int, count: int, mask: str, dtype: torch.dtype) -> None:
    """Fewer heads than threads: rows or keys are shared out, and what the threads summed is added up."""
    tensors = inputs(q_len, kv_len, heads=(1, 1), dtype=dtype)
    given_mask, allowed = masked(mask, 1, 1, q_len, kv_len)
    upstream = random(1, 1, q_len, 16, dtype=dtype, seed=7)
    with threads(count):
        found = gradients(tensors, upstream, mask=given_mask)
    budgets = error_budget(**tensors, grad_output=upstream, allowed=allowed)
    for name, gradient in zip(tensors, found, strict=True):
        problem = budgets[name].problem(f"gradient of {name}", gradient)
        assert problem is None, problem


@pytest.mark.parametrize("heads", [(1, 1), (4, 2), (6, 6)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_bits_every_time(count: int, heads: tuple[int, int]) -> None:
    tensors = inputs(260, 300, heads=heads) | {"bias": random(1, heads[0], 260, 300, seed=4)}
    upstream = random(1, heads[0], 260, 16, seed=7)
    with threads(count):
        first = gradients(tensors, upstream, mask=Causal())
        for _ in range(5):
            for one, other in zip(first, gradients(tensors, upstream, mask=Causal()), strict=True):
                assert torch.equal(one, other)


@pytest.mark.parametrize("mask", ["bits", "padding", "causal"])
def test_rows_without_keys_have_no_gradient_and_give_none(mask: str) -> None:
    tensors = inputs(120, 200, heads=(2, 1))
    cells = masked(mask, 1, 2, 120, 200)[1]
    assert cells is not None
    cells = cells.expand(1, 2, 120, 200).clone()
    cells[:, 0, 30:100] = False
    upstream = random(1, 2, 120, 16, seed=7)
    upstream[:, 0, 30:100] = NAN
    dirty = gradients(tensors, upstream, mask=Allowed(cells))
    clean = gradients(tensors, upstream.nan_to_num(nan=0.0), mask=Allowed(cells))
    assert torch.count_nonzero(dirty[0][:, 0, 30:100]) == 0
    for one, other in zip(dirty, clean, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_what_is_behind_the_mask_reaches_no_gradient(name: str, poison: float, softcap: float | None) -> None:
    """Rows and keys that meet nobody hold NaN, in tiles where all others meet."""
    tensors = inputs(130, 170, heads=(2, 1))
    cells = random(1, 2, 130, 170, seed=3) > 0.2
    lost = {"query": 60, "key": 140, "value": 140}[name]
    if name == "query":
        cells[:, :, lost] = False
    else:
        cells[..., lost] = False
    dirty = {**tensors, name: tensors[name].clone()}
    dirty[name][:, :, lost] = poison
    upstream = random(1, 2, 130, 16, seed=7)
    expected = gradients(tensors, upstream, mask=Allowed(cells), logit_softcap=softcap)
    found = gradients(dirty, upstream, mask=Allowed(cells), logit_softcap=softcap)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [NAN, INF])
def test_what_is_behind_a_blocking_bias_reaches_no_gradient(poison: float) -> None:
    tensors = inputs(60, 170)
    bias = random(1, 2, 60, 170, seed=4)
    bias[..., 140] = -INF
    dirty = {"query": tensors["query"], "key": tensors["key"].clone(), "value": tensors["value"].clone()}
    dirty["key"][:, :, 140], dirty["value"][:, :, 140] = poison, poison
    upstream = random(1, 2, 60, 16, seed=7)
    calls = [_call(some, bias=bias) for some in (tensors, dirty)]
    done = native.forward(calls[0])
    clean, found = (native.backward(call, done, upstream) for call in calls)
    for one, other in zip(found[:4], clean[:4], strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def _call(tensors: dict[str, Tensor], **options: Any) -> Any:
    defaults = {"mask": None, "bias": None, "scale": None, "logit_softcap": None, "sinks": None, "dropout_p": 0.0}
    return make_call("attend", *tensors.values(), **defaults | options, q_start="end", kv_start=0)


def test_a_visible_nan_stays_visible_and_touches_nothing_else() -> None:
    """Causal, key 150 broken: the rows from 150 on see it, the others and their keys' values do not."""
    tensors = inputs(200, 200)
    tensors["key"] = tensors["key"].clone()
    tensors["key"][:, :, 150] = NAN
    query, _, value = gradients(tensors, random(1, 2, 200, 16, seed=7), mask=Causal())
    assert query[:, :, :150].isfinite().all()
    assert query[:, :, 150:].isnan().all()
    assert value.isnan().all(), "rows from 150 on give NaN to every value they see"
    late = gradients(tensors, torch.zeros(1, 2, 200, 16).index_fill(2, torch.arange(150), 1.0), mask=Causal())
    assert late[0][:, :, :150].isfinite().all()


def test_gradients_of_gradients_are_those_of_the_definition() -> None:
    tensors = inputs(50, 60, heads=(4, 2)) | {"bias": random(1, 4, 50, 60, seed=4)}
    upstream = random(1, 4, 50, 16, seed=7)

    def twice(backend: str, dtype: torch.dtype) -> list[Tensor]:
        leaves = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in tensors.items()}
        output = attend(**leaves, mask=Causal(), logit_softcap=3.0, backend=backend)
        first = torch.autograd.grad(output, list(leaves.values()), upstream.to(dtype), create_graph=True)
        return list(torch.autograd.grad(sum(part.square().sum() for part in first), list(leaves.values())))

    for one, exact in zip(twice("native", torch.float32), twice("reference", torch.float64), strict=True):
        torch.testing.assert_close(one.double(), exact, rtol=1e-3, atol=1e-4)


def test_no_gradient_is_computed_that_nobody_wants() -> None:
    tensors = inputs(20, 30)
    call = _call(tensors, bias=random(1, 2, 20, 30, seed=4), sinks=random(2, seed=5))
    done, upstream = native.forward(call), random(1, 2, 20, 16, seed=7)
    whole = native.backward(call, done, upstream)
    for number in range(5):
        wanted = tuple(number == other for other in range(5))
        alone = native.backward(call, done, upstream, wanted)
        assert [found is not None for found in alone] == list(wanted)
        assert torch.equal(alone[number], whole[number])  # type: ignore[arg-type]


@pytest.mark.parametrize("q_len", [5, 70])
def test_a_bias_by_rule_has_the_gradients_of_its_tensor(q_len: int) -> None:
    """``ALiBi`` is read inside the kernels; a second derivative needs it written out, for the definition."""
    slopes = torch.tensor([0.5, 0.25])
    tensors = inputs(q_len, 90)
    upstream = random(1, 2, q_len, 16, seed=9)
    place, key = torch.arange(90 - q_len, 90)[:, None], torch.arange(90)[None]
    written = -slopes[:, None, None] * (place - key).abs()
    options = {"mask": Causal(), "backend": "native"}
    torch.testing.assert_close(
        gradients(tensors, upstream, bias=ALiBi(slopes), mask=Causal()),
        gradients(tensors, upstream, bias=written[None], mask=Causal()),
    )
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
    seconds = []
    for bias in (ALiBi(slopes), written[None]):
        output = attend(**leaves, bias=bias, **options)
        (first,) = torch.autograd.grad(output.sin().sum(), leaves["key"], create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), leaves["query"])[0])
    torch.testing.assert_close(*seconds)


def test_tensors_without_memory_go_through() -> None:
    """What exporters and planners run: shapes only, in a mode that no compiler has announced."""
    with FakeTensorMode():
        query, key, value = (torch.empty(2, 2, 12, 16, requires_grad=True) for _ in range(3))
        for bias in (None, ALiBi(torch.empty(2))):
            output = attend(query, key, value, mask=Causal(), bias=bias, backend="native")
            assert output.shape == (2, 2, 12, 16)
            output.sum().backward()
            assert query.grad is not None
            assert query.grad.shape == query.shape


def test_sums_over_many_queries_keep_their_digits() -> None:
    """Thousands of terms of one sign: a single chain of additions loses digits to the sum so far."""
    tensors = {
        "query": random(1, 1, 8192, 64),
        "key": random(1, 1, 256, 64, seed=1),
        "value": random(1, 1, 256, 64, seed=2),
    }
    upstream = random(1, 1, 8192, 64, seed=3).abs()

    def value_gradient(dtype: torch.dtype, backend: Any) -> Tensor:
        leaves = {name: tensor.to(dtype).requires_grad_() for name, tensor in tensors.items()}
        (found,) = torch.autograd.grad(attend(**leaves, backend=backend), leaves["value"], upstream.to(dtype))
        return found.double()

    exact = value_gradient(torch.float64, "reference")
    usual = (value_gradient(torch.float32, "torch") - exact).abs().amax()
    assert (value_gradient(torch.float32, "native") - exact).abs().amax() < 4 * usual


@pytest.mark.parametrize("mask", [None, Causal(), Allowed(torch.tensor([[True, True, True, False]]))])
@pytest.mark.parametrize("bias", [None, torch.tensor([0.0, 0.5, 0.0, -INF])])
def test_a_visible_nan_is_in_the_gradient_of_every_key_its_row_sees(mask, bias) -> None:
    """Of a key with a score of −inf too: whether a key is masked is not to be told from its score."""
    key = torch.tensor([INF, -INF, 1.0, 2.0])[None, None, :, None]
    found = {}
    for backend in ("native", "reference"):
        leaves = [torch.ones(1, 1, 1, 1), key.clone(), torch.ones(1, 1, 4, 1)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        attend(*leaves, mask=mask, bias=bias, backend=backend).sum().backward()
        found[backend] = [leaf.grad.isnan() for leaf in leaves]
    assert all(torch.equal(*pair) for pair in zip(*found.values(), strict=True))
    assert found["native"][1][0, 0, 1, 0]
