"""The handed cases of group A, one test per id: known trouble in attention code, with the right answers.

What belongs to modules (A02, A12, A26, A28, A31, A42) is written here with plain projections where the operation itself
is concerned; test_group_a_modules.py has the modules.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.ops import (
    Allowed,
    Blocked,
    Causal,
    Documents,
    Padding,
    Prefix,
    SlidingWindow,
    attend,
    observe,
    weights,
)
from regard.ops.probes import Entropy, KeyMass, SinkShare
from regard.ops.testing import error_budget
from tests.ops.backends import COMPLETE, each_backend, serve
from tests.ops.calls import LAYOUTS

INF, NAN = float("inf"), float("nan")
HALVES = (torch.float16, torch.bfloat16)
each_complete = pytest.mark.parametrize("backend", [*COMPLETE, "auto"])


def zeros(length: int, dim: int = 4, **options: Any) -> Tensor:
    return torch.zeros(1, 1, length, dim, **options)


def column(*values: float, **options: Any) -> Tensor:
    return torch.tensor([float(value) for value in values], **options).view(1, 1, -1, 1)


def identity(length: int) -> Tensor:
    return torch.eye(length).view(1, 1, length, length)


def bools(*rows: str) -> Tensor:
    return torch.tensor([[cell == "1" for cell in row] for row in rows])


def close(found: Tensor | None, expected: Any, tolerance: float = 1e-6) -> None:
    if found is not None:
        wanted = torch.as_tensor(expected).to(found)
        torch.testing.assert_close(found, wanted.expand_as(found), rtol=tolerance, atol=tolerance)


@each_backend
def test_a01_a_row_whose_every_key_is_blocked(backend: str) -> None:
    query, key = (zeros(length, 2).requires_grad_() for length in (2, 3))
    value = torch.tensor([[[[3.0, 0], [6, 0], [9, 0]]]]).requires_grad_()
    allowed = bools("110", "000")
    output = serve(backend, query, key, value, mask=allowed)
    if output is None:
        return
    close(output, [[[[4.5, 0], [0, 0]]]], 0)
    output.sum().backward()
    close(value.grad, [[[[0.5, 0.5], [0.5, 0.5], [0, 0]]]], 0)
    for leaf in (query, key):
        assert leaf.grad is not None
        assert torch.count_nonzero(leaf.grad) == 0
    close(weights(query, key, mask=allowed), [[[[0.5, 0.5, 0], [0, 0, 0]]]], 0)


@each_backend
@pytest.mark.parametrize("with_weights", [False, True])
def test_a02_one_dead_row_poisons_nothing(backend: str, with_weights: bool) -> None:
    """Plain projections around the operation, as in MHA(4, 2); the dead row is not part of the loss."""
    torch.manual_seed(1)
    x = torch.randn(1, 3, 4)
    matrices = [torch.randn(4, 4).requires_grad_() for _ in range(4)]
    blocked = ~bools("100", "110", "000")

    def heads(t: Tensor) -> Tensor:
        return t.view(1, 3, 2, 2).transpose(1, 2)

    query, key, value = (heads(x @ matrix) for matrix in matrices[:3])
    output = serve(backend, query, key, value, mask=Blocked(blocked))
    if output is None:
        return
    if with_weights:
        output = weights(query, key, mask=Blocked(blocked)) @ value
    final = output.transpose(1, 2).reshape(1, 3, 4) @ matrices[3]
    assert final.isfinite().all()
    gradients = torch.autograd.grad(final[:, :2].sum(), matrices, retain_graph=True)
    assert all(gradient.isfinite().all() for gradient in gradients)
    short = [heads_of[:, :, :2] for heads_of in (query, key, value)]
    alone = attend(*short, mask=Causal()).transpose(1, 2).reshape(1, 2, 4) @ matrices[3]
    for one, two in zip(gradients, torch.autograd.grad(alone.sum(), matrices), strict=True):
        close(one, two)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@each_backend
def test_a05_two_masks_do_not_overflow(backend: str, dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(1, 2, 4, 8, dtype=dtype) for _ in range(3))
    output = serve(backend, query, key, value, mask=Causal() & Padding(bools("0011")))
    if output is None:
        return
    assert output.isfinite().all()
    assert torch.count_nonzero(output[:, :, :2]) == 0
    real = [tensor[:, :, 2:] for tensor in (query, key, value)]
    budget = error_budget(*real, allowed=bools("10", "11"))["output"]
    assert budget.problem("output", output[:, :, 2:]) is None


@pytest.mark.parametrize("mask", [None, -1e9, "cast"])
def test_a06_minus_1e9_in_half_precision(mask: Any) -> None:
    scores = torch.tensor([1.0, 2, 3]).half()
    query, key = torch.ones(1, 1, 1, 1).half(), scores.view(1, 1, 3, 1)
    if mask is None:
        found = weights(query, key, scale=1.0, mask=bools("110"))
    else:
        bias = torch.tensor([[0.0, 0, -1e9]])
        found = weights(query, key, scale=1.0, bias=bias.half() if mask == "cast" else bias)
    close(found, [[[[0.2689, 0.7311, 0.0]]]], 2e-3)
    assert found[0, 0, 0, 2] == 0


@pytest.mark.parametrize("scores", [(0.0, 8.0), (-2e4, 0.0)])
@each_complete
def test_a07_a_masked_key_gets_exactly_nothing(backend: str, scores: tuple[float, float]) -> None:
    query, key = torch.ones(1, 1, 1, 1), column(*scores)
    close(attend(query, key, identity(2), scale=1.0, mask=bools("10"), backend=backend), [[[[1.0, 0.0]]]], 0)
    close(weights(query, key, scale=1.0, mask=bools("10")), [[[[1.0, 0.0]]]], 0)


@pytest.mark.parametrize("size", [40.0, 200.0])
@each_backend
def test_a08_scores_that_overflow_fp16_before_scaling(backend: str, size: float) -> None:
    query, key = (torch.full((1, 1, length, 64), size).half() for length in (1, 2))
    output = serve(backend, query, key, column(1, 3).half())
    if output is not None:
        close(output, 2.0, 1e-3)
        close(weights(query, key), 0.5, 1e-3)


@each_backend
def test_a10_a_whole_row_far_below_a_finite_sentinel(backend: str) -> None:
    output = serve(backend, torch.full((1, 1, 1, 1), 448.0), column(-547, -547.5), column(1, 2))
    close(output, 1.0, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("keys", [3, 7, 1000])
def test_a11_equal_logits_give_equal_weights(keys: int, dtype: torch.dtype) -> None:
    query, key = torch.zeros(1, 1, 2, 4, dtype=dtype), torch.randn(1, 1, keys, 4).to(dtype)
    found = weights(query, key)
    close(found, 1 / keys)
    assert ((found.sum(-1) - 1).abs() < 1e-6).all()
    _, seen = observe(query, key, torch.zeros(1, 1, keys, 1, dtype=dtype), [Entropy()])
    close(seen.entropy, math.log(keys))


def test_a12_polarity_is_named_and_both_are_there() -> None:
    """True = may attend for a tensor and for Allowed, as in SDPA; Blocked takes nn.MultiheadAttention's masks."""
    x = torch.eye(2).view(1, 1, 2, 2)
    mask = bools("10", "10")
    for same in (mask, Allowed(mask)):
        close(attend(x, x, x, mask=same), [[[[1.0, 0], [1, 0]]]], 0)
    for opposite in (Blocked(mask), ~Allowed(mask)):
        close(attend(x, x, x, mask=opposite), [[[[0.0, 1], [0, 1]]]], 0)
    ours = attend(x, x, x, mask=mask)
    close(ours, torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask), 0)


@each_backend
def test_a14_a_padding_mask_is_never_taken_for_queries_by_keys(backend: str) -> None:
    query, key, value = (torch.randn(4, 3, 4, 8) for _ in range(3))
    keep = torch.ones(4, 4, dtype=torch.bool)
    keep[0, 2:] = False
    with pytest.raises(ValueError, match=r"Padding\(keep\)"):
        attend(query, key, value, mask=keep, backend=backend)
    padded = serve(backend, query, key, value, mask=Padding(keep))
    if padded is None:
        return
    for shaped in (keep[:, None, None, :], keep[:, None, None, :].expand(4, 1, 4, 4), keep[:, None, :].expand(4, 4, 4)):
        close(serve(backend, query, key, value, mask=shaped), padded)
    cut = attend(query[:1], key[:1, :, :2], value[:1, :, :2])
    close(padded[:1], cut)


@pytest.mark.parametrize(("q_len", "rows"), [(2, [[0.25] * 4 + [0], [0.2] * 5]), (1, [[0.2] * 5])])
@each_backend
def test_a16_causal_with_fewer_queries_than_keys(backend: str, q_len: int, rows: Any) -> None:
    close(serve(backend, zeros(q_len), zeros(5), identity(5), mask=Causal()), rows, 1e-7)


@pytest.mark.parametrize("chunks", [[1] * 6, [2, 3, 1]])
@each_backend
def test_a18_decoding_equals_the_full_pass(backend: str, chunks: list[int]) -> None:
    query, key, value = (torch.randn(1, 2, 6, 4).double() for _ in range(3))
    full, at, pieces = serve(backend, query, key, value, mask=Causal()), 0, []
    for size in chunks:
        at += size
        part = serve(backend, query[:, :, at - size : at], key[:, :, :at], value[:, :, :at], mask=Causal())
        pieces += [] if part is None else [part]
    if full is not None and len(pieces) == len(chunks):
        close(torch.cat(pieces, 2), full, 1e-12)


@each_backend
def test_a19_mask_and_causal_together(backend: str) -> None:
    mask = Allowed(bools("111", "011", "101")) & Causal()
    output = serve(backend, zeros(3), zeros(3), identity(3), mask=mask)
    close(output, [[1, 0, 0], [0, 1, 0], [0.5, 0, 0.5]], 0)


@pytest.mark.parametrize(("size", "counts"), [(3, [1, 2, 3, 3, 3, 3]), (1, [1] * 6), (6, [1, 2, 3, 4, 5, 6])])
@each_backend
def test_a20_a_window_counts_the_token_itself(backend: str, size: int, counts: list[int]) -> None:
    output = serve(backend, zeros(6), zeros(6), identity(6), mask=Causal() & SlidingWindow(size))
    if output is not None:
        assert (output > 0).sum(-1).flatten().tolist() == counts
        assert output[0, 0, 5].nonzero().flatten().tolist() == list(range(6 - counts[5], 6))


@each_backend
def test_a22_packed_documents_do_not_see_each_other(backend: str) -> None:
    first = [torch.randn(1, 2, 5, 8) for _ in range(3)]
    second = [torch.cat([torch.randn(1, 2, 3, 8), tensor[:, :, 3:]], 2) for tensor in first]
    mask = Causal() & Documents(torch.tensor([[0, 0, 0, 1, 1]]))
    one, two = serve(backend, *first, mask=mask), serve(backend, *second, mask=mask)
    if one is not None and two is not None:
        assert torch.equal(one[:, :, 3:], two[:, :, 3:])


@each_backend
def test_a23_left_padding_changes_nothing_for_real_tokens(backend: str) -> None:
    query, key, value = (torch.randn(2, 2, 4, 8) for _ in range(3))
    keep = bools("0011", "1111")
    output = serve(backend, query, key, value, mask=Causal() & Padding(keep))
    if output is None:
        return
    alone = attend(query[:1, :, 2:], key[:1, :, 2:], value[:1, :, 2:], mask=Causal())
    close(output[:1, :, 2:], alone, 1e-5)
    assert torch.count_nonzero(output[0, :, :2]) == 0
    _, seen = observe(query, key, value, [Entropy()], mask=Causal() & Padding(keep))
    assert torch.count_nonzero(seen.entropy[0, :, :2]) == 0, "reported as no attention, not as data"


@each_complete
def test_a25_a_soft_cap_survives_enormous_scores(backend: str) -> None:
    """Scores 5000, −10000 and 1 under a cap of 50, read back through the ratio of two weights."""
    scores = torch.tensor([5000.0, -10000.0, 1.0], dtype=torch.float64)
    query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key = torch.cat([column(*scores.tolist(), dtype=torch.float64), column(0.0, dtype=torch.float64)], 2)
    output = attend(query, key, torch.zeros(1, 1, 4, 1).double(), scale=1.0, logit_softcap=50.0, backend=backend)
    assert output.isfinite().all()
    found = weights(query, key, scale=1.0, logit_softcap=50.0)[0, 0, 0]
    close((found[:3] / found[3]).log(), [50.0, -50.0, 0.99987], 1e-5)


@each_complete
def test_a25_the_gradient_of_a_soft_cap(backend: str) -> None:
    """d capped / d score is [0, 0, 0.9996]; each score is compared with a reference key of score 0."""
    for score, slope in ((5000.0, 0.0), (-10000.0, 0.0), (1.0, 0.9996)):
        key = column(score, 0.0, dtype=torch.float64).requires_grad_()
        query = torch.ones(1, 1, 1, 1, dtype=torch.float64)
        output = attend(query, key, column(1, 0, dtype=torch.float64), scale=1.0, logit_softcap=50.0, backend=backend)
        output.sum().backward()
        weight = output.item()
        assert key.grad is not None
        close(key.grad[0, 0, 0, 0], weight * (1 - weight) * slope, 1e-5)


@pytest.mark.parametrize("cap", [0.0, -1.0, NAN])
@pytest.mark.usefixtures("unchecked")
def test_a25_an_illegal_cap_is_refused(cap: float) -> None:
    with pytest.raises(ValueError, match="logit_softcap"):
        attend(zeros(1), zeros(1), zeros(1), logit_softcap=cap)


@each_backend
def test_a32_query_head_h_reads_kv_head_h_over_group(backend: str) -> None:
    value = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
    output = serve(backend, torch.zeros(1, 4, 1, 4), torch.zeros(1, 2, 1, 4), value)
    if output is not None:
        assert output.flatten().tolist() == [10, 10, 20, 20]


@each_backend
def test_a32_the_gradient_of_a_kv_head_is_the_sum_over_its_group(backend: str) -> None:
    query = torch.randn(1, 4, 3, 8)
    key, value = (torch.randn(1, 2, 5, 8, requires_grad=True) for _ in range(2))
    output = serve(backend, query, key, value)
    if output is None:
        return
    repeated = [t.detach().repeat_interleave(2, 1).requires_grad_() for t in (key, value)]
    upstream = torch.randn_like(output)
    full = torch.autograd.grad(attend(query, *repeated, backend="reference"), repeated, upstream)
    for one, two in zip(torch.autograd.grad(output, [key, value], upstream), full, strict=True):
        close(one, two.view(1, 2, 2, 5, 8).sum(2))


@each_complete
def test_a33_a_sink_joins_the_denominator_only(backend: str) -> None:
    sinks = torch.zeros(1, requires_grad=True)
    output, seen = observe(zeros(1), zeros(3), column(3, 6, 9), [SinkShare()], sinks=sinks, backend=backend)
    close(output, 4.5)
    close(seen.sink_share, 0.25)
    close(weights(zeros(1), zeros(3), sinks=sinks), 0.25)
    (gradient,) = torch.autograd.grad(output.sum(), sinks)
    close(gradient, [-0.25 * 4.5])
    empty, dead = observe(
        zeros(1), zeros(3), column(3, 6, 9), [SinkShare()], sinks=sinks, mask=Prefix(0), backend=backend
    )
    assert torch.count_nonzero(empty) == 0
    close(dead.sink_share, 1.0, 0)
    assert torch.count_nonzero(weights(zeros(1), zeros(3), sinks=sinks, mask=Prefix(0))) == 0


@each_complete
def test_a33_the_row_sums_of_gpt_oss(backend: str) -> None:
    """Window 4, sinks 0, equal logits: a row of n keys sums to n / (n + 1)."""
    mask = Causal() & SlidingWindow(4)
    output = attend(zeros(6), zeros(6), torch.ones(1, 1, 6, 1), mask=mask, sinks=torch.zeros(1), backend=backend)
    close(output.flatten(), [n / (n + 1) for n in (1, 2, 3, 4, 4, 4)])


@pytest.mark.parametrize("shape", [(1, 1, 2, 0, 4), (1, 1, 0, 3, 4), (0, 2, 3, 3, 4), (1, 1, 2, 2, 0), (0, 1, 0, 2, 0)])
@each_backend
def test_a34_nothing_to_attend_to(backend: str, shape: tuple[int, ...]) -> None:
    batch, heads, q_len, kv_len, dim = shape
    query = torch.zeros(batch, heads, q_len, dim, requires_grad=True)
    key, value = (torch.zeros(batch, heads, kv_len, dim, requires_grad=True) for _ in range(2))
    for options in ({}, {"mask": Causal()}, {"mask": torch.ones(1, 1, q_len, kv_len, dtype=torch.bool)}):
        output = serve(backend, query, key, value, **options)
        if output is None:
            continue
        assert output.shape == (batch, heads, q_len, dim)
        assert torch.count_nonzero(output) == 0
        for leaf, gradient in zip(
            (query, key, value), torch.autograd.grad(output.sum(), (query, key, value)), strict=True
        ):
            assert gradient.shape == leaf.shape
    assert weights(query, key).shape == (batch, heads, q_len, kv_len)
    _, seen = observe(query, key, value, [Entropy(), KeyMass()])
    assert seen.entropy.shape == (batch, heads, q_len)
    assert seen.key_mass.shape == (batch, heads, kv_len)


def test_a35_one_key_has_weight_exactly_one() -> None:
    query, key, value = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 1, 4), torch.randn(1, 1, 1, 4)
    _, seen = observe(query, key, value, [KeyMass(), Entropy()], dropout_p=0.2)
    assert seen.key_mass.item() == 3
    assert torch.count_nonzero(seen.entropy) == 0
    assert torch.equal(weights(query, key), torch.ones(1, 1, 3, 1))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@each_backend
def test_a36_strides_do_not_matter(backend: str, layout: str) -> None:
    plain = [torch.randn(2, 2, 5, 8) for _ in range(3)]
    mask = torch.rand(2, 1, 5, 5) < 0.7
    strided = [LAYOUTS[layout](tensor).requires_grad_() for tensor in plain]
    plain = [tensor.requires_grad_() for tensor in plain]
    expected = attend(*plain, mask=mask, backend="reference")
    upstream = torch.randn_like(expected)
    for shaped in (mask, mask.mT.contiguous().mT, mask.expand(2, 2, 5, 5), torch.cat([mask, mask], -1)[..., :5]):
        output = serve(backend, *strided, mask=shaped)
        if output is None:
            continue
        close(output, expected, 2e-6)
        found = torch.autograd.grad(output, strided, LAYOUTS["tokens first"](upstream), retain_graph=True)
        wanted = torch.autograd.grad(expected, plain, upstream, retain_graph=True)
        for one, two in zip(found, wanted, strict=True):
            close(one, two, 4e-6)


@each_backend
def test_a36_one_kv_head_expanded_to_many(backend: str) -> None:
    query = torch.randn(2, 4, 5, 8)
    key, value = (torch.randn(2, 1, 5, 8) for _ in range(2))
    expanded = serve(backend, query, key.expand(2, 4, 5, 8), value.expand(2, 4, 5, 8))
    close(expanded, attend(query, key, value, backend="reference"))


@pytest.mark.parametrize("which", ["query", "key", "value", "bias"])
@each_backend
def test_a37_only_one_input_needs_gradients(backend: str, which: str) -> None:
    tensors = {name: torch.randn(1, 2, 3, 3) for name in ("query", "key", "value", "bias")}
    tensors[which].requires_grad_()
    output = serve(backend, **tensors)
    if output is None:
        return
    output.sum().backward()
    for name, tensor in tensors.items():
        assert (tensor.grad is None) == (name != which)
    assert tensors[which].grad is not None
    assert tensors[which].grad.shape == (1, 2, 3, 3)


@pytest.mark.parametrize("mask", [None, Causal()])
@each_backend
def test_a38_double_backward(backend: str, mask: Any) -> None:
    query, key, value = (torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def second(backend: str) -> Tensor | None:
        output = serve(backend, query, key, value, mask=mask)
        if output is None:
            return None
        (first,) = torch.autograd.grad(output.pow(2).sum(), query, create_graph=True)
        return torch.autograd.grad(first.sum(), key)[0]

    found, exact = second(backend), second("reference")
    assert exact is not None
    close(found, exact, 1e-12)


def test_a40_autocast_keeps_row_sums() -> None:
    query, key, value = (torch.randn(1, 2, 300, 8) for _ in range(3))
    bias = torch.randn(300, 300)
    with torch.autocast("cpu", torch.bfloat16):
        found, output = weights(query, key, bias=bias), attend(query, key, value, bias=bias)
    assert output.dtype == torch.bfloat16
    close(found.sum(-1), 1.0, 1e-6)


def test_a42_eval_is_a_matter_of_dropout_p() -> None:
    """The operation has no mode: what a module passes in eval is 0, and 0 is exact and repeatable."""
    tensors = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    assert torch.equal(attend(*tensors, dropout_p=0.0), attend(*tensors, dropout_p=0.0))


@each_complete
def test_a43_dropout_extremes_and_seeds(backend: str) -> None:
    tensors = [torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3)]
    assert torch.count_nonzero(attend(*tensors, dropout_p=1.0, backend=backend)) == 0
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        output = attend(*tensors, dropout_p=0.3, backend=backend)
        results.append([output, *torch.autograd.grad(output.sum(), tensors)])
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"bias": torch.linspace(0, 1, 9).view(3, 3)}, {"mask": torch.ones(3, 3, dtype=torch.bool)}]
)
@each_backend
def test_a44_a_nan_query_stays_visible(backend: str, options: dict[str, Any]) -> None:
    query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
    query[0, 0, 1, 2] = NAN
    output = serve(backend, query, key, value, **options)
    if output is not None:
        assert output[0, 0, 1].isnan().all()
        assert output[0, 0, [0, 2]].isfinite().all()


@each_backend
def test_a44_a_nan_in_the_last_key_touches_only_the_last_row(backend: str) -> None:
    query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
    key[0, 0, 2, 1] = NAN
    output = serve(backend, query, key, value, mask=Causal())
    if output is not None:
        assert output[0, 0, 2].isnan().all()
        assert output[0, 0, :2].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64, torch.float16])
def test_a45_masks_of_other_dtypes_get_a_clear_error(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"mask.*bool"):
        attend(zeros(2), zeros(2), zeros(2), mask=torch.ones(2, 2, dtype=dtype))


@each_backend
def test_a46_plus_infinity_in_a_bias_is_not_a_silent_one_hot(backend: str) -> None:
    output = serve(backend, zeros(1), zeros(2), column(1, 2), bias=torch.tensor([[INF, 0.0]]))
    if output is not None:
        assert output.isnan().all()
    assert weights(zeros(1), zeros(2), bias=torch.tensor([[INF, 0.0]])).isnan().all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": (Causal() | Prefix(2)) & Padding(bools("111101", "011111"))},
        {"bias": torch.randn(2, 3, 6, 6), "logit_softcap": 3.0},
        {"sinks": torch.randn(3), "mask": SlidingWindow(3)},
        {"mask": Documents(torch.tensor([[0, 0, 1, 1, 1, -1]])), "scale": 0.2},
    ],
)
@each_backend
def test_a48_the_weights_are_those_that_made_the_output(backend: str, options: dict[str, Any]) -> None:
    query, key, value = (torch.randn(2, 3, 6, 8) for _ in range(3))
    output = serve(backend, query, key, value, **options)
    close(output, weights(query, key, **options) @ value)


@each_backend
def test_a49_a_very_long_row_with_a_mask(backend: str) -> None:
    torch.manual_seed(3)
    query, key, value = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 131072, 8), torch.randn(1, 1, 131072, 8)
    allowed = (torch.arange(131072) // 1024 == 100).view(1, 1, 1, -1)
    output = serve(backend, query, key, value, mask=allowed)
    wide = [t.double() for t in (query, key, value)]
    part = slice(100 * 1024, 101 * 1024)
    exact = torch.softmax(wide[0] @ wide[1][:, :, part].mT * 8**-0.5, -1) @ wide[2][:, :, part]
    close(output, exact, 1e-4)
