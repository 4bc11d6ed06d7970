"""What ``F.multi_head_attention_forward`` computes between its projections, from its own arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.lens._call import AttentionCall, Kind
from regard.lens._session import Session
from regard.ops import Allowed, Causal, Mask, Padding, weights


def multi_head_call(given: dict[str, Any], kind: Kind) -> tuple[AttentionCall, Tensor]:
    """Repeat the projections of one call.

    Args:
        given: Arguments of ``F.multi_head_attention_forward`` by name; inputs are [length, batch, embed] or unbatched.
        kind: Self- or cross-attention.

    Returns:
        The call and its values, [batch, heads, kv, head_dim].
    """
    query, key, value = _project(given)
    batch, heads = query.shape[:2]
    q_len, kv_len = query.shape[2], key.shape[2]
    extra = kv_len - _batched(given["key"]).shape[0] if given["static_k"] is None else 0
    mask: Mask | Tensor | None = None
    bias: Tensor | None = None
    padding, attn_mask = given["key_padding_mask"], given["attn_mask"]
    if padding is not None:
        padding = padding[None] if padding.dim() == 1 else padding
        keep = ~padding if padding.dtype == torch.bool else ~torch.isneginf(padding)
        mask = Padding(functional.pad(keep, (0, extra), value=True))
        if padding.dtype != torch.bool and bool((padding[keep] != 0).any()):
            bias = functional.pad(padding.masked_fill(~keep, 0.0), (0, extra))[:, None, None]
    if given["is_causal"] and padding is None and not given["need_weights"] and not extra:
        mask = Causal()  # torch then leaves the tensor aside and aligns to the upper left, as q_start = 0 does
    elif attn_mask is not None:
        wide = attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask.view(batch, heads, q_len, -1)
        if wide.dtype == torch.bool:
            mask = _and(mask, ~functional.pad(wide, (0, extra), value=False))
        else:
            wide = functional.pad(wide, (0, extra))
            bias = wide if bias is None else bias + wide
    return AttentionCall(query=query, key=key, kind=kind, mask=mask, bias=bias, q_start=0), value


def multi_head_context(given: dict[str, Any], call: AttentionCall, value: Tensor) -> Tensor:
    """What the heads put out, [batch, heads, q, head_dim]."""
    return Session.output(call, value, given["dropout_p"] if given["training"] else 0.0)


def multi_head_output(given: dict[str, Any], call: AttentionCall, context: Tensor) -> Any:
    """Finish one call from what its heads put out: project it, average the weights if they were asked for."""
    batch, _, q_len, _ = call.query.shape
    merged = context.permute(2, 0, 1, 3).reshape(q_len, batch, -1)
    output = functional.linear(merged, given["out_proj_weight"], given["out_proj_bias"])
    unbatched = given["query"].dim() == 2
    output = output[:, 0] if unbatched else output
    if not given["need_weights"]:
        return output, None
    matrix = weights(call.query, call.key, **call.options()).to(output.dtype)
    matrix = matrix.mean(1) if given["average_attn_weights"] else matrix
    return output, matrix[0] if unbatched else matrix


def without_columns(weight: Tensor, silenced: tuple[int, ...], heads: int) -> Tensor:
    """The output projection without the columns that read silenced heads: the same as zeros from these heads."""
    if not silenced:
        return weight
    head_dim = weight.shape[1] // heads
    columns = [column for head in silenced for column in range(head * head_dim, (head + 1) * head_dim)]
    return weight.index_fill(1, torch.tensor(columns, device=weight.device), 0)


def _and(mask: Mask | Tensor | None, tensor: Tensor) -> Mask | Tensor:
    return mask & Allowed(tensor) if isinstance(mask, Mask) else tensor


def _batched(tensor: Tensor) -> Tensor:
    return tensor[:, None] if tensor.dim() == 2 else tensor


def _project(given: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values per head, with the learned and the zero key appended where the module has them."""
    query, key, value = (_batched(given[name]) for name in ("query", "key", "value"))
    bias = given["in_proj_bias"]
    if given["use_separate_proj_weight"]:
        matrices = [given[f"{letter}_proj_weight"] for letter in "qkv"]
    else:
        matrices = list(given["in_proj_weight"].chunk(3))
    biases = bias.chunk(3) if bias is not None else (None, None, None)
    q, k, v = (
        functional.linear(tensor, matrix, part)
        for tensor, matrix, part in zip((query, key, value), matrices, biases, strict=True)
    )
    batch, heads = q.shape[1], given["num_heads"]
    if given["bias_k"] is not None:
        k = torch.cat([k, given["bias_k"].expand(1, batch, -1)])
        v = torch.cat([v, given["bias_v"].expand(1, batch, -1)])
    q, k, v = (tensor.reshape(tensor.shape[0], batch, heads, -1).permute(1, 2, 0, 3) for tensor in (q, k, v))
    if given["static_k"] is not None:
        k = given["static_k"].view(batch, heads, *given["static_k"].shape[1:])
    if given["static_v"] is not None:
        v = given["static_v"].view(batch, heads, *given["static_v"].shape[1:])
    if given["add_zero_attn"]:
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
    return q, k, v
