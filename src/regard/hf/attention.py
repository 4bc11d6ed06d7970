"""regard as an attention implementation of transformers, and the translation of what attention functions are handed.

    model.set_attn_implementation("regard")

computes every attention of the model with ``regard.attend``, with masks that are never filled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import output_capturing

from regard.errors import UnsupportedError, message
from regard.hf.lazy_mask import LazyMask, MaskRule, lazy_mask
from regard.ops import Allowed, Causal, Mask, Padding, attend, weights

NAME = "regard"
_NOT_EXPRESSIBLE = ("block_indices",)


@dataclass(frozen=True, eq=False)
class Placed:
    """A mask, what is added to the scores, and where queries and keys sit.

    Args:
        mask: What is allowed; None for everything.
        bias: What the mask argument adds to the scores, where it was not a mask alone.
        q_start: Absolute position of query 0; None where nothing tells.
        kv_start: Absolute position of key 0.
        kv_len: How many keys matter; later ones are masked for every query.
    """

    mask: Mask | Tensor | None
    bias: Tensor | None
    q_start: int | None
    kv_start: int
    kv_len: int


def regard_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function that ``AttentionInterface`` knows as "regard".

    Args:
        module: The attention module.
        query: [batch, heads, q, head_dim], after rotary embedding.
        key: [batch, kv_heads, kv, head_dim], after the cache update.
        value: [batch, kv_heads, kv, value_dim].
        attention_mask: A lazy mask, a tensor that a person or a model made, or None.
        **kwargs: ``scaling``, ``dropout``, ``is_causal``, ``softcap``, ``s_aux``, ``sinks``, ``position_bias``,
            ``indices``; what else models pass has no meaning for attention.

    Returns:
        The output, [batch, q, heads, value_dim], and the weights, [batch, heads, q, kv], if the model was called with
        ``output_attentions=True`` (quadratic memory; watch the model to see them in linear memory), else None.

    Raises:
        UnsupportedError: An argument that changes the result and cannot be expressed.
    """
    placed = place_mask(module, query, key, attention_mask, is_causal=kwargs.get("is_causal"), cross=is_cross(module))
    q_start = placed.q_start if placed.q_start is not None else 0
    aligned = q_start == placed.kv_start + placed.kv_len - query.shape[2]
    options = options_of(query, placed, kwargs)
    options |= {"q_start": "end" if aligned else q_start, "kv_start": placed.kv_start}
    seen = key[:, :, : placed.kv_len]
    output = attend(query, seen, value[:, :, : placed.kv_len], dropout_p=kwargs.get("dropout") or 0.0, **options)
    matrix = dense_weights(query, seen, key.shape[2], options) if weights_wanted(kwargs) else None
    return output.transpose(1, 2).contiguous(), matrix


def weights_wanted(kwargs: dict[str, Any]) -> bool:
    """Whether somebody called the model with ``output_attentions=True``, as an argument or as transformers notes it."""
    if kwargs.get("output_attentions"):
        return True
    collector: Any = getattr(output_capturing, "_active_collector", None)
    collected = collector.get() if collector is not None else None
    return any("attention" in key for key in collected or ())


def dense_weights(query: Tensor, key: Tensor, kv_len: int, options: dict[str, Any]) -> Tensor:
    """The whole weight matrix in the dtype of the query, zero for keys beyond those that matter."""
    matrix = weights(query, key, **options).to(query.dtype)
    return torch.nn.functional.pad(matrix, (0, kv_len - matrix.shape[3]))


def options_of(query: Tensor, placed: Placed, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Translate the keyword arguments of an attention function for ``regard.ops``.

    Returns:
        ``mask``, ``bias``, ``scale``, ``logit_softcap`` and ``sinks``.

    Raises:
        UnsupportedError: An argument that changes the result and cannot be expressed.
    """
    for name in _NOT_EXPRESSIBLE:
        if kwargs.get(name) is not None:
            raise UnsupportedError(message("attend", f"`{name}` of this model's sparse attention cannot be expressed."))
    bias, kv_len = placed.bias, placed.kv_len
    position_bias = kwargs.get("position_bias")
    if position_bias is not None:
        position_bias = position_bias[..., :kv_len]
        bias = position_bias if bias is None else bias + position_bias
    mask = placed.mask
    if (indices := kwargs.get("indices")) is not None:
        chosen = _chosen(indices, query, kv_len)
        mask = chosen if mask is None else _value(mask) & chosen
    sinks = kwargs.get("s_aux")
    return {
        "mask": mask,
        "bias": bias,
        "scale": kwargs.get("scaling"),
        "logit_softcap": kwargs.get("softcap"),
        "sinks": sinks if sinks is not None else kwargs.get("sinks"),
    }


def place_mask(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    *,
    is_causal: bool | None = None,
    rule: MaskRule | None = None,
    upper_left: bool = False,
    cross: bool = False,
) -> Placed:
    """Say what a mask argument allows and where it puts queries and keys.

    Args:
        module: Its ``is_causal`` decides where neither a mask nor ``is_causal`` does.
        query: Of the call.
        key: Of the call.
        attention_mask: As the attention function got it.
        is_causal: The argument of the attention function; overrides the module's.
        rule: Where the mask came from, when that is known.
        cross: Whether the keys are another sequence's, so that lengths do not tell where queries sit.
        upper_left: Without a mask, query 0 sees key 0 only (torch's convention), not the last query the last key.

    Returns:
        The mask and the positions.
    """
    q_len, kv_len = query.shape[2], key.shape[2]
    if isinstance(attention_mask, LazyMask):
        rule = attention_mask.rule
    if rule is not None:
        rule = rule.first_keys(kv_len)
        return Placed(rule.mask, None, rule.q_start, rule.kv_start, min(rule.kv_len, kv_len))
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    unknown = None if cross else kv_len - q_len
    if attention_mask is None:
        if not causal:
            return Placed(None, None, unknown, 0, kv_len)
        if upper_left and q_len > 1:
            return Placed(Causal(), None, 0, 0, min(q_len, kv_len))
        return Placed(Causal() if q_len > 1 else None, None, kv_len - q_len, 0, kv_len)
    if attention_mask.dim() == 2:
        keep: Mask = Padding(attention_mask[:, -kv_len:].bool())
        return Placed(keep & Causal() if causal and q_len > 1 else keep, None, unknown, 0, kv_len)
    attention_mask = attention_mask[..., :kv_len]
    if attention_mask.dtype == torch.bool:
        return Placed(attention_mask, None, unknown, 0, kv_len)
    return Placed(*_split(attention_mask), unknown, 0, kv_len)


_CROSS = re.compile(r"cross|encoder_attn|encdec", re.IGNORECASE)


def is_cross(module: nn.Module, name: str = "") -> bool:
    """Whether a module attends to another sequence: by its flag, its class or its name."""
    flag = getattr(module, "is_cross_attention", None)
    if isinstance(flag, bool):
        return flag
    last = name.rpartition(".")[2]
    return _CROSS.search(type(module).__name__) is not None or _CROSS.search(last) is not None


def _split(added: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """A float mask as what it blocks and what it adds; transformers blocks with the lowest value of the dtype."""
    blocked = added <= torch.finfo(added.dtype).min
    rest = added.masked_fill(blocked, 0)
    mask = ~blocked if bool(blocked.any()) else None
    return mask, rest if bool((rest != 0).any()) else None


def _value(mask: Mask | Tensor) -> Mask:
    return Allowed(mask) if isinstance(mask, Tensor) else mask


def _chosen(indices: Tensor, query: Tensor, kv_len: int) -> Mask:
    """The keys a sparse indexer chose for every query, [batch, q, top_k]; dense, as the indexer's own scores are."""
    known = (indices >= 0) & (indices < kv_len)
    chosen = torch.zeros(query.shape[0], query.shape[2], kv_len + 1, dtype=torch.bool, device=query.device)
    chosen.scatter_(-1, indices.long().where(known, kv_len), True)  # what is not a key goes to a column of its own
    return Allowed(chosen[:, None, :, :kv_len])


def register() -> None:
    """Make "regard" known to transformers; doing it again changes nothing."""
    AttentionInterface.register(NAME, regard_attention)
    AttentionMaskInterface.register(NAME, lazy_mask)
