"""The handed cases that concern modules: group A, and rows of sections B, D, E, G and H of the table of confusions.

Every test calls `regard.nn` as a person does; the operation beneath has its tests in test_group_a.py and
test_attention_cases.py under the same ids.
"""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.lens import watch
from regard.nn import ALiBi, MultiHeadAttention, Rotary, ScaledDotProductAttention, alibi_slopes
from regard.nn import attention as attention_module
from regard.ops import Allowed, Blocked, Causal, Documents, Mask, Padding, Prefix, SlidingWindow, attend, weights
from regard.ops.probes import Rows
from tests.cases.test_group_a import bools, close
from tests.ops.backends import each_backend, serve

each_weights = pytest.mark.parametrize("need_weights", [False, True], ids=["plain", "weights"])
MASKS: dict[str, Any] = {
    "none": None,
    "causal": Causal(),
    "padding": Padding(bools("11100", "00000")),
    "both": Causal() & Padding(bools("00111", "11110")),
    "window": Causal() & SlidingWindow(2),
    "prefix": Causal() | Prefix(2),
    "documents": Documents(torch.tensor([[0, 0, 1, -1, 1]])),
    "bool": torch.ones(5, 5).tril(-1).bool(),
    "zeros and ones": torch.ones(5, 5).tril().long(),
}


def module(d_model: int = 8, num_heads: int = 2, **options: Any) -> MultiHeadAttention:
    """A module whose biases are not zero either."""
    made = MultiHeadAttention(d_model, num_heads, **options)
    for linear in (made.query, made.key, made.value, made.output):
        if linear.bias is not None:
            nn.init.normal_(linear.bias)
    return made


def identity(d_model: int) -> MultiHeadAttention:
    made = MultiHeadAttention(d_model, 1, bias=False)
    for linear in (made.query, made.key, made.value, made.output):
        nn.init.eye_(linear.weight)
    return made


def called(layer: MultiHeadAttention, *inputs: Tensor, mask: Any = None, need_weights: bool = False) -> Tensor:
    """The output, whether or not weights are asked for."""
    result = layer(*inputs, mask=mask, need_weights=need_weights)
    return result[0] if need_weights else result


def gradients(layer: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(layer.parameters())))


# group A


@each_weights
def test_a02_one_dead_row_poisons_nothing(need_weights: bool) -> None:
    layer, x = module(4, 2), torch.randn(1, 3, 4)
    mask = Blocked(bools("011", "001", "111"))
    output = called(layer, x, mask=mask, need_weights=need_weights)
    assert output.isfinite().all()
    close(output[0, 2], layer.output.bias.detach(), 0)
    found = gradients(layer, output[:, :2].sum())
    assert all(gradient.isfinite().all() for gradient in found)
    alone = called(layer, x[:, :2], mask=Causal())
    for one, two in zip(found, gradients(layer, alone.sum()), strict=True):
        close(one, two)


def test_a02_the_weights_of_a_dead_row_are_zero_and_carry_no_gradient() -> None:
    layer, x = module(4, 2), torch.randn(1, 3, 4)
    _, seen = layer(x, mask=Blocked(bools("011", "001", "111")), need_weights=True)
    assert torch.count_nonzero(seen[:, :, 2]) == 0
    (gradient,) = torch.autograd.grad(seen.square().sum(), layer.query.weight)
    assert gradient.isfinite().all()


def test_a12_polarity_of_a_module_is_that_of_the_operation() -> None:
    x, mask = torch.eye(2)[None], bools("10", "10")
    layer = identity(2)
    for keeps in (mask, mask.long(), mask.float(), mask.to(torch.uint8), Allowed(mask)):
        close(layer(x, mask=keeps), [[[1.0, 0], [1, 0]]], 0)
    for hides in (~mask, Blocked(mask), ~Allowed(mask)):
        close(layer(x, mask=hides), [[[0.0, 1], [0, 1]]], 0)
    theirs = nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.eye(2).repeat(3, 1))
        theirs.out_proj.weight.copy_(torch.eye(2))
    close(layer(x, mask=Blocked(mask)), theirs(x, x, x, attn_mask=mask)[0])


@pytest.mark.parametrize("blocking", [-math.inf, torch.finfo(torch.float32).min, -1e9])
def test_a12_an_additive_mask_is_not_taken_for_zeros_and_ones(blocking: float) -> None:
    """0 = may attend there, and 0 blocks here: read as zeros and ones it would mean the opposite."""
    additive = torch.zeros(3, 3).masked_fill(~bools("100", "110", "111"), blocking)
    with pytest.raises(TypeError, match=r"(?s)mask.*Allowed\(mask == 0\)"):
        module()(torch.randn(1, 3, 8), mask=additive)
    with pytest.raises(TypeError, match=r"(?s)mask.*Allowed\(mask == 0\)"):
        ScaledDotProductAttention(8)(*[torch.randn(1, 3, 8)] * 3, mask=additive)
    x, layer = torch.randn(1, 3, 8), module()
    assert torch.equal(layer(x, mask=Allowed(additive == 0)), layer(x, mask=Causal()))


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (3, [0.0625, 0.00390625, 0.25]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (12, [*(2.0**-n for n in range(1, 9)), *(2.0 ** -(n - 0.5) for n in range(1, 5))]),
    ],
)
def test_a26_slopes_of_any_number_of_heads(heads: int, slopes: list[float]) -> None:
    close(alibi_slopes(heads), slopes)
    bias = ALiBi(heads)(torch.tensor([7]), torch.arange(8))
    close(bias[0, :, 0, 4], [-3 * slope for slope in slopes])


def test_a26_the_bias_of_the_last_row() -> None:
    """Eight heads: slopes 1/2 … 1/256; of equal scores, three keys and head 0, the last row."""
    close(alibi_slopes(8), [2.0**-n for n in range(1, 9)], 0)
    zeros, positions = torch.zeros(1, 8, 3, 4), torch.arange(3)
    output = attend(zeros, zeros, torch.eye(3).expand(1, 8, 3, 3), mask=Causal(), bias=ALiBi(8)(positions, positions))
    close(output[0, 0, 2], [0.1863, 0.3072, 0.5065], 1e-4)


@pytest.mark.parametrize(("q_at", "k_at"), [(5, 3), (105, 103)])
def test_a28_a_rotated_score_depends_on_the_difference(q_at: int, k_at: int) -> None:
    rotary = Rotary(4)
    query = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64).view(1, 1, 1, 4)
    key = torch.tensor([0.5, -1, 2, 0], dtype=torch.float64).view(1, 1, 1, 4)
    assert (query @ key.mT).item() == 4.5
    score = rotary(query, torch.tensor([q_at])) @ rotary(key, torch.tensor([k_at])).mT
    assert abs(score.item() + 4.169911) < 1e-6
    near = rotary(query, torch.tensor([2])) @ rotary(key, torch.tensor([0])).mT
    assert abs(score.item() - near.item()) < 1e-9


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sizes", [[1] * 6, [4, 2], [3, 1, 1, 1]], ids=str)
def test_a28_decoding_with_a_cache_equals_the_full_pass(sizes: list[int], interleaved: bool) -> None:
    rotary = Rotary(8, interleaved=interleaved)
    query, key, value = (torch.randn(2, 2, 6, 8, dtype=torch.float64) for _ in range(3))
    places = torch.arange(6)
    full = attend(rotary(query, places), rotary(key, places), value, mask=Causal())
    cache, pieces, at = key[:, :, :0], [], 0
    for size in sizes:
        now = slice(at, at + size)
        cache = torch.cat([cache, rotary(key[:, :, now], places[now])], 2)
        pieces.append(attend(rotary(query[:, :, now], places[now]), cache, value[:, :, : at + size], mask=Causal()))
        at += size
    close(torch.cat(pieces, 2), full, 1e-9)


def test_a28_rows_of_a_batch_at_positions_of_their_own() -> None:
    rotary, x = Rotary(8), torch.randn(2, 3, 4, 8)
    places = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    together = rotary(x, places)
    for row in range(2):
        assert torch.equal(together[row : row + 1], rotary(x[row : row + 1], places[row]))


@pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16, torch.float16])
def test_a31_angles_are_not_rounded_by_a_cast_of_the_model(cast: torch.dtype) -> None:
    rotary = nn.Sequential(Rotary(64)).to(cast)[0]
    places = torch.tensor([*range(255, 261), 4000])
    x = torch.cat([torch.ones(1, 1, 7, 32), torch.zeros(1, 1, 7, 32)], -1).to(cast)
    turned = rotary(x, places)
    assert turned.dtype == cast
    angles = places.double()[:, None] * 1e4 ** (-torch.arange(32, dtype=torch.float64) / 32)
    close(turned[0, 0].double(), torch.cat([angles.cos(), angles.sin()], -1), 4e-3)
    assert len({tuple(row) for row in turned[0, 0].tolist()}) == 7, "positions above 256 are distinct"


@pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16, torch.float16])
def test_a31_slopes_and_distances_are_not_rounded_by_a_cast_of_the_model(cast: torch.dtype) -> None:
    """The same trouble in ALiBi: slopes in bfloat16, and distances that collapse above 256."""
    alibi = nn.Sequential(ALiBi(12)).to(cast)[0]
    bias = alibi(torch.tensor([4000]), torch.arange(4001))
    assert bias.dtype == torch.float32
    exact = -alibi_slopes(12).double()[:, None] * torch.arange(4000, -1, -1).double()
    torch.testing.assert_close(bias[0, :, 0].double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_backend
def test_a31_a_bias_is_not_rounded_to_the_type_of_the_queries(backend: str, dtype: torch.dtype) -> None:
    query, key = torch.zeros(1, 1, 1, 4, dtype=dtype), torch.zeros(1, 1, 2, 4, dtype=dtype)
    value, bias = torch.eye(2, dtype=dtype).view(1, 1, 2, 2), torch.tensor([[-3000.0, -3000.7]])
    wanted = torch.softmax(bias, -1)
    close(weights(query, key, bias=bias)[0, 0], wanted, 1e-4)
    close(serve(backend, query, key, value, bias=bias), wanted, 1e-2)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_a31_nor_by_the_default_type_a_model_is_built_under(default: torch.dtype) -> None:
    exact, places = ALiBi(12)(torch.tensor([4000]), torch.arange(4001)), torch.arange(8)
    turned, x = Rotary(8)(torch.ones(1, 1, 8, 8), places), torch.ones(1, 1, 8, 8)
    try:
        torch.set_default_dtype(default)
        assert torch.equal(ALiBi(12)(torch.tensor([4000]), torch.arange(4001)), exact)
        assert torch.equal(Rotary(8)(x, places), turned)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 3, 3), (2, 3, 0)], ids=["no queries", "no batch", "no keys"])
def test_a34_nothing_to_attend_to(shape: tuple[int, int, int]) -> None:
    batch, q_len, kv_len = shape
    layer = module()
    output, seen = layer(torch.randn(batch, q_len, 8), torch.randn(batch, kv_len, 8), need_weights=True)
    assert output.shape == (batch, q_len, 8)
    assert seen.shape == (batch, 2, q_len, kv_len)
    close(output, layer.output.bias.detach(), 0)
    assert all(gradient.isfinite().all() for gradient in gradients(layer, output.sum()))


def test_a35_one_key_has_weight_one_in_training_with_dropout() -> None:
    layer = module(dropout_p=0.2).train()
    _, seen = layer(torch.randn(2, 3, 8), torch.randn(2, 1, 8), need_weights=True)
    assert torch.equal(seen, torch.ones(2, 2, 3, 1))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a40_e8_autocast(half: torch.dtype) -> None:
    layer, x = module(), torch.randn(2, 200, 8)
    with torch.autocast("cpu", half):
        output, seen = layer(x, mask=torch.ones(200, 200).tril(), need_weights=True)
    assert output.dtype == half
    assert seen.dtype == torch.float32
    close(seen.sum(-1), 1.0, 1e-6)
    close(output.float(), layer(x, mask=Causal()), 5e-2)
    assert all(gradient.isfinite().all() for gradient in gradients(layer, output.float().sum()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_e8_weights_of_half_modules_are_float32(dtype: torch.dtype) -> None:
    output, seen = module().to(dtype)(torch.randn(2, 7, 8, dtype=dtype), need_weights=True)
    assert output.dtype == dtype
    assert seen.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    close(seen.sum(-1), 1.0, 1e-6)


def test_a42_g2_dropout_is_off_in_eval_and_on_in_training() -> None:
    layer, x = module(dropout_p=0.8), torch.randn(2, 9, 8)
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    plain = module()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), plain.train()(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a48_the_weights_are_those_that_made_the_output(mask: Any) -> None:
    layer, x = module(), torch.randn(2, 5, 8)
    output, seen = layer(x, mask=mask, need_weights=True)
    values = layer.value(x).unflatten(-1, (2, 4)).transpose(1, 2)
    close(output, layer.output((seen @ values).transpose(1, 2).flatten(2)))
    single = ScaledDotProductAttention(8)
    made, shown = single(x, x, x, mask)
    close(made, shown @ x)


# section B: empty rows


@each_weights
def test_b2_a_batch_row_that_is_all_padding(need_weights: bool) -> None:
    layer, x = module(), torch.randn(2, 5, 8)
    output = called(layer, x, mask=Padding(bools("11100", "00000")), need_weights=need_weights)
    assert output.isfinite().all()
    assert torch.equal(output[1], layer.output.bias.expand(5, 8))
    alone = called(layer, x[:1], mask=Padding(bools("11100")))
    for one, two in zip(gradients(layer, output[0].sum()), gradients(layer, alone.sum()), strict=True):
        assert one.isfinite().all()
        close(one, two, 1e-5)


@each_weights
def test_b3_a_band_with_right_padding(need_weights: bool) -> None:
    layer, x = module(), torch.randn(1, 4, 8)
    mask = Causal() & SlidingWindow(2) & Padding(bools("1100"))
    output = called(layer, x, mask=mask, need_weights=need_weights)
    close(output[0, 3], layer.output.bias.detach(), 0)
    assert all(gradient.isfinite().all() for gradient in gradients(layer, output[:, :2].sum()))


@each_weights
def test_b4_a_mask_that_blocks_one_head(need_weights: bool) -> None:
    layer, x = module(12, 3), torch.randn(2, 4, 12)
    mask = torch.ones(1, 3, 1, 4, dtype=torch.bool)
    mask[:, 1] = False
    output = called(layer, x, mask=mask, need_weights=need_weights)
    silenced = copy.deepcopy(layer)
    with torch.no_grad():
        silenced.output.weight[:, 4:8] = 0
    close(output, silenced(x))


@each_weights
def test_b5_cross_attention_to_an_empty_source(need_weights: bool) -> None:
    layer, x, source = module(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    output = called(layer, x, source, mask=Padding(bools("11111", "00000")), need_weights=need_weights)
    assert torch.equal(output[1], layer.output.bias.expand(3, 8))
    assert all(gradient.isfinite().all() for gradient in gradients(layer, output.square().sum()))


# section D: causal


@pytest.mark.parametrize("padded", [False, True])
def test_d4_causal_with_and_without_weights_and_padding(padded: bool) -> None:
    layer, x = module(), torch.randn(2, 5, 8)
    mask: Mask = Causal() & Padding(bools("11111", "11100")) if padded else Causal()
    output, seen = layer(x, mask=mask, need_weights=True)
    close(output, layer(x, mask=mask))
    assert torch.count_nonzero(seen[..., torch.ones(5, 5).triu(1).bool()]) == 0
    close(seen.sum(-1), 1.0)
    lengths = (5, 3) if padded else (5, 5)
    for row, length in enumerate(lengths):
        close(output[row, :length], layer(x[row : row + 1, :length], mask=Causal())[0])


@each_weights
def test_d6_causal_and_a_mask_that_is_not(need_weights: bool) -> None:
    layer, x = module(), torch.randn(2, 5, 8)
    other = torch.rand(2, 2, 5, 5) < 0.6
    both = other & torch.ones(5, 5).tril().bool()
    output = called(layer, x, mask=Causal() & Allowed(other), need_weights=need_weights)
    close(output, called(layer, x, mask=both, need_weights=not need_weights))


# section E: weights


def test_e1_weights_are_not_computed_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = module(16, 8), torch.randn(2, 5, 16)
    _, seen = layer(x, torch.randn(2, 7, 16), need_weights=True)
    assert seen.shape == (2, 8, 5, 7)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were computed")

    monkeypatch.setattr(attention_module, "weights", refuse)
    assert layer(x).shape == (2, 5, 16)
    with pytest.raises(AssertionError, match="computed"):
        layer(x, need_weights=True)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_e2_asking_for_weights_changes_neither_output_nor_gradients(mask: Any) -> None:
    layer, x = module(), torch.randn(2, 5, 8)
    with_weights, without = called(layer, x, mask=mask, need_weights=True), called(layer, x, mask=mask)
    assert torch.equal(with_weights, without)
    upstream = torch.randn_like(without)
    for one, two in zip(
        gradients(layer, (with_weights * upstream).sum()), gradients(layer, (without * upstream).sum()), strict=True
    ):
        close(one, two)


@pytest.mark.parametrize("kv_heads", [8, 2, 1])
def test_e3_every_head_has_its_own_map(kv_heads: int) -> None:
    _, seen = module(32, 8, num_kv_heads=kv_heads)(torch.randn(1, 4, 32), need_weights=True)
    assert seen.shape == (1, 8, 4, 4)
    assert len({tuple(head.flatten().tolist()) for head in seen[0]}) == 8


def test_e4_weights_are_those_before_dropout() -> None:
    layer, x = module(dropout_p=0.5).train(), torch.randn(2, 6, 8)
    _, seen = layer(x, need_weights=True)
    close(seen.sum(-1), 1.0)
    _, served = layer.eval()(x, need_weights=True)
    assert torch.equal(seen, served)


def test_e7_kept_weights_are_not_more_than_what_was_asked_for() -> None:
    """They are differentiable, as those of `weights`; once let go of, nothing of the call is left."""
    layer, x = module(), torch.randn(1, 4, 8, requires_grad=True)
    output, seen = layer(x, mask=Causal(), need_weights=True)
    assert seen.requires_grad
    kept = seen.detach()
    references = [weakref.ref(tensor) for tensor in (x, output, seen)]
    del x, output, seen
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    close(kept.sum(-1), 1.0)


@pytest.mark.usefixtures("unchecked")
def test_e7_a_thousand_calls_keep_nothing() -> None:
    layer, x = module(), torch.randn(1, 4, 8)

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    before = tensors()
    for _ in range(1000):
        layer(x, mask=Causal() & Padding(torch.ones(1, 4, dtype=torch.bool)), need_weights=True)
    assert tensors() < before + 50


# section G: parity, layout, dropout


@each_weights
def test_g1_batch_rows_are_separate(need_weights: bool) -> None:
    layer, x = module(), torch.randn(2, 2, 8)
    before = called(layer, x, need_weights=need_weights)
    x[1] += 1
    after = called(layer, x, need_weights=need_weights)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_g3_g4_training_without_dropout_is_eval(mask: Any) -> None:
    """Pad rows and shapes too, with and without gradients: there is no second path."""
    layer, x = module(), torch.randn(2, 5, 8)
    trained = layer.train()(x, mask=mask)
    assert trained.shape == (2, 5, 8)
    assert torch.equal(layer.eval()(x, mask=mask), trained)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(layer(x, mask=mask), trained.detach())


def test_g3_a_batch_that_is_all_padded_at_the_end_keeps_its_length() -> None:
    layer, x = module().eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        output = layer(x, mask=Padding(bools("11100", "11000")))
    assert output.shape == (2, 5, 8)
    close(output[0, :3], layer(x[:1, :3])[0])


@pytest.mark.usefixtures("unchecked")
def test_g5_a_mask_per_batch_row_and_head_in_both_modes() -> None:
    layer, x = module(12, 3), torch.randn(2, 4, 12)
    flat = torch.rand(6, 4, 4) < 0.7
    results = []
    for training in (True, False):
        layer.train(training)
        results.append(layer(x, mask=flat.view(2, 3, 4, 4)))
        with pytest.raises(ValueError, match=r"\[batch"):
            layer(x, mask=flat)
    assert torch.equal(*results)


@pytest.mark.parametrize("training", [True, False])
def test_g6_no_warnings(training: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer, x = module(dropout_p=0.1).train(training), torch.randn(2, 5, 8)
        for mask in MASKS.values():
            output, seen = layer(x, mask=mask, need_weights=True)
            (output.sum() + seen.sum()).backward()


class Live(TorchDispatchMode):
    """The most bytes of new storage that were alive at once, and how many operations ran."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        given = {id(tensor.untyped_storage()._cdata) for tensor in args if isinstance(tensor, Tensor)}
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and tensor._base is None and id(tensor) not in given:
                size = tensor.untyped_storage().nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(tensor, self._release, size)
        return result

    def _release(self, size: int) -> None:
        self.now -= size


@pytest.mark.parametrize("mask", [None, Causal(), Padding(torch.ones(2, 300).bool())], ids=["none", "causal", "pad"])
@pytest.mark.usefixtures("unchecked")
def test_g7_inference_is_not_larger_and_does_no_more_than_training(mask: Any) -> None:
    layer, x = module(32, 4), torch.randn(2, 300, 32)
    layer(x, mask=mask)
    with Live() as trained:
        kept = layer.train()(x, mask=mask)
    with torch.no_grad(), Live() as served:
        layer.eval()(x, mask=mask)
    assert kept.requires_grad
    assert served.peak <= trained.peak
    assert served.operations <= trained.operations


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("extra", ["add_bias_kv", "add_zero_attn"])
@pytest.mark.parametrize("hint", [False, True], ids=["mask", "mask and hint"])
def test_g8_one_more_key_leaves_a_causal_module_causal(extra: str, hint: bool, serve: Any) -> None:
    """torch's own module, watched: the key it adds comes last, is seen by all, and makes the weights one wider."""
    theirs, x = nn.MultiheadAttention(8, 2, batch_first=True, **{extra: True}).eval(), torch.randn(2, 4, 8)
    above = torch.ones(4, 4).triu(1).bool()
    options = {"attn_mask": above, "is_causal": hint, "average_attn_weights": False}
    output, expected = theirs(x, x, x, **options)
    with torch.no_grad(), watch(theirs, [Rows()], serve=serve) as seen:
        served, _ = theirs(x, x, x, **options)
    rows = seen.layers[0].rows
    assert rows.shape == (2, 2, 4, 5)
    close(rows, expected.detach())
    close(served, output.detach())
    assert torch.count_nonzero(rows[..., :4][..., above]) == 0
    assert (rows[..., 4] > 0).all()


@pytest.mark.usefixtures("unchecked")
def test_g9_a_sequence_without_batch_is_one_clear_error() -> None:
    with pytest.raises(ValueError, match=r"(?s)\[batch, length, 8\].*query\[None\]"):
        module()(torch.randn(5, 8))


# section H: copies


@pytest.mark.parametrize("name", sorted(MASKS))
def test_h7_masks_survive_copy_and_pickle(name: str) -> None:
    mask, layer, x = MASKS[name], module(), torch.randn(2, 5, 8)
    expected = layer(x, mask=mask)
    for other in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert type(other) is type(mask)
        assert torch.equal(layer(x, mask=other), expected)


@pytest.mark.parametrize(
    "made",
    [
        lambda: module(8, 2, num_kv_heads=1, dropout_p=0.2),
        lambda: module(8, 4, bias=False),
        lambda: nn.ModuleList([Rotary(8, interleaved=True), ALiBi(3), ScaledDotProductAttention(8)]),
    ],
)
def test_h7_modules_survive_copy_pickle_and_saving(made: Any) -> None:
    layer = made().eval()
    stored = io.BytesIO()
    torch.save(layer, stored)
    stored.seek(0)
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(stored, weights_only=False),
    ):
        assert repr(other) == repr(layer)
        assert other.state_dict().keys() == layer.state_dict().keys()
        for one, two in zip(other.parameters(), layer.parameters(), strict=True):
            assert torch.equal(one, two)
            assert one.data_ptr() != two.data_ptr()
        if isinstance(layer, MultiHeadAttention):
            x = torch.randn(2, 5, 8)
            assert torch.equal(other(x, mask=Causal()), layer(x, mask=Causal()))
