"""``torch.nn.functional.scaled_dot_product_attention``, told only what it does right."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.ops._call import Call, is_finite
from regard.ops.biases import blocks
from regard.records.mask_program import Op

ALL = slice(None)

LARGEST_DENSE_MASK = 1 << 24
"""Cells of a mask this backend will build (16 MiB of bool): beyond, memory is no longer linear in practice."""


def reasons_against(call: Call) -> list[str]:
    """Why this backend cannot take the call."""
    reasons = []
    if call.logit_softcap is not None:
        reasons.append("no logit_softcap")
    if call.sinks is not None:
        reasons.append("no sinks")
    if call.dropout_p > 0:
        reasons.append("its dropout cannot be replayed")
    cells = call.geometry.q_len * call.geometry.kv_len
    if call.value is not None and call.value.shape[3] != call.query.shape[3] and cells > 1 << 20:
        reasons.append("value_dim differs from head_dim, which makes it quadratic in memory")
    if _mode(call) == "dense":
        cells = _mask_cells(call)
        if cells > LARGEST_DENSE_MASK:
            reasons.append(f"its dense mask would hold {cells} cells")
        elif call.bias is not None and call.bias.requires_grad and torch.is_grad_enabled():
            reasons.append("the bias is learned")
    if not reasons and not _values_are_known_to_be_fine(call):
        reasons.append("NaN or Inf in query, key, value or bias, which it hides or spreads")
    return reasons


def forward(call: Call) -> Float[Tensor, "batch heads q value_dim"]:
    """The output."""
    assert call.value is not None
    mode = _mode(call)
    return torch.nn.functional.scaled_dot_product_attention(
        call.query,
        call.key,
        call.value,
        attn_mask=_dense_mask(call) if mode == "dense" else None,
        is_causal=mode == "causal",
        scale=call.scale,
        **({"enable_gqa": True} if call.group > 1 else {}),  # a plain bool also where sizes are symbols
    )


def _mode(call: Call) -> str:
    """How SDPA is told what is allowed: "plain", "causal" or by a "dense" mask."""
    if call.bias is not None:
        return "dense"
    if call.mask is None:
        return "plain"
    geometry = call.geometry
    if call.mask.code == (Op.CAUSAL,) and geometry.square:
        return "causal"
    return "dense"


def _mask_cells(call: Call) -> int:
    parts = [call.bias] if call.bias is not None else []
    batch = max([1, *(part.shape[0] for part in parts)])
    heads = max([1, *(part.shape[1] for part in parts)])
    if call.mask is not None:
        batch = max(batch, call.geometry.q_positions.shape[0], *(t.shape[0] for t in call.mask.tensors), 1)
        heads = max([heads, *(t.shape[1] for t in call.mask.tensors if t.dim() == 4)])
        if call.mask.functions:
            batch, heads = call.geometry.batch, call.geometry.num_heads
    return batch * heads * call.geometry.q_len * call.geometry.kv_len


def _dense_mask(call: Call) -> Tensor:
    allowed = None if call.mask is None else call.mask.allowed(call.geometry, ALL, ALL)
    if call.bias is None:
        assert allowed is not None
        return allowed
    # a half type would round scores of far keys together; on CPUs SDPA takes the statistics' own type beside any query
    dtype = call.geometry.dtype if call.query.device.type == "cpu" else call.query.dtype
    bias = call.bias.to(dtype).masked_fill(blocks(call.bias), -torch.inf)
    return bias if allowed is None else torch.where(allowed, bias, -torch.inf)


def _values_are_known_to_be_fine(call: Call) -> bool:
    """SDPA shows zeros for a NaN query and lets NaN through a mask, so values are looked at first, in linear time.

    On an accelerator and under a compiler looking would synchronise; there ``auto`` gives this backend only plain and
    causal calls, and the limit is documented.
    """
    if call.query.device.type != "cpu" or torch.compiler.is_compiling():
        return _mode(call) != "dense"
    assert call.value is not None
    if not all(is_finite(tensor.detach()) for tensor in (call.query, call.key, call.value)):
        return False
    if call.bias is None:
        return True
    bias = call.bias.detach()
    blocked = blocks(bias)
    if not is_finite(bias.masked_fill(blocked, 0)):
        return False
    allowed = call.allowed(ALL, ALL)
    return allowed is None or bool(allowed.any(dim=3).all())
