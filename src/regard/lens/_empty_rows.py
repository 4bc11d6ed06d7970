"""Batch rows that see nothing, appended to a call: how finished hypotheses of a beam search are carried along."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.lens._call import AttentionCall
from regard.ops.masks import Allowed, And, Blocked, Documents, Mask, Not, Or, Padding, Prefix, Where


def with_empty_rows(call: AttentionCall, count: int) -> AttentionCall:
    """Append batch rows whose queries may see no key, so that their probes gain rows of zeros.

    Args:
        call: A call of ``batch`` rows.
        count: How many rows to append.

    Returns:
        The call with ``batch + count`` rows.
    """
    if count == 0:
        return call
    batch, kv_len = call.query.shape[0], call.key.shape[2]
    live = torch.zeros(batch + count, kv_len, dtype=torch.bool, device=call.key.device)
    live[:batch] = True
    mask: Mask = Padding(live)
    if call.mask is not None:
        own = Allowed(call.mask) if isinstance(call.mask, Tensor) else call.mask
        mask = _longer(own, batch, count) & mask
    return replace(
        call,
        query=_pad(call.query, count),
        key=_pad(call.key, count),
        mask=mask,
        bias=_pad_batch(call.bias, batch, count),
        sinks=_pad_batch(call.sinks, batch, count) if call.sinks is not None and call.sinks.dim() == 4 else call.sinks,
    )


def _longer(mask: Mask, batch: int, count: int) -> Mask:
    """The mask for a larger batch: every tensor in it that has a row per batch row gets more."""
    parts: dict[str, Any]
    match mask:
        case And() | Or() | Not():
            parts = {field.name: _longer(getattr(mask, field.name), batch, count) for field in fields(mask)}
        case Padding() | Documents() | Prefix():
            parts = {field.name: _pad_batch(getattr(mask, field.name), batch, count) for field in fields(mask)}
        case Allowed() | Blocked():
            (name,) = (field.name for field in fields(mask))
            tensor = getattr(mask, name)
            parts = {name: tensor if tensor.dim() < 3 else _pad_batch(tensor, batch, count)}
        case Where(fn):
            # a predicate that looks something up per batch row has nothing for the new ones; they see nothing anyway
            return Where(lambda b, h, i, j: fn(b.clamp(max=batch - 1), h, i, j))
        case _:
            return mask
    return replace(mask, **parts)


def _pad_batch(tensor: Any, batch: int, count: int) -> Any:
    """More rows for a tensor with one per batch row; what broadcasts along the batch, or is no tensor, as it is."""
    if not isinstance(tensor, Tensor) or tensor.dim() == 0 or tensor.shape[0] == 1 or tensor.shape[0] != batch:
        return tensor
    return _pad(tensor, count)


def _pad(tensor: Tensor, count: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(count, *tensor.shape[1:])])
