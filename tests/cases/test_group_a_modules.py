"""The handed cases that are about modules: heads, projections, weights on request, train and eval, positions."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.nn import ALiBi, MultiHeadAttention, Rotary, ScaledDotProductAttention, alibi_slopes
from regard.ops import Blocked, Causal, Padding, SlidingWindow, attend
from tests.cases.test_group_a import bools, close


def module(**options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(8, 2, **options)


def gradients(layer: MultiHeadAttention, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(layer.parameters())))


def is_projection_of(layer: MultiHeadAttention, identity: bool = True) -> None:
    """Make every projection the identity without bias."""
    with torch.no_grad():
        for linear in (layer.query, layer.key, layer.value, layer.output):
            linear.weight.copy_(torch.eye(*linear.weight.shape))
            if linear.bias is not None:
                linear.bias.zero_()


@pytest.mark.parametrize("mask", [Blocked(~bools("100", "110", "000")), bools("100", "110", "000")])
def test_a02_one_dead_row_poisons_no_gradient(mask: Any) -> None:
    layer, x = module(), torch.randn(1, 3, 8)
    results = {}
    for need_weights in (False, True):
        found = layer(x, mask=mask, need_weights=need_weights)
        output = found[0] if need_weights else found
        assert output.isfinite().all()
        results[need_weights] = [output, *gradients(layer, output[:, :2].sum())]
    for one, two in zip(results[False], results[True], strict=True):
        assert one.isfinite().all()
        close(one, two)


def test_a12_true_attends_and_blocked_converts() -> None:
    x = torch.eye(2)[None]
    layer = MultiHeadAttention(2, 1)
    is_projection_of(layer)
    mask = bools("10", "10")
    close(layer(x, mask=mask), [[1.0, 0], [1, 0]], 0)
    close(layer(x, mask=Blocked(mask)), [[0.0, 1], [0, 1]], 0)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (3, [0.0625, 0.00390625, 0.25]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (12, [2.0**-n for n in range(1, 9)] + [0.70711, 0.35355, 0.17678, 0.08839]),
        (8, [2.0**-n for n in range(1, 9)]),
    ],
)
def test_a26_alibi_slopes_for_any_head_count(heads: int, slopes: list[float]) -> None:
    close(alibi_slopes(heads), slopes, 1e-5)


def test_i6_alibi_weights_of_three_causal_keys() -> None:
    positions = torch.arange(3)
    bias = ALiBi(8)(positions, positions)
    zeros = torch.zeros(1, 8, 3, 4)
    weighted = attend(zeros, zeros, torch.eye(3).expand(1, 8, 3, 3), mask=Causal(), bias=bias)
    close(weighted[0, 0, 2], [0.1863, 0.3072, 0.5065], 1e-4)


def test_a28_rotary_scores_depend_on_the_difference_of_positions() -> None:
    query, key = (torch.tensor(v, dtype=torch.float64).view(1, 1, 1, 4) for v in ([1.0, 2, 3, 4], [0.5, -1, 2, 0]))
    rotary = Rotary(4)

    def score(at: int, other: int) -> float:
        turned = rotary(query, torch.tensor([at])), rotary(key, torch.tensor([other]))
        return float((turned[0] * turned[1]).sum())

    assert score(5, 3) == pytest.approx(-4.169911, abs=1e-6)
    assert score(105, 103) == pytest.approx(score(5, 3), abs=1e-9)
    assert float((query * key).sum()) == pytest.approx(4.5)


def test_a28_rotary_decoding_step_by_step_equals_the_full_pass() -> None:
    query, key, value = (torch.randn(1, 2, 6, 8, dtype=torch.float64) for _ in range(3))
    rotary, positions = Rotary(8), torch.arange(6)
    full = attend(rotary(query, positions), rotary(key, positions), value, mask=Causal())
    cache = rotary(key[:, :, :1], positions[:1])
    steps = []
    for t in range(6):
        if t:
            cache = torch.cat([cache, rotary(key[:, :, t : t + 1], positions[t : t + 1])], 2)
        now = rotary(query[:, :, t : t + 1], positions[t : t + 1])
        steps.append(attend(now, cache, value[:, :, : t + 1], mask=Causal()))
    close(torch.cat(steps, 2), full, 1e-9)


def test_i5_rotary_of_two_coordinates() -> None:
    turned = Rotary(2)(torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([1]))
    close(turned.flatten(), [math.cos(1), math.sin(1)])


@pytest.mark.parametrize("interleaved", [False, True])
def test_a31_casting_the_module_rounds_no_frequency(interleaved: bool) -> None:
    x, position = torch.randn(1, 1, 1, 64), torch.tensor([4000])
    exact = Rotary(64, interleaved=interleaved)(x.double(), position)
    cast = Rotary(64, interleaved=interleaved).to(torch.bfloat16)
    close(cast(x, position), exact, 1e-5)
    rounded = cast(x.bfloat16(), position)
    assert rounded.dtype == torch.bfloat16
    again = Rotary(64, interleaved=interleaved)(x.bfloat16().double(), position)
    assert (rounded.double() - again).abs().max() <= 2**-8 * again.abs().max()


def test_a31_positions_above_256_stay_distinct_in_half_precision() -> None:
    x = torch.ones(1, 1, 6, 8).bfloat16()
    turned = Rotary(8).to(torch.bfloat16)(x, torch.arange(255, 261)).float()
    rows = {tuple(row.tolist()) for row in turned[0, 0]}
    assert len(rows) == 6


def test_a35_the_weight_of_an_only_key_is_exactly_one_in_training() -> None:
    layer = module(dropout_p=0.2).train()
    _, found = layer(torch.randn(1, 3, 8), torch.randn(1, 1, 8), need_weights=True)
    assert torch.equal(found, torch.ones(1, 2, 3, 1))


def test_a40_autocast_leaves_returned_weights_exact() -> None:
    layer = module()
    with torch.autocast("cpu", torch.bfloat16):
        output, found = layer(torch.randn(2, 50, 8), need_weights=True)
    assert output.dtype == torch.bfloat16
    assert found.dtype == torch.float32
    close(found.sum(-1), 1.0)


def test_a42_g2_eval_drops_nothing() -> None:
    layer, x = module(dropout_p=0.8).eval(), torch.randn(2, 5, 8)
    assert torch.equal(layer(x), layer(x))
    assert torch.equal(layer(x), module(dropout_p=0.0).eval()(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


def test_b2_a_batch_row_of_padding_gives_the_output_bias() -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    torch.nn.init.normal_(layer.output.bias)
    keep = bools("1110", "0000")
    for need_weights in (False, True):
        found = layer(x, mask=Padding(keep), need_weights=need_weights)
        output = found[0] if need_weights else found
        assert torch.equal(output[1], layer.output.bias.expand(4, 8))
        alone = gradients(layer, layer(x[:1], mask=Padding(keep[:1])).sum())
        for one, two in zip(gradients(layer, output[0].sum()), alone, strict=True):
            close(one, two, 1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_d4_causal_with_and_without_weights_and_padding(padded: bool) -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    mask = Causal() & Padding(bools("1111", "1110")) if padded else Causal()
    output = layer(x, mask=mask)
    again, found = layer(x, mask=mask, need_weights=True)
    assert torch.equal(output, again)
    assert torch.count_nonzero(found[..., torch.ones(4, 4).triu(1).bool()]) == 0


def test_e1_e3_weights_only_on_request_and_per_head() -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    assert isinstance(layer(x), Tensor)
    _, found = layer(x, need_weights=True)
    assert found.shape == (2, 2, 4, 4)
    assert not torch.allclose(found[:, 0], found[:, 1])


@pytest.mark.parametrize("mask", [None, Causal(), SlidingWindow(2), Padding(bools("1100", "0111"))])
def test_e2_a48_weights_change_neither_output_nor_gradients(mask: Any) -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    plain = layer(x, mask=mask)
    output, found = layer(x, mask=mask, need_weights=True)
    assert torch.equal(plain, output)
    for one, two in zip(gradients(layer, plain.sum()), gradients(layer, output.sum()), strict=True):
        assert torch.equal(one, two)
    values = layer.value(x).unflatten(-1, (2, 4)).transpose(1, 2)
    close(layer.output((found @ values).transpose(1, 2).flatten(2)), plain, 2e-6)


def test_e4_weights_are_before_dropout() -> None:
    _, found = module(dropout_p=0.5).train()(torch.randn(2, 4, 8), need_weights=True)
    close(found.sum(-1), 1.0)


def test_f1_the_scale_is_that_of_a_head() -> None:
    layer = MultiHeadAttention(16, 4)
    is_projection_of(layer)
    query, key = torch.zeros(1, 1, 16), torch.zeros(1, 2, 16)
    query[..., 0], key[0, 0, 0] = 2, 2
    _, found = layer(query, key, need_weights=True)
    close(found[0, 0, 0, 0], torch.sigmoid(torch.tensor(2.0)), 1e-5)


def test_f2_heads_are_split_along_features() -> None:
    layer = MultiHeadAttention(4, 2)
    is_projection_of(layer)
    with torch.no_grad():
        layer.query.weight.zero_()
    close(layer(torch.tensor([[[1.0, 2, 3, 4], [5, 6, 7, 8]]])), [3.0, 4, 5, 6])


def test_f3_f4_every_head_has_its_own_projection_and_they_are_joined() -> None:
    layer = MultiHeadAttention(16, 4)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (16 * 16 + 16)
    assert layer.output.weight.shape == (16, 16)


def test_f5_f8_widths_and_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(ValueError, match=r"(?s)3.*10"):
        MultiHeadAttention(10, 3)
    with pytest.raises(ValueError, match=r"(?s)4.*6"):
        MultiHeadAttention(12, 6, num_kv_heads=4)
    assert MultiHeadAttention(12, 6, num_kv_heads=1)(torch.randn(1, 3, 12)).shape == (1, 3, 12)


def test_f6_keys_of_another_width() -> None:
    layer = MultiHeadAttention(8, 2, kv_dim=5)
    assert layer(torch.randn(2, 3, 8), torch.randn(2, 4, 5)).shape == (2, 3, 8)


def test_f10_two_layers_start_differently() -> None:
    one, two = MultiHeadAttention(8, 2), MultiHeadAttention(8, 2)
    assert not torch.equal(one.query.weight, two.query.weight)


def test_g1_batch_first_always() -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    before = layer(x)
    x[1] += 1
    assert torch.equal(layer(x)[0], before[0])


def test_g3_g4_train_and_eval_agree_in_every_row() -> None:
    layer, x = module(), torch.randn(2, 4, 8)
    mask = Padding(bools("1110", "1100"))
    trained = layer.train()(x, mask=mask)
    with torch.no_grad():
        served = layer.eval()(x, mask=mask)
    assert served.shape == (2, 4, 8)
    close(served, trained.detach())


def test_g6_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = module(dropout_p=0.1)
        layer(torch.randn(1, 3, 8), mask=Causal(), need_weights=True)[0].sum().backward()


def test_g9_an_unbatched_sequence_is_refused_with_the_way_out() -> None:
    import jaxtyping

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        with pytest.raises(ValueError, match=r"(?s)\(3, 8\).*query\[None\]"):
            module()(torch.randn(3, 8))


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 3, 3), (2, 3, 3)])
def test_textbook_masks_of_zeros_and_ones(kind: torch.dtype, shape: tuple[int, ...]) -> None:
    """Teaching code writes masks as 0/1 of any dtype and asks for (output, weights)."""
    layer = ScaledDotProductAttention(4)
    query, key, value = (torch.randn(2, 2, 3, 4) for _ in range(3))
    mask = torch.ones(3, 3).tril().to(kind).expand(shape)
    output, found = layer(query, key, value, mask)
    logits = (query @ key.mT / 2).masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf"))
    close(found, torch.softmax(logits, -1))
    close(output, found @ value)
