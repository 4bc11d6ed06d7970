"""Dropout masks from a counter: a hash of (seed, batch, head, query, key), so that any tile can be replayed."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.ops._call import Call

_WORD = 0xFFFFFFFF


def _mix(x: Tensor) -> Tensor:
    """A bijection on 32-bit words (held in int64) whose output bits look independent of the input's.

    Source:
        C. Wellons, "Prospecting for Hash Functions" (the function named lowbias32).
    """
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _WORD
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


def kept(call: Call, rows: slice, keys: slice) -> Bool[Tensor, "batch heads r c"]:
    """Which weights of a tile survive dropout: each with probability 1 − p, the same at every call."""
    geometry = call.geometry
    device = geometry.device
    assert call.seed is not None
    word = _mix(call.seed.to(device) & _WORD)
    for size, dim, part in (
        (geometry.batch, 3, slice(None)),
        (geometry.num_heads, 2, slice(None)),
        (geometry.q_len, 1, rows),
        (geometry.kv_len, 0, keys),
    ):
        index = torch.arange(size, device=device)[part].reshape(-1, *(1,) * dim)
        word = _mix((word + index * 0x9E3779B1 + 0x85EBCA6B) & _WORD)
    return word >= int(call.dropout_p * 2**32)


def drop(weights: Tensor, call: Call, rows: slice, keys: slice) -> Tensor:
    """Zero the dropped weights of a tile and scale the rest by 1 / (1 − p); all zero for p = 1."""
    if call.dropout_p == 1:
        return weights * 0
    return weights.masked_fill(~kept(call, rows, keys), 0) / (1 - call.dropout_p)
