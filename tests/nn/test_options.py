"""Options and arguments that cannot be are named by what takes them, as they were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regard.errors import ConfigError, DTypeError, ShapeError
from regard.nn import (
    AdditiveAttention,
    ALiBi,
    AttentionDecoder,
    CausalBlock,
    CausalConvolution,
    Decoder,
    DecoderLayer,
    DotAttention,
    Encoder,
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    LearnedPositions,
    MultiHeadAttention,
    RecurrentEncoder,
    RelativeBias,
    Rotary,
    SelfAttention,
    SinusoidalPositions,
    TextBlock,
    TokenEmbedding,
)
from regard.ops import Causal

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.randn(2, 3, 16)


def layer(kind: Any = EncoderLayer, **options: Any) -> nn.Module:
    made: nn.Module = kind(MultiHeadAttention(16, 4), FeedForward(16, 32), **options)
    return made


SIZES: dict[str, tuple[Callable[[Any], object], str]] = {
    "AdditiveAttention": (lambda size: AdditiveAttention(4, 4, size), "attention_dim"),
    "ALiBi": (lambda size: ALiBi(size), "num_heads"),
    "AttentionDecoder": (lambda size: AttentionDecoder("gru", 4, 4, size), "memory_dim"),
    "CausalBlock": (lambda size: CausalBlock(4, size), "kernel_size"),
    "CausalConvolution": (lambda size: CausalConvolution(4, 4, 3, dilation=size), "dilation"),
    "DotAttention": (lambda size: DotAttention(4, size, score="general"), "key_dim"),
    "FeedForward": (lambda size: FeedForward(4, size), "ff_dim"),
    "KeyValueCache": (lambda size: KeyValueCache(window=size), "window"),
    "LearnedPositions": (lambda size: LearnedPositions(size, 4), "max_len"),
    "MultiHeadAttention": (lambda size: MultiHeadAttention(16, size), "num_heads"),
    "RecurrentEncoder": (lambda size: RecurrentEncoder("lstm", size, 4), "input_dim"),
    "RelativeBias": (lambda size: RelativeBias(size), "num_heads"),
    "SelfAttention": (lambda size: SelfAttention(16, size), "heads"),
    "SinusoidalPositions": (lambda size: SinusoidalPositions(size), "dim"),
    "TextBlock": (lambda size: TextBlock(size, 3), "dim"),
    "TokenEmbedding": (lambda size: TokenEmbedding(size, 4), "vocab_size"),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_an_integer_of_at_least_one(name: str) -> None:
    make, argument = SIZES[name]
    make(4)
    with pytest.raises(ConfigError, match=rf"{name}\(\): `{argument}` must be at least 1, but is 0"):
        make(0)
    for size in ("4", 4.0, True, [4]):
        with pytest.raises(ConfigError) as caught:
            make(size)
        assert str(caught.value) == f"{name}(): `{argument}` must be an integer of at least 1, but is {size!r}."


SHARES: dict[str, Callable[[Any], object]] = {
    "CausalBlock": lambda share: CausalBlock(4, 3, dropout_p=share),
    "DecoderLayer": lambda share: layer(DecoderLayer, dropout_p=share),
    "EncoderLayer": lambda share: layer(dropout_p=share),
    "FeedForward": lambda share: FeedForward(4, 4, dropout_p=share),
    "MultiHeadAttention": lambda share: MultiHeadAttention(16, 4, dropout_p=share),
    "RecurrentEncoder": lambda share: RecurrentEncoder("gru", 4, 4, dropout_p=share),
    "TokenEmbedding": lambda share: TokenEmbedding(4, 4, dropout_p=share),
}


@pytest.mark.parametrize("share", ["0.1", 2, float("nan"), True])
@pytest.mark.parametrize("name", SHARES)
def test_a_share_is_a_number_from_zero_to_one(name: str, share: Any) -> None:
    SHARES[name](0.5)
    with pytest.raises(ConfigError, match=rf"{name}\(\): `dropout_p` must be between 0 and 1, but is {share!r}"):
        SHARES[name](share)


def test_all_options_that_cannot_be_are_listed_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`kv_dim` .* 0.*`num_heads` .*'4'.*`dropout_p` .* -1"):
        MultiHeadAttention(16, "4", kv_dim=0, dropout_p=-1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MultiHeadAttention(16, 4, kv_dim=(8, 0)), r"`kv_dim\[1\]` must be at least 1, but is 0"),
        (
            lambda: MultiHeadAttention(16, 4, positions=ALiBi(2)),
            r"`positions` must be ALiBi of num_heads \(4\), but is of 2",
        ),
        (lambda: MultiHeadAttention(16, 4, positions=RelativeBias(8)), r"RelativeBias of num_heads \(4\), but is of 8"),
        (
            lambda: layer(DecoderLayer, cross=MultiHeadAttention(16, 4, positions=Rotary(4))),
            "`cross` must be an attention without positions, but is with Rotary",
        ),
        (
            lambda: TokenEmbedding(8, 4, positions="learned"),  # type: ignore[arg-type]
            "`positions` must be SinusoidalPositions, LearnedPositions or None, but is a str",
        ),
        (lambda: Encoder([layer()], norm="layer"), r"Encoder\(\): `norm` must be a module or None, but is 'layer'"),  # type: ignore[arg-type]
        (lambda: Decoder([layer(DecoderLayer)], norm="rms"), r"Decoder\(\): `norm` must be a module or None"),  # type: ignore[arg-type]
        (lambda: SelfAttention(16, 4, scale=[1]), r'`scale` must be "head", "embed", a number or None, but is \[1\]'),  # type: ignore[arg-type]
        (lambda: Rotary(8, base="1e4"), "`base` must be above 1, but is '1e4'"),  # type: ignore[arg-type]
        (lambda: Rotary("8"), "`dim` must be even and at least 2, but is '8'"),  # type: ignore[arg-type]
    ],
)
def test_what_a_module_cannot_be_made_of_is_named(make: Callable[[], object], text: str) -> None:
    with pytest.raises((ConfigError, ShapeError), match=text):
        make()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: MultiHeadAttention(16, 4)(X, Causal()), "(?s)`key` must be a tensor, but is a Causal.*given as mask="),
        (lambda: MultiHeadAttention(16, 4)([[1.0]]), "`query` must be a tensor, but is a list"),
        (
            lambda: MultiHeadAttention(16, 4)(X, kv_cache=KeyValueCache()),
            r"(?s)`kv_cache` must be the LayerCache of one layer, but is a KeyValueCache.*KeyValueCache\(\).layer",
        ),
        (lambda: MultiHeadAttention(16, 4, kv_dim=8)(X), r"`key` must be of shape \[batch, length, 8\]"),
        (lambda: MultiHeadAttention(16, 4, kv_dim=(16, 8))(X), r"`value` must be of shape \[batch, length, 8\]"),
    ],
)
def test_what_an_attention_cannot_be_called_with_is_named(call: Callable[[], object], text: str) -> None:
    with pytest.raises((DTypeError, ShapeError), match=text):
        call()


def test_a_scale_of_none_is_that_of_a_head() -> None:
    assert SelfAttention(16, 4, scale=None).scale == SelfAttention(16, 4).scale == 0.5
    assert "scale=0.5" in repr(SelfAttention(16, 4, scale=None))
