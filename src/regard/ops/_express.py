"""The short way for the calls that are most common and often small: plain or causal attention without a gradient.

``attend`` asks here first. What is checked is only whether a call is one of these; any doubt, errors included, is left
to the long way, which computes the same by the same kernels and knows every rule.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.ops import masks
from regard.ops._backends import native, native_library
from regard.ops._backends.native_library import CBias, CCall, CMask
from regard.ops.transforms import in_transform

_NO_BIAS, _NO_MASK = CBias(), CMask()


def attend_plainly(query: object, key: object, value: object, mask: object, scale: float | None) -> Tensor | None:
    """The output of a plain or causal call, or None where the long way must decide."""
    if not (type(query) is type(key) is type(value) is Tensor) or type(mask) not in (type(None), masks.Causal):
        return None
    assert isinstance(query, Tensor)
    assert isinstance(key, Tensor)
    assert isinstance(value, Tensor)
    dtype = native.DTYPES.get(query.dtype)
    if dtype is None or key.dtype != query.dtype or value.dtype != query.dtype or not _may_run(query, key, value):
        return None
    if not query.dim() == key.dim() == value.dim() == 4:
        return None
    batch, heads, q_len, head_dim = query.shape
    _, kv_heads, kv_len, _ = key.shape
    value_dim = value.shape[3]
    if key.shape != (batch, kv_heads, kv_len, head_dim) or value.shape != (batch, kv_heads, kv_len, value_dim):
        return None
    if not (batch and heads and q_len and head_dim and kv_heads and kv_len and value_dim) or heads % kv_heads:
        return None
    if max(head_dim, value_dim) > native.LARGEST_DIM or not query.stride(3) == key.stride(3) == value.stride(3) == 1:
        return None
    library = native_library.kernels()
    if library is None:
        return None
    output = query.new_empty(batch, heads, q_len, value_dim)
    call = CCall(
        dtype,
        torch.get_num_threads(),
        batch,
        heads,
        kv_heads,
        q_len,
        kv_len,
        head_dim,
        value_dim,
        head_dim**-0.5 if scale is None else scale,
        0.0,
        native.c_tensor(query),
        native.c_tensor(key),
        native.c_tensor(value),
        None,
        0,
        0,
        _NO_MASK if mask is None else _causal_mask(q_len, kv_len)[0],
        _NO_BIAS,
        None,
        0,
        0,
        0,
        native.c_tensor(output),
        None,
        None,
        0,
    )
    native.check(library.regard_forward(ctypes.byref(call)))
    return output


def _may_run(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether nothing is at work that wants to see more of a call than its numbers."""
    if torch.compiler.is_compiling():  # first: a compiler cannot trace all of the questions below
        return False
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    if not (query.is_cpu and key.is_cpu and value.is_cpu) or torch.is_autocast_enabled("cpu"):
        return False
    if query.is_nested or key.is_nested or value.is_nested:  # which have strides of their own kind
        return False
    if query.layout != torch.strided or key.layout != torch.strided or value.layout != torch.strided:
        return False
    if torch._C._len_torch_dispatch_stack() > 0:
        return False
    if not (native.is_plain(query) and native.is_plain(key) and native.is_plain(value)):
        return False
    return not (forward_ad._current_level >= 0 or in_transform())


@lru_cache(maxsize=64)
def _causal_mask(q_len: int, kv_len: int) -> tuple[CMask, Tensor, Tensor]:
    """Query i of the last q_len positions sees the keys up to its own."""
    high = torch.arange(kv_len - q_len + 1, kv_len + 1, dtype=torch.int32, device="cpu").clamp_(min=0)
    low = torch.zeros_like(high)
    return CMask(low.data_ptr(), high.data_ptr(), 0, 0), low, high
