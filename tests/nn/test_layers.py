"""Layers and stacks: pre- and post-norm, dropout, masks, what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.nn import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    MultiHeadAttention,
    make_norm,
)
from regard.ops import Causal, Padding


def encoder_layer(**options: Any) -> EncoderLayer:
    return EncoderLayer(MultiHeadAttention(16, 2), FeedForward(16, 32), **options)


def decoder_layer(**options: Any) -> DecoderLayer:
    options.setdefault("cross", MultiHeadAttention(16, 2))
    return DecoderLayer(MultiHeadAttention(16, 2), FeedForward(16, 32), **options)


def both(**options: Any) -> EncoderDecoder:
    encoder = Encoder([encoder_layer(**options) for _ in range(2)], norm=nn.LayerNorm(16))
    return EncoderDecoder(encoder, Decoder([decoder_layer(**options) for _ in range(2)], norm=nn.LayerNorm(16)))


def normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()


def test_pre_norm_is_its_formula() -> None:
    layer, x = encoder_layer().double(), torch.randn(2, 5, 16, dtype=torch.float64)
    middle = x + layer.self(normed(x))
    wide = nn.functional.gelu(normed(middle) @ layer.feed_forward.wide.weight.T + layer.feed_forward.wide.bias)
    wanted = middle + wide @ layer.feed_forward.narrow.weight.T + layer.feed_forward.narrow.bias
    torch.testing.assert_close(layer(x), wanted)


def test_post_norm_is_its_formula() -> None:
    layer, x = encoder_layer(norm_first=False).double(), torch.randn(2, 5, 16, dtype=torch.float64)
    middle = normed(x + layer.self(x))
    torch.testing.assert_close(layer(x), normed(middle + layer.feed_forward(middle)))


def test_a_gated_part_and_an_rms_norm_are_their_formulas() -> None:
    part = FeedForward(16, 32, activation="silu", gated=True, bias=False).double()
    x = torch.randn(3, 16, dtype=torch.float64)
    assert part.gate is not None
    inner = nn.functional.silu(x @ part.wide.weight.T) * (x @ part.gate.weight.T)
    torch.testing.assert_close(part(x), inner @ part.narrow.weight.T)
    rms = make_norm("rms", 16).double()
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_decoder_reads_in_pieces_what_it_reads_at_once(norm: str, norm_first: bool) -> None:
    model = both(norm=norm, norm_first=norm_first).eval()
    source, target, keep = torch.randn(2, 6, 16), torch.randn(2, 7, 16), torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = False
    whole = model(source, target, Padding(keep), Causal(), Padding(keep))
    memory, cache, found = model.encoder(source, Padding(keep)), KeyValueCache(), []
    for i, j in ((0, 2), (2, 3), (3, 7)):
        given = memory if i == 0 else None
        found.append(model.decoder(target[:, i:j], given, Causal(), Padding(keep), kv_cache=cache))
    torch.testing.assert_close(torch.cat(found, dim=1), whole, atol=1e-5, rtol=0)


def test_g4_padding_and_modes_change_no_real_row() -> None:
    model, x = Encoder([encoder_layer() for _ in range(2)]), torch.randn(2, 6, 16)
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    trained = model.train()(x, Padding(keep))
    with torch.no_grad():
        evaluated = model.eval()(x, Padding(keep))
    torch.testing.assert_close(evaluated, trained, atol=1e-6, rtol=0)
    other = x.clone()
    other[1, 4:] = float("nan")
    torch.testing.assert_close(model(other, Padding(keep))[keep], evaluated[keep], atol=1e-6, rtol=0)
    torch.testing.assert_close(model(x[1:, :4]), evaluated[1:, :4], atol=1e-6, rtol=0)


def test_f10_layers_start_differently_and_from_the_seed() -> None:
    torch.manual_seed(3)
    model = both()
    weights = [p for name, p in model.named_parameters() if p.dim() == 2]
    for i, one in enumerate(weights):
        assert not any(one.shape == two.shape and torch.equal(one, two) for two in weights[:i])
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), both().parameters(), strict=True))


def test_dropout_is_on_in_training_only() -> None:
    layer, x = encoder_layer(dropout_p=0.5), torch.randn(2, 5, 16)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer.eval()(x))


def test_copies_pickles_and_state() -> None:
    model = both().eval()
    source, target = torch.randn(1, 4, 16), torch.randn(1, 3, 16)
    wanted = model(source, target)
    other = both().eval()
    other.load_state_dict(model.state_dict())
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other):
        assert torch.equal(again(source, target), wanted)


def test_double_backward_and_half_precision() -> None:
    model, x = Encoder([encoder_layer()]).double(), torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda t: model(t, Causal()), x, atol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = both()(torch.randn(2, 4, 16), torch.randn(2, 3, 16))
    assert low.isfinite().all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: EncoderLayer(MultiHeadAttention(16, 2), FeedForward(8, 32)),
            r"width of the attention \(16\), but is 8",
        ),
        (lambda: decoder_layer(cross=MultiHeadAttention(8, 2)), r"`cross` must be of the width .*16.* but is 8"),
        (lambda: decoder_layer()(torch.randn(1, 2, 16)), "`memory` must be given"),
        (
            lambda: decoder_layer(cross=None)(torch.randn(1, 2, 16), torch.randn(1, 2, 16)),
            "`memory` must be None, as the layer has no `cross`",
        ),
        (lambda: Encoder([]), "at least one layer"),
        (lambda: Decoder([]), "at least one layer"),
        (lambda: encoder_layer(norm="batch"), r'EncoderLayer\(\): `norm` must be "layer" or "rms", but is .batch'),
        (lambda: FeedForward(8, 8, activation="tanhh"), '`activation` must be a function or one of "relu"'),
        (lambda: FeedForward(8, 8)(torch.randn(2, 7)), r"`x` must be of width 8"),
        (lambda: encoder_layer()(torch.randn(2, 3, 15)), r"`x` must be of shape \[batch, length, 16\]"),
        (lambda: encoder_layer(dropout_p=1.5), r"EncoderLayer\(\): `dropout_p` must be between 0 and 1, but is 1.5"),
        (lambda: MultiHeadAttention(16, 2, positions=nn.Linear(2, 2)), "`positions` must be Rotary, ALiBi"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
