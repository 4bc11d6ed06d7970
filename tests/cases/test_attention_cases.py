"""The table of attention bugs and confusions, sections A to E, G and H: each row that concerns the operation itself.

Ids are those of the table. Rows about modules (D4, E1, E5, E6, F, G1, G3, G4, G6) have their tests beside the modules.
Rows that test_group_a.py has under another id are not repeated: A3, A5, A8 in tests/ops/test_arguments.py; A7, A9 in
tests/ops/test_masks.py; A6, H6 in tests/ops/test_autocast.py; D7, H7 in tests/ops/test_compile.py; H2 to H5 in
tests/ops/test_gradients.py; H1 in tests/ops/test_nonfinite.py.
"""

from __future__ import annotations

import gc
import warnings
import weakref
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
from regard.ops.probes import Entropy, KeyMass
from tests.cases.test_group_a import bools, close, column, identity, zeros
from tests.ops.backends import COMPLETE, each_backend, serve

INF = float("inf")
HALVES = (torch.float16, torch.bfloat16)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, *HALVES])


# A. polarity and types


@each_backend
def test_a1_true_means_may_attend(backend: str) -> None:
    for mask in (bools("110"), Allowed(bools("110")), Padding(bools("110"))):
        close(serve(backend, zeros(1), zeros(3), column(10, 20, 60), mask=mask), 15.0, 0)


@each_backend
def test_a2_blocked_means_must_not(backend: str) -> None:
    close(serve(backend, zeros(1), zeros(3), column(10, 20, 60), mask=Blocked(bools("110"))), 60.0, 0)


def test_a3_a_bias_of_zeros_and_ones_is_never_silently_a_mask() -> None:
    with pytest.raises(ValueError, match="mask"):
        attend(zeros(1), zeros(3), column(10, 20, 60), bias=torch.tensor([[1.0, 1, 0]]))
    learned = torch.tensor([[1.0, 1, 0]], requires_grad=True)
    close(attend(zeros(1), zeros(3), column(10, 20, 60), bias=learned), 21.9913, 1e-4)


@each_backend
def test_a4_a_padding_mask_and_a_bias_together(backend: str) -> None:
    query, key, value = (torch.randn(2, 2, 4, 8) for _ in range(3))
    bias = torch.randn(2, 2, 4, 4)
    keep = bools("1110", "1011")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = serve(backend, query, key, value, mask=Padding(keep), bias=bias)
    close(output, attend(query, key, value, bias=bias.masked_fill(~keep[:, None, None], -INF), backend="reference"))


@each_backend
def test_a10_sliding_window_three_causal(backend: str) -> None:
    output = serve(backend, zeros(6), zeros(6), column(*range(6)), mask=Causal() & SlidingWindow(3))
    close(output, column(0, 0.5, 1, 2, 3, 4))


@each_backend
def test_a11_prefix_language_model(backend: str) -> None:
    close(serve(backend, zeros(4), zeros(4), column(1, 2, 3, 4), mask=Causal() | Prefix(2)), column(1.5, 1.5, 2, 2.5))


@each_backend
def test_a12_packed_documents(backend: str) -> None:
    mask = Causal() & Documents(torch.tensor([[0, 0, 1, 1, 1]]))
    close(serve(backend, zeros(5), zeros(5), column(1, 3, 10, 20, 30), mask=mask), column(1, 2, 10, 15, 20))


@each_backend
def test_a13_a_float_bias_without_gradients(backend: str) -> None:
    tensors = [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]
    bias = torch.randn(4, 4)
    trained = serve(backend, *tensors, bias=bias)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output = serve(backend, *tensors, bias=bias)
        if output is not None and trained is not None:
            assert torch.equal(output, trained.detach())


# B. empty rows


@each_dtype
@each_backend
def test_b1_a_row_without_keys(backend: str, dtype: torch.dtype) -> None:
    mask = bools("111", "000", "111")
    output = serve(backend, zeros(3).to(dtype), zeros(3).to(dtype), column(10, 20, 60).to(dtype), mask=mask)
    if output is None:
        return
    close(output, column(30, 0, 30), 1e-2 if dtype in HALVES else 1e-6)
    assert output[0, 0, 1, 0] == 0
    assert torch.count_nonzero(weights(zeros(3), zeros(3), mask=mask)[0, 0, 1]) == 0


@each_backend
@pytest.mark.parametrize("through_weights", [False, True])
def test_b2_a_batch_row_that_is_all_padding(backend: str, through_weights: bool) -> None:
    """Projections around the operation: output is the bias of the last, and gradients are those of a batch of one."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]

    def model(x: Tensor, keep: Tensor) -> Tensor | None:
        heads = [layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in layers[:3]]
        if through_weights:
            context = weights(*heads[:2], mask=Padding(keep)) @ heads[2]
        else:
            served = serve(backend, *heads, mask=Padding(keep))
            if served is None:
                return None
            context = served
        output: Tensor = layers[3](context.transpose(1, 2).flatten(2))
        return output

    output = model(x, bools("11100", "00000"))
    alone = model(x[:1], bools("11100"))
    if output is None or alone is None:
        return
    assert torch.equal(output[1], layers[3].bias.expand(5, 8))
    found = torch.autograd.grad(output[0].sum(), parameters)
    for one, two in zip(found, torch.autograd.grad(alone.sum(), parameters), strict=True):
        close(one, two, 1e-5)


@each_backend
def test_b3_a_band_with_right_padding(backend: str) -> None:
    tensors = [torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3)]
    output = serve(backend, *tensors, mask=Causal() & SlidingWindow(2) & Padding(bools("1100")))
    if output is None:
        return
    assert torch.count_nonzero(output[:, :, 3]) == 0, "the band of query 3 is all padding"
    for gradient in torch.autograd.grad(output[:, :, :2].sum(), tensors):
        assert gradient.isfinite().all()


@each_backend
def test_b4_a_mask_that_blocks_one_head(backend: str) -> None:
    tensors = [torch.randn(1, 3, 4, 8) for _ in range(3)]
    mask = torch.ones(1, 3, 1, 4, dtype=torch.bool)
    mask[:, 1] = False
    output = serve(backend, *tensors, mask=mask)
    if output is None:
        return
    assert torch.count_nonzero(output[:, 1]) == 0
    others = torch.tensor([0, 2])
    close(output[:, others], attend(*(tensor[:, others] for tensor in tensors)))
    close(output, weights(*tensors[:2], mask=mask) @ tensors[2])


@each_backend
def test_b5_cross_attention_to_an_empty_source(backend: str) -> None:
    tensors = [torch.randn(2, 2, length, 8, requires_grad=True) for length in (3, 5, 5)]
    output = serve(backend, *tensors, mask=Padding(bools("11111", "00000")))
    if output is None:
        return
    assert torch.count_nonzero(output[1]) == 0
    for gradient in torch.autograd.grad(output.square().sum(), tensors):
        assert gradient.isfinite().all()
        assert torch.count_nonzero(gradient[1]) == 0


@each_backend
def test_b6_left_padding_with_causal(backend: str) -> None:
    mask = Causal() & Padding(bools("0011"))
    rows = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0.5, 0.5]]
    close(serve(backend, zeros(4), zeros(4), identity(4), mask=mask), rows, 0)
    close(weights(zeros(4), zeros(4), mask=mask), rows, 0)


@each_backend
def test_b7_more_queries_than_keys(backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = serve(backend, zeros(5), zeros(2), column(2, 4), mask=Causal())
    close(output, column(0, 0, 0, 2, 3), 0)


@each_backend
def test_b8_no_keys_no_batch_no_queries(backend: str) -> None:
    none = serve(backend, zeros(3), zeros(0), torch.zeros(1, 1, 0, 2))
    if none is not None:
        assert none.shape == (1, 1, 3, 2)
        assert torch.count_nonzero(none) == 0
    empty = serve(backend, torch.zeros(0, 1, 3, 4), torch.zeros(0, 1, 3, 4), torch.zeros(0, 1, 3, 2))
    assert empty is None or empty.shape == (0, 1, 3, 2)
    short = serve(backend, zeros(0), zeros(3), torch.zeros(1, 1, 3, 2), mask=Causal())
    assert short is None or short.shape == (1, 1, 0, 2)


# C. large negative constants


@each_backend
def test_c1_masks_in_fp16(backend: str) -> None:
    tensors = [torch.randn(2, 2, 4, 8).half() for _ in range(3)]
    for mask in (Causal(), Padding(bools("1100", "0111")), bools("1000", "1100", "1110", "0000"), SlidingWindow(2)):
        output = serve(backend, *tensors, mask=mask)
        assert output is None or output.isfinite().all()


@pytest.mark.parametrize("dtype", HALVES)
@each_backend
def test_c2_causal_and_padding_block_the_same_cell(backend: str, dtype: torch.dtype) -> None:
    mask = Causal() & Padding(bools("1100"))
    rows = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0]]
    close(serve(backend, zeros(4).to(dtype), zeros(4).to(dtype), identity(4).to(dtype), mask=mask), rows, 0)


@each_dtype
@each_backend
def test_c3_a_row_of_lowest_numbers_is_blocked(backend: str, dtype: torch.dtype) -> None:
    lowest = torch.finfo(dtype).min
    bias = torch.tensor([[0, 0, lowest], [lowest] * 3, [-INF, lowest, 0]], dtype=dtype)
    output = serve(backend, zeros(3).to(dtype), zeros(3).to(dtype), identity(3).to(dtype), bias=bias)
    close(output, [[0.5, 0.5, 0], [0, 0, 0], [0, 0, 1]], 0)


@each_backend
def test_c3_the_border_of_what_blocks(backend: str) -> None:
    bias = torch.tensor([[-3.38e38, -3.37e38], [-1e9, -1e9]])
    output = serve(backend, zeros(2), zeros(2), identity(2), bias=bias)
    close(output, [[0.0, 1.0], [0.5, 0.5]], 0)
    fp16_lowest = torch.tensor([[-65504.0, 0.0], [-65504.0, -65504.0]])
    close(serve(backend, zeros(2), zeros(2), identity(2), bias=fp16_lowest), [[0.0, 1.0], [0.5, 0.5]], 0)
    close(serve(backend, zeros(2), zeros(2), identity(2), bias=fp16_lowest.half()), [[0.0, 1.0], [0.0, 0.0]], 0)


@each_dtype
def test_c4_masked_weights_are_exactly_zero(dtype: torch.dtype) -> None:
    query, key = (10 * torch.randn(2, 2, 7, 8).to(dtype) for _ in range(2))
    found = weights(query, key, mask=Causal())
    above = torch.ones(7, 7).triu(1).bool()
    assert torch.count_nonzero(found[..., above]) == 0


@each_backend
def test_c5_large_scores_in_fp16(backend: str) -> None:
    torch.manual_seed(0)
    query, key = ((60 * torch.randn(1, 1, 5, 64)).half() for _ in range(2))
    output = serve(backend, query, key, torch.randn(1, 1, 5, 64).half(), mask=Causal())
    assert output is None or output.isfinite().all()
    assert weights(query, key).isfinite().all()


# D. alignment and combination


@each_backend
def test_d1_causal_is_aligned_at_the_end(backend: str) -> None:
    values = column(0, 1, 2, 3, 4)
    close(serve(backend, zeros(2), zeros(5), values, mask=Causal()), column(1.5, 2.0))
    close(serve(backend, zeros(2), zeros(5), values, mask=Causal(), q_start="start"), column(0, 0.5))


@each_backend
def test_d2_cached_decoding(backend: str) -> None:
    close(serve(backend, zeros(1), zeros(5), column(0, 1, 2, 3, 4), mask=Causal()), 2.0)


@each_backend
def test_d3_chunked_prefill(backend: str) -> None:
    values = column(*range(8))
    close(serve(backend, zeros(2), zeros(8), values, mask=Causal(), q_start=3), column(1.5, 2.0))
    starts = torch.tensor([3])
    close(serve(backend, zeros(2), zeros(8), values, mask=Causal(), q_start=starts), column(1.5, 2.0))


@each_backend
def test_d5_mask_and_causal_together(backend: str) -> None:
    mask = Causal() & Allowed(bools("111", "011", "101"))
    close(serve(backend, zeros(3), zeros(3), column(10, 20, 60), mask=mask), column(10, 20, 35))


@each_backend
def test_d6_causal_and_a_mask_that_is_not(backend: str) -> None:
    other = torch.rand(2, 2, 5, 5) < 0.6
    query, key, value = (torch.randn(2, 2, 5, 8) for _ in range(3))
    both = other & torch.ones(5, 5).tril().bool()
    mask = Causal() & Allowed(other)
    close(serve(backend, query, key, value, mask=mask), attend(query, key, value, mask=both, backend="reference"))
    close(weights(query, key, mask=mask), weights(query, key, mask=both), 0)


# E. weights

MASKS: dict[str, Any] = {
    "none": None,
    "causal": Causal(),
    "padding": Padding(bools("11100", "00000")),
    "both": Causal() & Padding(bools("00111", "11110")),
    "window": SlidingWindow(2),
    "prefix": Causal() | Prefix(2),
    "documents": Documents(torch.tensor([[0, 0, 1, -1, 1]])),
    "tensor": torch.ones(5, 5).tril(-1).bool(),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@each_backend
def test_e2_weights_give_the_same_output_and_gradients(backend: str, mask: Any) -> None:
    tensors = [torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3)]
    output = serve(backend, *tensors, mask=mask)
    if output is None:
        return
    through = weights(*tensors[:2], mask=mask) @ tensors[2]
    upstream = torch.randn_like(output)
    close(output, through)
    for one, two in zip(
        torch.autograd.grad(output, tensors, upstream), torch.autograd.grad(through, tensors, upstream), strict=True
    ):
        close(one, two, 2e-6)


def test_e3_every_head_has_its_own_map() -> None:
    found = weights(torch.randn(1, 8, 4, 8), torch.randn(1, 8, 4, 8))
    assert found.shape == (1, 8, 4, 4)
    assert len({tuple(head.flatten().tolist()) for head in found[0]}) == 8
    grouped = weights(torch.randn(1, 8, 4, 8), torch.randn(1, 2, 4, 8))
    assert len({tuple(head.flatten().tolist()) for head in grouped[0]}) == 8


def test_e4_probes_under_dropout_are_of_rows_that_sum_to_one() -> None:
    tensors = [torch.randn(1, 2, 6, 8) for _ in range(3)]
    _, seen = observe(*tensors, [KeyMass()], dropout_p=0.5)
    close(seen.key_mass.sum(-1), 6.0)


@pytest.mark.parametrize("backend", COMPLETE)
def test_e7_nothing_keeps_the_graph_or_the_inputs_alive(backend: str) -> None:
    query, key, value = (torch.randn(1, 1, 4, 8, requires_grad=True) for _ in range(3))
    mask = Causal() & Padding(torch.ones(1, 4, dtype=torch.bool))
    output, seen = observe(query, key, value, [Entropy(), KeyMass()], mask=mask, backend=backend)
    assert not seen.entropy.requires_grad
    references = [weakref.ref(tensor) for tensor in (query, key, value, output)]
    output.sum().backward()
    del query, key, value, output
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_e7_many_calls_remember_nothing() -> None:
    from regard.ops import _lower, _tiles

    tensors = [torch.randn(1, 1, 4, 8) for _ in range(3)]
    for _ in range(100):
        attend(*tensors, mask=Padding(torch.ones(1, 4, dtype=torch.bool)), backend="tiled")
    gc.collect()
    assert len(_lower._lowered) < 50
    assert len(_tiles._plans) < 50


# G. parity, layout, dropout


@each_backend
def test_g1_batch_rows_are_separate(backend: str) -> None:
    tensors = [torch.randn(2, 2, 4, 8) for _ in range(3)]
    before = serve(backend, *tensors)
    for tensor in tensors:
        tensor[1] += 1
    after = serve(backend, *tensors)
    if before is not None and after is not None:
        assert torch.equal(before[0], after[0])


@each_backend
def test_g2_no_dropout_unless_asked(backend: str) -> None:
    tensors = [torch.randn(1, 2, 4, 8) for _ in range(3)]
    first, second = serve(backend, *tensors), serve(backend, *tensors)
    if first is not None and second is not None:
        assert torch.equal(first, second)


@each_backend
def test_g3_g4_padding_keeps_its_shape_in_every_mode(backend: str) -> None:
    tensors = [torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3)]
    mask = Padding(bools("11100", "11000"))
    trained = serve(backend, *tensors, mask=mask)
    with torch.no_grad():
        served = serve(backend, *tensors, mask=mask)
    if trained is not None and served is not None:
        assert served.shape == (2, 2, 5, 8)
        close(served, trained.detach())


@each_backend
def test_g5_a_mask_per_batch_row_and_head(backend: str) -> None:
    tensors = [torch.randn(2, 3, 4, 8) for _ in range(3)]
    flat = torch.rand(6, 4, 4) < 0.7  # the (batch · heads, queries, keys) of nn.MultiheadAttention, unfolded
    output = serve(backend, *tensors, mask=flat.view(2, 3, 4, 4))
    if output is None:
        return
    for b in range(2):
        for h in range(3):
            alone = attend(*(t[b : b + 1, h : h + 1] for t in tensors), mask=flat[3 * b + h])
            close(output[b, h], alone[0, 0])


@each_backend
def test_g6_no_warnings(backend: str) -> None:
    tensors = [torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mask in MASKS.values():
            output = serve(backend, *tensors, mask=mask)
            if output is not None:
                output.sum().backward()


# H. autograd


@pytest.mark.parametrize("poison", [float("nan"), INF])
@each_backend
def test_h1_a_masked_nan_is_as_if_the_key_were_dropped(backend: str, poison: float) -> None:
    query, key, value = (torch.randn(1, 2, 4, 8) for _ in range(3))
    for broken in (key, value):
        kept = broken[:, :, 1].clone()
        broken[:, :, 1] = poison
        output = serve(backend, query, key, value, mask=Padding(bools("1011")))
        rest = [0, 2, 3]
        close(output, attend(query, key[:, :, rest], value[:, :, rest]))
        broken[:, :, 1] = kept
