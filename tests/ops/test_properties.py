"""What must hold of attention whatever the numbers are; every property on every backend that takes the call."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import ShapeError
from regard.ops import Allowed, Causal, Documents, Padding, SlidingWindow, attend, merge, observe, weights
from regard.ops.probes import LogSumExp
from tests.ops.backends import COMPLETE, each_backend, serve
from tests.ops.calls import Call, calls

pytestmark = pytest.mark.usefixtures("unchecked")  # many examples; test_oracle.py has the shapes checked
exact_backend = pytest.mark.parametrize("backend", COMPLETE)


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def dtype_of(backend: str) -> torch.dtype:
    """The most exact dtype a backend takes."""
    return torch.float32 if backend == "native" else torch.float64


def equal(left: Tensor | None, right: Tensor | None, tolerance: float | None = None) -> None:
    assert (left is None) == (right is None)
    if left is not None:
        tolerance = tolerance or TOLERANCE[left.dtype]
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance, equal_nan=True)


@exact_backend
@given(call=calls(), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_the_order_of_keys_does_not_matter(backend: str, call: Call, seed: int) -> None:
    order = torch.randperm(call.key.shape[2], generator=torch.Generator().manual_seed(seed))
    shape = (*call.query.shape[:3], call.key.shape[2])
    bias = None if call.bias is None else call.bias.expand(shape)[..., order]
    plain = {"scale": call.scale, "logit_softcap": call.logit_softcap, "sinks": call.sinks}
    straight = attend(
        call.query, call.key, call.value, mask=Allowed(call.allowed), bias=call.bias, **plain, backend=backend
    )
    mixed = attend(
        call.query,
        call.key[:, :, order],
        call.value[:, :, order],
        mask=Allowed(call.allowed[..., order]),
        bias=bias,
        **plain,
        backend=backend,
    )
    equal(straight, mixed)


@exact_backend
@given(call=calls(), cut=st.integers(0, 7))
@settings(max_examples=25)
def test_shards_of_the_keys_merge_through_lse(backend: str, call: Call, cut: int) -> None:
    call = replace(call, sinks=None)  # a sink belongs to one shard only
    whole, seen = observe(call.query, call.key, call.value, [LogSumExp()], **call.options, backend=backend)
    kv_len = call.key.shape[2]
    cut = min(cut, kv_len)
    outputs, lses = [], []
    for part in (slice(0, cut), slice(cut, kv_len)):
        bias = None if call.bias is None else call.bias.expand(*call.query.shape[:3], kv_len)[..., part]
        options = {"scale": call.scale, "logit_softcap": call.logit_softcap, "bias": bias}
        output, shard = observe(
            call.query,
            call.key[:, :, part],
            call.value[:, :, part],
            [LogSumExp()],
            mask=Allowed(call.allowed[..., part]),
            **options,
            backend=backend,
        )
        outputs.append(output)
        lses.append(shard.log_sum_exp)
    lse, _ = merge.shares(lses)
    equal(lse, seen.log_sum_exp)
    equal(merge.outputs(outputs, lses), whole)


@pytest.mark.parametrize("lengths", [(), (3, 4)])
def test_shards_that_do_not_belong_together_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"^merge\.shares\(\): `lse` must be "):
        merge.shares([torch.zeros(1, 1, length) for length in lengths])


@each_backend
@pytest.mark.parametrize("size", [6, 7, 1000])
def test_a_window_as_long_as_the_sequence_is_none(backend: str, size: int) -> None:
    query, key, value = (torch.randn(2, 2, 6, 8).to(dtype_of(backend)) for _ in range(3))
    windowed = serve(backend, query, key, value, mask=Causal() & SlidingWindow(size))
    equal(windowed, attend(query, key, value, mask=Causal(), backend="reference"))
    equal(serve(backend, query, key, value, mask=SlidingWindow(size)), attend(query, key, value, backend="reference"))


@each_backend
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 1), (6, 3)])
def test_grouped_heads_are_repeated_heads(backend: str, heads: int, kv_heads: int) -> None:
    query = torch.randn(2, heads, 5, 8).to(dtype_of(backend)).requires_grad_()
    key, value = (torch.randn(2, kv_heads, 7, 8).to(dtype_of(backend)).requires_grad_() for _ in range(2))
    repeated = [tensor.repeat_interleave(heads // kv_heads, 1) for tensor in (key, value)]
    grouped, full = serve(backend, query, key, value), attend(query, *repeated, backend="reference")
    equal(grouped, full)
    upstream = torch.randn_like(full)
    if grouped is not None:
        for one, two in zip(
            torch.autograd.grad(grouped, [query, key, value], upstream),
            torch.autograd.grad(full, [query, key, value], upstream),
            strict=True,
        ):
            equal(one, two)


@each_backend
@pytest.mark.parametrize("chunks", [[1] * 6, [2, 3, 1], [5, 1]])
@pytest.mark.parametrize("window", [None, 3])
def test_a18_decoding_in_pieces_equals_the_full_pass(backend: str, chunks: list[int], window: int | None) -> None:
    query, key, value = (torch.randn(1, 2, 6, 4).to(dtype_of(backend)) for _ in range(3))
    mask = Causal() if window is None else Causal() & SlidingWindow(window)
    full = serve(backend, query, key, value, mask=mask)
    pieces, at = [], 0
    for length in chunks:
        now = at + length
        pieces.append(serve(backend, query[:, :, at:now], key[:, :, :now], value[:, :, :now], mask=mask))
        at = now
    if full is not None and all(piece is not None for piece in pieces):
        equal(torch.cat([piece for piece in pieces if piece is not None], 2), full)


@each_backend
def test_a_static_cache_with_q_start_equals_the_full_pass(backend: str) -> None:
    query, key, value = (torch.randn(2, 2, 6, 4).to(dtype_of(backend)) for _ in range(3))
    full = attend(query, key, value, mask=Causal(), backend="reference")
    cache_k, cache_v = (torch.cat([t, torch.full_like(t, 9.0)], 2) for t in (key, value))  # six slots not yet filled
    part = serve(backend, query[:, :, 2:4], cache_k, cache_v, mask=Causal(), q_start=2)
    equal(part, full[:, :, 2:4])
    rows = torch.stack([query[0, :, 1:3], query[1, :, 4:6]])
    per_row = serve(backend, rows, cache_k, cache_v, mask=Causal(), q_start=torch.tensor([1, 4]))
    equal(per_row, torch.stack([full[0, :, 1:3], full[1, :, 4:6]]))


@each_backend
def test_a_sliding_cache_with_kv_start_equals_the_full_pass(backend: str) -> None:
    query, key, value = (torch.randn(2, 2, 9, 4).to(dtype_of(backend)) for _ in range(3))
    mask = Causal() & SlidingWindow(4)
    full = attend(query, key, value, mask=mask, backend="reference")
    late = serve(backend, query[:, :, 7:], key[:, :, 3:], value[:, :, 3:], mask=mask, kv_start=3)
    equal(late, full[:, :, 7:])
    explicit = serve(backend, query[:, :, 7:], key[:, :, 3:], value[:, :, 3:], mask=mask, kv_start=3, q_start=7)
    equal(explicit, full[:, :, 7:])


@each_backend
@given(call=calls())
@settings(max_examples=20)
def test_batch_rows_do_not_know_each_other(backend: str, call: Call) -> None:
    call = call.to(dtype_of(backend))
    mask = Allowed(call.allowed)
    options = call.options | {"mask": mask}
    whole = serve(backend, call.query, call.key, call.value, **options)
    query, key, value = (t.clone() for t in (call.query, call.key, call.value))
    for tensor in (query, key, value):
        tensor[1:] = torch.randn_like(tensor[1:])
    changed = serve(backend, query, key, value, **options)
    if whole is not None and changed is not None:
        assert torch.equal(whole[:1], changed[:1])


@each_backend
def test_padding_does_not_matter(backend: str) -> None:
    query, key, value = (torch.randn(1, 2, 5, 8).to(dtype_of(backend)) for _ in range(3))
    alone = serve(backend, query, key, value, mask=Causal())
    for before, after in ((3, 0), (0, 4), (2, 2)):
        padded = [torch.nn.functional.pad(t, (0, 0, before, after), value=5.0) for t in (query, key, value)]
        keep = torch.zeros(1, 5 + before + after, dtype=torch.bool)
        keep[:, before : before + 5] = True
        output = serve(backend, *padded, mask=Causal() & Padding(keep))
        if output is not None:
            equal(output[:, :, before : before + 5], alone)
            assert torch.count_nonzero(output[:, :, :before]) == 0, "queries before the first key see nothing"


@each_backend
def test_packed_documents_are_separate_calls(backend: str) -> None:
    query, key, value = (torch.randn(1, 2, 9, 8).to(dtype_of(backend)) for _ in range(3))
    ids = torch.tensor([[0, 0, 0, 1, 1, -1, 2, 2, 2]])
    packed = serve(backend, query, key, value, mask=Causal() & Documents(ids))
    if packed is None:
        return
    for part in (slice(0, 3), slice(3, 5), slice(6, 9)):
        alone = attend(query[:, :, part], key[:, :, part], value[:, :, part], mask=Causal(), backend="reference")
        equal(packed[:, :, part], alone)
    assert torch.count_nonzero(packed[:, :, 5]) == 0


@given(call=calls())
@settings(max_examples=20)
def test_weights_times_values_is_the_output(call: Call) -> None:
    found = weights(call.query, call.key, **call.options)
    value = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], 1)
    equal(found @ value, attend(call.query, call.key, call.value, **call.options))


@given(call=calls())
@settings(max_examples=20)
def test_a_sink_is_one_more_key_with_a_value_of_zero(call: Call) -> None:
    call = replace(call, sinks=torch.randn(call.query.shape[1]).double())
    sunk = attend(call.query, call.key, call.value, **call.options)
    whole = attend(call.query, call.key, call.value, **call.options | {"sinks": None}, backend="reference")
    lse = replace(call, sinks=None).answer().lse
    assert call.sinks is not None
    share = torch.sigmoid(lse - call.sinks[:, None]).nan_to_num()
    equal(sunk, share[..., None] * whole)
