"""Modules of ours made from those of ``torch.nn``, with the same parameters and the same results."""

from __future__ import annotations

import copy
from functools import singledispatch
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

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
        UnsupportedError: for ``add_bias_kv``, which no module here has; for a part of another class, a subclass with
            its own ways included; for hooks; for a layer whose parts drop different shares.
        DTypeError: if it is none of these modules.

    Example:
        >>> import torch
        >>> from regard.nn import from_torch
        >>> theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.randn(1, 5, 8)
        >>> bool(torch.allclose(from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6))
        True
    """
    if isinstance(module, nn.Module):
        for name, part in module.named_modules():
            if part._forward_hooks or part._forward_pre_hooks:
                problem = f"`module` has a forward hook at {name or 'its top'}, which would be lost."
                raise UnsupportedError(message("from_torch", problem))
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
    _need_class("module", module, nn.MultiheadAttention)
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
    _need_class("module", module, nn.TransformerEncoderLayer)
    shares = (module.dropout1, module.dropout2)
    layer = EncoderLayer(_made(module.self_attn), _feed_forward(module), **_options(module, *shares))
    layer.self_norm, layer.feed_forward_norm = _norm("norm1", module.norm1), _norm("norm2", module.norm2)
    return layer


@_made.register
def _decoder_layer(module: nn.TransformerDecoderLayer) -> DecoderLayer:
    _need_class("module", module, nn.TransformerDecoderLayer)
    shares = (module.dropout1, module.dropout2, module.dropout3)
    cross = _made(module.multihead_attn)
    layer = DecoderLayer(_made(module.self_attn), _feed_forward(module), cross=cross, **_options(module, *shares))
    layer.self_norm, layer.cross_norm = _norm("norm1", module.norm1), _norm("norm2", module.norm2)
    layer.feed_forward_norm = _norm("norm3", module.norm3)
    return layer


@_made.register
def _encoder(module: nn.TransformerEncoder) -> Encoder:
    _need_class("module", module, nn.TransformerEncoder)
    return Encoder(_layers(module, nn.TransformerEncoderLayer), norm=_last_norm(module))


@_made.register
def _decoder(module: nn.TransformerDecoder) -> Decoder:
    _need_class("module", module, nn.TransformerDecoder)
    return Decoder(_layers(module, nn.TransformerDecoderLayer), norm=_last_norm(module))


@_made.register
def _transformer(module: nn.Transformer) -> EncoderDecoder:
    _need_class("module", module, nn.Transformer)
    return EncoderDecoder(_made(module.encoder), _made(module.decoder))


def _need_class(name: str, module: nn.Module, *classes: type[nn.Module]) -> None:
    """Refuse what may compute something else; a parametrised part is read as it is now."""
    found = type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)
    if found not in classes:
        expected = " or ".join(f"an nn.{one.__name__} itself" for one in classes)
        raise UnsupportedError(message("from_torch", must_be(name, expected, f"a {found.__name__}")))


def _layers(module: Any, kind: type[nn.Module]) -> list[Any]:
    """A layer for each; one that stands in several places does so here."""
    made: dict[nn.Module, Any] = {}
    for layer in module.layers:
        _need_class("layers", layer, kind)
        if layer not in made:
            made[layer] = _made(layer)
    return [made[layer] for layer in module.layers]


def _norm(name: str, theirs: nn.Module) -> nn.Module:
    _need_class(name, theirs, nn.LayerNorm, nn.RMSNorm, nn.Identity)
    return copy.deepcopy(theirs)


def _last_norm(module: Any) -> nn.Module | None:
    return None if module.norm is None else _norm("norm", module.norm)


def _feed_forward(module: Any) -> FeedForward:
    for name in ("linear1", "linear2"):
        _need_class(name, getattr(module, name), nn.Linear)
    _need_class("dropout", module.dropout, nn.Dropout)
    wide, narrow, activation = module.linear1, module.linear2, module.activation
    ours = FeedForward(
        wide.in_features,
        wide.out_features,
        activation=copy.deepcopy(activation) if isinstance(activation, nn.Module) else activation,
        bias=wide.bias is not None,
        dropout_p=module.dropout.p,
    )
    _copy(wide, ours.wide)
    _copy(narrow, ours.narrow)
    return ours


def _options(module: Any, *dropouts: nn.Dropout) -> dict[str, Any]:
    for number, dropout in enumerate(dropouts, start=1):
        _need_class(f"dropout{number}", dropout, nn.Dropout)
    shares = [dropout.p for dropout in dropouts]
    if len(set(shares)) > 1:
        problem = f"a layer whose parts drop different shares ({', '.join(map(str, shares))}) cannot be converted."
        raise UnsupportedError(message("from_torch", problem))
    return {"norm_first": module.norm_first, "dropout_p": shares[0]}


def _copy(theirs: Any, ours: Any) -> None:
    _fill(ours, theirs.weight, theirs.bias)


def _fill(ours: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Copies of parameters, which are learned or not as theirs are."""
    ours.weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
    ours.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
