"""Plain PyTorch: torch's attention functions, wherever they are called."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.lens import watch
from regard.ops.probes import Entropy, KeyMass, Rows

PAD = torch.tensor([[False] * 5, [False, False, False, True, True]])
FUTURE = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
HEADS_CALLS = {
    "plain": {},
    "padding": {"key_padding_mask": PAD},
    "additive padding": {"key_padding_mask": torch.zeros(2, 5).masked_fill(PAD, -torch.inf)},
    "bool mask": {"attn_mask": FUTURE},
    "causal": {"attn_mask": FUTURE, "is_causal": True},
    "causal and padding": {"attn_mask": FUTURE, "is_causal": True, "key_padding_mask": PAD},
    "bias": {"attn_mask": torch.linspace(-2, 2, 25).view(5, 5)},
    "per head": {"attn_mask": torch.rand(8, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.4},
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def ordinary(module, *inputs, **options):
    """Without the fused fast path."""
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return module(*inputs, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("call", HEADS_CALLS)
def test_multihead_attention(call, need_weights, serve):
    module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    options = {**HEADS_CALLS[call], "average_attn_weights": False}
    if call == "per head":
        options["attn_mask"] = options["attn_mask"] & ~torch.eye(5, dtype=torch.bool)
    with torch.no_grad():
        output, given = ordinary(module, x, x, x, need_weights=need_weights, **options)
        _, expected = ordinary(module, x, x, x, need_weights=True, **options)
        with watch(module, [Rows(), KeyMass()], serve=serve) as seen:
            served, shown = module(x, x, x, need_weights=need_weights, **options)
    (layer,) = seen.layers
    torch.testing.assert_close(layer.rows, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(layer.key_mass, expected.sum(2), atol=1e-6, rtol=0)
    assert layer.kind == "self"
    if serve == "model":
        assert torch.equal(served, output)
        assert given is None or torch.equal(shown, given)
    else:
        torch.testing.assert_close(served, output, atol=1e-6, rtol=1e-5)
        assert (shown is None) == (given is None)
        if shown is not None:
            torch.testing.assert_close(shown, given, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize(
    "options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 7}, {"bias": False}], ids=str
)
def test_multihead_attention_with_other_parameters(options, serve):
    module = nn.MultiheadAttention(16, 4, **options).eval()
    query, key, value = torch.randn(3, 2, 16), torch.randn(5, 2, options.get("kdim", 16)), torch.randn(5, 2, 16)
    value = torch.randn(5, 2, options.get("vdim", 16))
    with torch.no_grad():
        output, expected = ordinary(module, query, key, value, key_padding_mask=PAD, average_attn_weights=False)
        with watch(module, [Rows()], serve=serve) as seen:
            served, _ = module(query, key, value, key_padding_mask=PAD, average_attn_weights=False)
    torch.testing.assert_close(seen.layers[0].rows, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(served, output, atol=0 if serve == "model" else 1e-6, rtol=0)
    assert seen.layers[0].kind == "cross"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_takes_its_ordinary_path_and_the_fast_path_is_back_afterwards():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        fused = encoder(x, src_key_padding_mask=PAD)
        with watch(encoder, [Rows(), Entropy()]) as seen:
            watched = encoder(x, src_key_padding_mask=PAD)
            assert not torch.backends.mha.get_fastpath_enabled()
        assert torch.backends.mha.get_fastpath_enabled()
        assert torch.equal(encoder(x, src_key_padding_mask=PAD), fused)
    torch.testing.assert_close(watched[~PAD], fused[~PAD], atol=1e-6, rtol=1e-5)
    assert [layer.name for layer in seen.layers] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert (seen.layers[0].rows[1, :, :, 3:] == 0).all()
    assert all("fast path" in entry.reason for entry in seen.coverage)


def test_training_encoder_is_bit_equal_and_has_no_fast_path_remark():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), 2).train()
    x = torch.randn(2, 5, 16)
    expected = encoder(x)
    with watch(encoder, [Entropy()]) as seen:
        watched = encoder(x)
    assert torch.equal(watched, expected)
    watched.sum().backward()
    assert all("fast path" not in entry.reason and entry.status == "seen" for entry in seen.coverage)


def test_transformer_has_self_and_cross_layers():
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    with torch.no_grad(), watch(model, [Rows()]) as seen:
        model(source, target, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))
    assert [(layer.kind, tuple(layer.rows.shape[2:])) for layer in seen.layers] == [
        ("self", (5, 5)),
        ("self", (3, 3)),
        ("cross", (3, 5)),
    ]
    assert (seen["decoder.layers.0.self_attn"].rows.triu(1) == 0).all()


class Handmade(nn.Module):
    """Calls torch's attention the way a person does."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, **self.options)


class Outer(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.inner = nn.ModuleDict({"mixer": Handmade(**options)})

    def forward(self, q, k, v):
        return self.inner["mixer"](q, k, v)


def dense(q, k, *, mask=None, scale=None, bias=None):
    """Weights by the formula, in float64."""
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    scores = scores + (bias if bias is not None else 0)
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0) if mask is not None else scores.softmax(-1)


SDPA_CALLS = {
    "plain": ({}, {}, 5),
    "causal": ({"is_causal": True}, {"mask": ~FUTURE}, 5),
    "causal, upper left": ({"is_causal": True}, {"mask": torch.ones(5, 7, dtype=torch.bool).tril()}, 7),
    "bool mask": ({"attn_mask": ~FUTURE}, {"mask": ~FUTURE}, 5),
    "bool mask per row": ({"attn_mask": ~PAD[:, None, None]}, {"mask": ~PAD[:, None, None]}, 5),
    "float mask": ({"attn_mask": torch.arange(25.0).view(5, 5) / 9}, {"bias": torch.arange(25.0).view(5, 5) / 9}, 5),
    "zeros and ones": ({"attn_mask": torch.eye(5)}, {"bias": torch.eye(5)}, 5),
    "scale": ({"scale": 0.7}, {"scale": 0.7}, 5),
    "grouped": ({"enable_gqa": True}, {}, 5),
}


@pytest.mark.parametrize("call", SDPA_CALLS)
def test_scaled_dot_product_attention(call):
    options, meaning, kv_len = SDPA_CALLS[call]
    model = Outer(**options)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, kv_len, 8), torch.randn(2, 4, kv_len, 3)
    if call == "grouped":
        k, v = k[:, :2], v[:, :2]
    expected = model(q, k, v)
    with watch(model, [Rows()]) as seen:
        assert torch.equal(model(q, k, v), expected)
    (layer,) = seen.layers
    assert layer.name == "inner.mixer"
    weights = dense(q, k, **meaning).float()
    torch.testing.assert_close(layer.rows, weights[..., : layer.rows.shape[3]], atol=1e-5, rtol=0)
    if call == "zeros and ones":
        return  # attend() refuses such a bias as a mistaken mask
    with watch(model, [Rows()], serve="regard") as seen:
        torch.testing.assert_close(model(q, k, v), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.layers[0].rows, weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 2, 5, 8)], ids=str)
def test_other_numbers_of_dimensions(shape):
    model = Outer(is_causal=True)
    q = torch.randn(shape)
    expected = model(q, q, q)
    for serve in ("model", "regard"):
        with watch(model, [Rows()], serve=serve) as seen:
            torch.testing.assert_close(model(q, q, q), expected, atol=1e-6 if serve == "regard" else 0, rtol=0)
        rows = seen.layers[0].rows
        weights = dense(q.reshape(-1, 1, 5, 8), q.reshape(-1, 1, 5, 8), mask=~FUTURE).float()
        torch.testing.assert_close(rows.reshape(-1, 5, 5), weights.reshape(-1, 5, 5), atol=1e-5, rtol=0)


def test_calls_outside_the_model_are_not_its_own():
    model = Outer()
    q = torch.randn(1, 2, 3, 4)
    with watch(model, [Entropy()]) as seen:
        functional.scaled_dot_product_attention(q, q, q)
    assert not seen.layers


def test_gradients_pass_and_are_untouched():
    model = Outer(is_causal=True)
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    model(q, q, q).square().sum().backward()
    expected, q.grad = q.grad, None
    with watch(model, [Rows()]) as seen:
        model(q, q, q).square().sum().backward()
    assert torch.equal(q.grad, expected)
    assert not seen.layers[0].rows.requires_grad
    q.grad = None
    with watch(model, [Rows()], serve="regard"):
        model(q, q, q).square().sum().backward()
    torch.testing.assert_close(q.grad, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_and_untouched():
    model = Outer()
    q = torch.nested.nested_tensor([torch.randn(3, 2, 4), torch.randn(5, 2, 4)], layout=torch.jagged).transpose(1, 2)
    expected = model(q, q, q)
    with watch(model, [Entropy()]) as seen:
        found = model(q, q, q)
    assert torch.equal(found.values(), expected.values())
    assert [(entry.name, entry.status) for entry in seen.coverage] == [("inner.mixer", "not seen")]
    assert "nested" in seen.coverage[0].reason
