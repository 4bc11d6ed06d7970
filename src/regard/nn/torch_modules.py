"""Modules of ours made from those of ``torch.nn``, with the same parameters and the same results."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, overload

import torch
from torch import Tensor, nn

from regard.errors import DTypeError, UnsupportedError, message, must_be
from regard.nn.attention import MultiHeadAttention
from regard.nn.block import DecoderLayer, EncoderLayer
from regard.nn.decoder import Decoder, EncoderDecoder
from regard.nn.encoder import Encoder
from regard.nn.feed_forward import FeedForward


@overload
def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention: ...
@overload
def from_torch(module: nn.TransformerEncoderLayer) -> EncoderLayer: ...
@overload
def from_torch(module: nn.TransformerDecoderLayer) -> DecoderLayer: ...
@overload
def from_torch(module: nn.TransformerEncoder) -> Encoder: ...
@overload
def from_torch(module: nn.TransformerDecoder) -> Decoder: ...
@overload
def from_torch(module: nn.Transformer) -> EncoderDecoder: ...
def from_torch(module: nn.Module) -> nn.Module:
    """Make a module of ours from one of torch's: attention, an encoder or decoder, a layer or a stack, or both.

    What changes is how it is called: batch first, whatever the original took, and ``mask`` says what is *allowed*,
    where ``key_padding_mask=pad`` is ``mask=Padding(~pad)`` and ``attn_mask=blocked`` is ``mask=~blocked``.

    Args:
        module: ``nn.MultiheadAttention``, ``nn.TransformerEncoder``, ``nn.TransformerDecoder``, ``nn.Transformer`` or
            one of the layers; pre- or post-norm, any activation.

    Returns:
        A module with copies of the parameters, in their dtype, on their device, in the same mode. Outputs and gradients
        are those of the original, with one difference: a query that may see no key gets zeros where torch gives NaN.

    Raises:
        UnsupportedError: for ``add_bias_kv``, which no module here has, or a layer of another class.
        DTypeError: if it is none of these modules.

    Example:
        >>> import torch
        >>> from regard.nn import from_torch
        >>> theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> bool(torch.allclose(from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6))
        True
    """
    made: nn.Module = _made(module).train(module.training)
    return made


@singledispatch
def _made(module: object) -> Any:
    expected = (
        "an nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer or a layer of one"
    )
    raise DTypeError(message("from_torch", must_be("module", expected, f"a {type(module).__name__}")))


@_made.register
def _attention(module: nn.MultiheadAttention) -> MultiHeadAttention:
    if module.bias_k is not None:
        problem = "a module with add_bias_kv=True has a learned key, for which there is no place here."
        raise UnsupportedError(message("from_torch", problem, hint="sinks=True of MultiHeadAttention is close to it"))
    ours = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        kv_dim=(module.kdim, module.vdim),
        bias=module.in_proj_bias is not None,
        sinks=module.add_zero_attn,
        dropout_p=module.dropout,
    )
    matrices: Any = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    if module.in_proj_weight is not None:
        matrices = module.in_proj_weight.chunk(3)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    for linear, matrix, bias in zip((ours.query, ours.key, ours.value), matrices, biases, strict=True):
        _fill(linear, matrix, bias)
    _copy(module.out_proj, ours.output)
    if ours.sinks is not None:  # a key and a value of zeros: a score of 0 that adds nothing
        ours.sinks = nn.Parameter(torch.zeros_like(ours.sinks).to(matrices[0]), requires_grad=False)
    return ours


@_made.register
def _encoder_layer(module: nn.TransformerEncoderLayer) -> EncoderLayer:
    layer = EncoderLayer(_made(module.self_attn), _feed_forward(module), **_options(module))
    _copy(module.norm1, layer.self_norm)
    _copy(module.norm2, layer.feed_forward_norm)
    return layer


@_made.register
def _decoder_layer(module: nn.TransformerDecoderLayer) -> DecoderLayer:
    cross = _made(module.multihead_attn)
    layer = DecoderLayer(_made(module.self_attn), _feed_forward(module), cross=cross, **_options(module))
    assert layer.cross_norm is not None
    _copy(module.norm1, layer.self_norm)
    _copy(module.norm2, layer.cross_norm)
    _copy(module.norm3, layer.feed_forward_norm)
    return layer


@_made.register
def _encoder(module: nn.TransformerEncoder) -> Encoder:
    return Encoder([_layer(layer) for layer in module.layers], norm=_norm(module.norm))


@_made.register
def _decoder(module: nn.TransformerDecoder) -> Decoder:
    return Decoder([_layer(layer) for layer in module.layers], norm=_norm(module.norm))


@_made.register
def _transformer(module: nn.Transformer) -> EncoderDecoder:
    return EncoderDecoder(_made(module.encoder), _made(module.decoder))


def _layer(module: nn.Module) -> Any:
    if not isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        problem = f"a stack with layers of class {type(module).__name__} cannot be converted."
        raise UnsupportedError(message("from_torch", problem))
    return _made(module)


def _norm(theirs: nn.Module | None) -> nn.Module | None:
    """A copy of the last norm of a stack."""
    if theirs is None:
        return None
    if not isinstance(theirs, nn.LayerNorm):
        problem = f"a stack whose norm is a {type(theirs).__name__} cannot be converted."
        raise UnsupportedError(message("from_torch", problem))
    ours = nn.LayerNorm(theirs.normalized_shape, eps=theirs.eps, bias=theirs.bias is not None)
    _copy(theirs, ours)
    return ours


def _feed_forward(module: Any) -> FeedForward:
    wide, narrow = module.linear1, module.linear2
    ours = FeedForward(
        wide.in_features,
        wide.out_features,
        activation=module.activation,
        bias=wide.bias is not None,
        dropout_p=module.dropout.p,
    )
    _copy(wide, ours.wide)
    _copy(narrow, ours.narrow)
    return ours


def _options(module: Any) -> dict[str, Any]:
    return {"norm_eps": module.norm1.eps, "norm_first": module.norm_first, "dropout_p": module.dropout1.p}


def _copy(theirs: Any, ours: Any) -> None:
    _fill(ours, theirs.weight, theirs.bias)


def _fill(ours: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Copies of parameters, which are learned or not as theirs are."""
    ours.weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
    ours.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
