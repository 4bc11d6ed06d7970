"""Inputs that a module cannot take are named by it, as they were given, before torch sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import DTypeError, ShapeError
from regard.nn import (
    AdditiveAttention,
    AttentionDecoder,
    CausalBlock,
    CausalConvolution,
    DotAttention,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    RecurrentEncoder,
    SelfAttention,
    TextBlock,
)
from regard.nn.recurrent_decoder import DecoderState

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.randn(2, 5, 16)
DECODER = AttentionDecoder("lstm", 16, 8, 16)

CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "AdditiveAttention": (lambda x: AdditiveAttention(16, 16, 4)(x, X), "query"),
    "AttentionDecoder": (lambda x: DECODER(x, DECODER.start(2), DECODER.remember(X)), "inputs"),
    "AttentionDecoder memory": (lambda x: DECODER.remember(x), "memory"),
    "CausalBlock": (lambda x: CausalBlock(16, 3)(x), "inputs"),
    "CausalConvolution": (lambda x: CausalConvolution(16, 16, 3)(x), "inputs"),
    "DotAttention": (lambda x: DotAttention(16, 16, score="general")(x, X), "query"),
    "EncoderLayer": (lambda x: EncoderLayer(MultiHeadAttention(16, 4), FeedForward(16, 16))(x), "x"),
    "MultiHeadAttention": (lambda x: MultiHeadAttention(16, 4)(x), "query"),
    "RecurrentEncoder": (lambda x: RecurrentEncoder("gru", 16, 4)(x), "inputs"),
    "SelfAttention": (lambda x: SelfAttention(16, 4)(x, X), "query"),
    "TextBlock": (lambda x: TextBlock(16, 3)(x), "inputs"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_sequence_is_a_tensor_of_three_dimensions_in_the_dtype_of_the_weights(name: str) -> None:
    call, argument = CALLS[name]
    call(X)
    caller = rf"{name.split()[0]}\(\): `{argument}` must be"
    for given in (None, [1.0], "text"):
        with pytest.raises(DTypeError, match=rf"{caller} a tensor, but is a {type(given).__name__}"):
            call(given)
    for given in (X.double(), X.bfloat16(), X.long()):
        with pytest.raises(DTypeError, match=rf"{caller} of the dtype .*\(torch.float32\), but is of {given.dtype}"):
            call(given)
    with pytest.raises(ShapeError, match=caller):
        call(X[..., :7])
    with pytest.raises(ShapeError, match=rf"(?s){caller}.*a single sequence is {argument}\[None\]"):
        call(X[0])


@pytest.mark.parametrize("name", ["AdditiveAttention", "EncoderLayer", "MultiHeadAttention", "SelfAttention"])
def test_autocast_brings_dtypes_together_by_itself(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        CALLS[name][0](X.bfloat16())
        with pytest.raises(DTypeError, match=r"but is of torch.int64"):
            CALLS[name][0](X.long())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_maps_have_dtypes_of_their_own() -> None:
    module = MultiHeadAttention(16, 4).eval()
    quantised = torch.ao.quantization.quantize_dynamic(module, {nn.Linear})
    torch.testing.assert_close(quantised(X), module(X), atol=0.1, rtol=0)


KEEPS: dict[str, Callable[[Any], object]] = {
    "AttentionDecoder": lambda keep: DECODER.remember(X, keep),
    "CausalBlock": lambda keep: CausalBlock(16, 3)(X, keep=keep),
    "RecurrentEncoder": lambda keep: RecurrentEncoder("lstm", 16, 4)(X, keep),
    "TextBlock": lambda keep: TextBlock(16, 3)(X, keep),
}


@pytest.mark.parametrize("name", KEEPS)
def test_keep_is_bool_and_of_the_shape_of_the_inputs(name: str) -> None:
    keep = torch.ones(2, 5, dtype=torch.bool)
    KEEPS[name](keep)
    for given in (keep.long(), keep.float()):
        with pytest.raises(DTypeError, match=rf"{name}\(\): `keep` must be bool .* but is {given.dtype}"):
            KEEPS[name](given)
    with pytest.raises(DTypeError, match=r"`keep` must be bool .* but is a list"):
        KEEPS[name]([[True] * 5] * 2)
    with pytest.raises(ShapeError, match=rf"{name}\(\): `keep` must be of shape \(2, 5\), but is of shape \(2, 4\)"):
        KEEPS[name](keep[:, :4])


@pytest.mark.parametrize("lengths", [torch.tensor([5.0, 3.5]), torch.tensor([True, False]), [5, 3]])
def test_lengths_are_integers(lengths: Any) -> None:
    with pytest.raises(DTypeError, match="`lengths` must be a tensor of integers, but is"):
        RecurrentEncoder("gru", 16, 4)(X, lengths=lengths)


@pytest.mark.parametrize("attention", [AdditiveAttention(16, 16, 4), DotAttention(16, 16, score="general")])
@pytest.mark.parametrize("wrong", [lambda p: p[:1], lambda p: p[:, :3], lambda p: p[..., :1]])
def test_projected_keys_are_those_of_the_keys(attention: Any, wrong: Callable[[Tensor], Tensor]) -> None:
    projected = attention.project(X)
    attention(X, X, projected=projected)
    with pytest.raises(ShapeError, match=r"`projected` must be of shape \(2, 5, \d+\), as project\(key\) is, but is"):
        attention(X, X, projected=wrong(projected))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: DECODER(X, DECODER.start(2), X), r"`memory` must be what remember\(\) returned, but is a Tensor"),
        (lambda: DECODER(X, None, DECODER.remember(X)), r"`state` must be what start\(\) returned, but is a NoneType"),
        (
            lambda: DECODER(X, DECODER.start(3), DECODER.remember(X)),
            r"`state` must be 2 tensor\(s\) of shape \(1, 2, 8\), but is of shapes \[\(1, 3, 8\), \(1, 3, 8\)\]",
        ),
        (
            lambda: DECODER(X, DecoderState((torch.zeros(1, 2, 8),), torch.zeros(2, 8)), DECODER.remember(X)),
            r"`state` must be 2 tensor\(s\) of shape \(1, 2, 8\), but is of shapes \[\(1, 2, 8\)\]",
        ),
        (lambda: DECODER(X, DECODER.start(2), DECODER.remember(X[:1])), r"`memory` must have the batch of `inputs`"),
        (lambda: RecurrentEncoder("gru", 16, 4)(X, state="zero"), r"`state` must be 1 tensor\(s\) .* \['str'\]"),
    ],
)
def test_a_state_is_what_was_returned(call: Callable[[], object], text: str) -> None:
    with pytest.raises((ShapeError, DTypeError), match=text):
        call()
