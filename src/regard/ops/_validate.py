"""Checks the arguments of the public functions and brings them into normal form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import torch
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, all_problems, message, must_be
from regard.ops import masks
from regard.ops._call import Call, QStart
from regard.ops._lower import Lowered, four_dims, lower, lower_once
from regard.ops._placement import check_dense, check_device, check_values
from regard.ops._strip import LARGEST_POSITION, Geometry, statistics_dtype
from regard.ops.biases import ALiBi
from regard.ops.transforms import is_free_to_look_at

_AXES = {
    "query": ("batch", "num_heads", "q_len", "head_dim"),
    "key": ("batch", "num_kv_heads", "kv_len", "head_dim"),
    "value": ("batch", "num_kv_heads", "kv_len", "value_dim"),
}
_WITH_VALUES = ("attend", "observe", "explain_backend")
_SMALLEST, _LARGEST = torch.finfo(torch.float32).smallest_normal, torch.finfo(torch.float32).max
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def make_call(
    caller: str,
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    *,
    mask: masks.Mask | Tensor | None,
    bias: ALiBi | Tensor | None,
    scale: float | None,
    logit_softcap: float | None,
    sinks: Tensor | None,
    dropout_p: float = 0.0,
    q_start: QStart = "end",
    kv_start: int = 0,
) -> Call:
    """Check every argument and build the call that backends are given.

    Raises:
        ShapeError, DTypeError, ConfigError, UnsupportedError: as the public functions document.
    """
    alibi = bias if isinstance(bias, ALiBi) else None
    bias = None if isinstance(bias, ALiBi) else bias
    _check_tensors(caller, query=query, key=key, value=value, bias=bias, sinks=sinks)
    _check_devices(caller, query, key, value)
    query, key, value = _autocast(query), _autocast(key), None if value is None else _autocast(value)
    _check_shapes(caller, query, key, value)
    _check_dtypes(caller, query, key, value)
    _check_numbers(caller, scale, logit_softcap, dropout_p)
    geometry = make_geometry(
        caller,
        (*query.shape[:3], key.shape[2]),
        q_start=q_start,
        kv_start=kv_start,
        dtype=query.dtype,
        device=query.device,
    )
    seed = None
    if dropout_p > 0:
        seed = torch.randint(2**31, (), device=query.device)
    return Call(
        caller=caller,
        query=query,
        key=key,
        value=value,
        geometry=geometry,
        mask=None if mask is None else lower_given(caller, mask, geometry, q_start),
        bias=None if bias is None else _bias(caller, bias, geometry),
        alibi=None if alibi is None else _alibi(caller, alibi, geometry),
        scale=_usual_scale(query.shape[3]) if scale is None else float(scale),
        logit_softcap=None if logit_softcap is None else float(logit_softcap),
        sinks=None if sinks is None else _sinks(caller, sinks, geometry),
        dropout_p=float(dropout_p),
        seed=seed,
    )


def _usual_scale(head_dim: int) -> float:
    return head_dim**-0.5 if head_dim else 1.0


def describe(query: Tensor, key: Tensor, value: Tensor | None) -> dict[str, str]:
    """One aligned line per tensor for error messages."""
    lines = {}
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor is None:
            continue
        line = f"{tuple(tensor.shape)}  {str(tensor.dtype).removeprefix('torch.')} {tensor.device}"
        if tensor.dim() == 4:
            line += "  " + " ".join(f"{axis}={size}" for axis, size in zip(_AXES[name], tensor.shape, strict=True))
        lines[name] = line
    return lines


def _check_tensors(caller: str, **arguments: object) -> None:
    for name, value in arguments.items():
        may_be_none = name not in ("query", "key") and not (name == "value" and caller in _WITH_VALUES)
        if not isinstance(value, Tensor) and not (value is None and may_be_none):
            raise DTypeError(message(caller, must_be(name, "a tensor", f"a {type(value).__name__}")))
        if isinstance(value, Tensor):
            check_dense(caller, name, value)
            if name == "query":
                check_values(caller, name, value)


def _autocast(tensor: Tensor) -> Tensor:
    """Cast as autocast casts for scaled_dot_product_attention: everything floating but float64.

    What torch has not written out, a negated view or zeros, is: kernels, torch's own among them, read the memory.
    """
    if not torch.compiler.is_compiling():  # a compiler has neither
        tensor = tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()
    kind = tensor.device.type
    if tensor.dtype in _FLOATS and tensor.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor


def _check_shapes(caller: str, query: Tensor, key: Tensor, value: Tensor | None) -> None:
    def refuse(problem: str, hint: str | None = None) -> None:
        raise ShapeError(message(caller, problem, arguments=describe(query, key, value), hint=hint))

    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor is not None and tensor.dim() != 4:
            hint = f"a single sequence of one head is {name}[None, None]" if tensor.dim() == 2 else None
            refuse(f"`{name}` must have 4 dimensions [{', '.join(_AXES[name])}], but has {tensor.dim()}.", hint)
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and tensor.shape[0] != query.shape[0]:
            refuse(f"`{name}` must have the same batch as `query` ({query.shape[0]}), but has {tensor.shape[0]}.")
    if key.shape[3] != query.shape[3]:
        refuse(f"`key` must have the same head_dim as `query` ({query.shape[3]}), but has {key.shape[3]}.")
    heads, kv_heads = query.shape[1], key.shape[1]
    if (kv_heads == 0) != (heads == 0) or (kv_heads and heads % kv_heads):
        refuse(f"num_heads of `query` must be a multiple of num_kv_heads of `key` ({kv_heads}), but is {heads}.")
    if value is None:
        return
    if value.shape[1] != kv_heads:
        refuse(f"`value` must have the same num_kv_heads as `key` ({kv_heads}), but has {value.shape[1]}.")
    if value.shape[2] != key.shape[2]:
        refuse(f"`value` must have the same kv_len as `key` ({key.shape[2]}), but has {value.shape[2]}.")


def _check_devices(caller: str, query: Tensor, key: Tensor, value: Tensor | None) -> None:
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and tensor.device != query.device:
            problem = f"`{name}` must be on the device of `query` ({query.device}), but is on {tensor.device}."
            raise ConfigError(message(caller, problem, arguments=describe(query, key, value)))


def _check_dtypes(caller: str, query: Tensor, key: Tensor, value: Tensor | None) -> None:
    if query.dtype not in _FLOATS:
        wanted = "float64, float32, bfloat16 or float16"
        raise DTypeError(message(caller, must_be("query", wanted, query.dtype), arguments=describe(query, key, value)))
    for name, tensor in (("key", key), ("value", value)):
        if tensor is None:
            continue
        if tensor.dtype != query.dtype:
            problem = f"`{name}` must have the dtype of `query` ({query.dtype}), but has {tensor.dtype}."
            raise DTypeError(message(caller, problem, arguments=describe(query, key, value)))


def _check_numbers(caller: str, scale: float | None, logit_softcap: float | None, dropout_p: float) -> None:
    problems = []
    if scale is not None and not (_is_number(scale) and abs(scale) <= _LARGEST):
        problems.append(must_be("scale", "a finite number that float32 can hold", scale))
    if logit_softcap is not None and not (_is_number(logit_softcap) and _SMALLEST <= logit_softcap <= _LARGEST):
        problems.append(must_be("logit_softcap", "a number above 0 that float32 can hold, or None", logit_softcap))
    if not (_is_number(dropout_p) and 0 <= dropout_p <= 1):
        problems.append(must_be("dropout_p", "between 0 and 1", dropout_p))
    if problems:
        raise all_problems(caller, problems)


def _is_number(value: object) -> bool:
    """Whether it can stand for one number; a tensor would have to be read back from its device."""
    return isinstance(value, SupportsFloat) and not isinstance(value, str | Tensor)


def make_geometry(
    caller: str,
    shape: tuple[int, int, int, int],
    *,
    q_start: QStart,
    kv_start: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Geometry:
    """Where the queries and keys of a call of shape (batch, heads, q_len, kv_len) sit.

    Raises:
        DTypeError, ShapeError, ConfigError: if ``q_start`` or ``kv_start`` is not what it may be.
    """
    if isinstance(kv_start, bool) or not isinstance(kv_start, int | torch.SymInt):
        raise ConfigError(message(caller, must_be("kv_start", "an int", repr(kv_start))))
    batch, heads, q_len, kv_len = shape
    _check_position(caller, "kv_start", kv_start, kv_len)
    steps = torch.arange(q_len, device=device)[None]
    if isinstance(q_start, Tensor):
        check_dense(caller, "q_start", q_start)
        check_values(caller, "q_start", q_start)
        if q_start.dtype.is_floating_point or q_start.dtype.is_complex or q_start.dtype == torch.bool:
            raise DTypeError(message(caller, must_be("q_start", "integers (int64)", q_start.dtype)))
        if q_start.dim() > 1 or (q_start.dim() == 1 and q_start.shape[0] not in (1, batch)):
            raise ShapeError(message(caller, must_be("q_start", f"of shape ({batch},)", f"{tuple(q_start.shape)}")))
        if q_start.numel() and is_free_to_look_at(q_start):
            for place in q_start.aminmax():
                _check_position(caller, "q_start", int(place), q_len)
        positions = q_start.to(device).long().reshape(-1, 1) + steps
    elif q_start in ("end", "start"):
        positions = steps + (kv_start + kv_len - q_len if q_start == "end" else kv_start)
    elif isinstance(q_start, int) and not isinstance(q_start, bool):
        _check_position(caller, "q_start", q_start, q_len)
        positions = steps + q_start
    else:
        raise ConfigError(message(caller, must_be("q_start", '"end", "start", an int or a tensor', repr(q_start))))
    aligned = isinstance(q_start, str) and (q_start == "end" or q_len == kv_len)
    return Geometry(batch, heads, q_len, kv_len, positions, kv_start, statistics_dtype(dtype), device, aligned)


def _check_position(caller: str, name: str, start: int | torch.SymInt, length: int) -> None:
    """Refuse a number whose sequence would leave the positions there are."""
    if isinstance(start, int) and not -LARGEST_POSITION <= start <= LARGEST_POSITION - length:
        raise ConfigError(message(caller, must_be(name, "from −2^30 to 2^30 less the length", start)))


def lower_given(caller: str, mask: masks.Mask | Tensor, geometry: Geometry, q_start: QStart) -> Lowered:
    """Lower what was given as ``mask``, a tensor included.

    Raises:
        ShapeError, DTypeError: if it is none or does not fit the call.
    """
    if isinstance(mask, masks.Mask):
        return lower_once(mask, geometry, caller=caller, q_start=q_start)
    if not isinstance(mask, Tensor):
        raise DTypeError(message(caller, must_be("mask", "a mask or a bool tensor", f"a {type(mask).__name__}")))
    if mask.dtype.is_floating_point or mask.dtype.is_complex:
        hint = "scores that are added are a bias: bias=tensor; a 0/1 mask is Allowed(tensor != 0)"
        raise DTypeError(message(caller, must_be("mask", "bool (True = may attend)", mask.dtype), hint=hint))
    if mask.dtype != torch.bool:
        hint = "Allowed(mask) if 1 means may attend, Blocked(mask) if 1 means must not"
        raise DTypeError(message(caller, must_be("mask", "bool (True = may attend)", mask.dtype), hint=hint))
    if mask.dim() == 2 and geometry.batch > 1 and tuple(mask.shape) == (geometry.batch, geometry.kv_len):
        problem = f"`mask` of shape {tuple(mask.shape)} is read as [q_len, kv_len], but is also [batch, kv_len]."
        if geometry.q_len != geometry.batch:
            expected = f"[q_len, kv_len] = {(geometry.q_len, geometry.kv_len)}"
            problem = must_be("mask", expected, f"[batch, kv_len] = {tuple(mask.shape)}")
        hint = "mask=Padding(keep) for padding, mask[None, None] for [q_len, kv_len]"
        raise ShapeError(message(caller, problem, hint=hint))
    return lower(masks.Allowed(four_dims(mask, geometry, caller, "mask")), geometry, caller=caller)


def _bias(caller: str, bias: Tensor, geometry: Geometry) -> Tensor:
    if not bias.dtype.is_floating_point:
        hint = "what may be seen is a mask: mask=tensor (True = may attend)"
        raise DTypeError(message(caller, must_be("bias", "floating point", bias.dtype), hint=hint))
    full = (geometry.batch, geometry.num_heads, geometry.q_len, geometry.kv_len)
    shaped = bias[:, None] if bias.dim() == 3 else bias[(None,) * (4 - bias.dim())] if bias.dim() <= 4 else bias
    if shaped.dim() != 4 or any(have not in (1, need) for have, need in zip(shaped.shape, full, strict=True)):
        expected = f"broadcastable to [batch, heads, q_len, kv_len] = {full}"
        raise ShapeError(message(caller, must_be("bias", expected, f"of shape {tuple(bias.shape)}")))
    check_device(caller, "bias", bias, geometry.device)
    shaped = shaped.resolve_neg()
    if _looks_like_a_mask(bias):
        problem = "`bias` is added to the scores, but holds only 0 and 1, so it looks like a mask."
        raise ConfigError(message(caller, problem, hint="mask=tensor.bool() if 1 means may attend"))
    return shaped


def _alibi(caller: str, alibi: ALiBi, geometry: Geometry) -> ALiBi:
    slopes = alibi.slopes
    if slopes.shape[0] != geometry.num_heads:
        expected = f"one per head of `query` ({geometry.num_heads})"
        raise ShapeError(message(caller, must_be("ALiBi(slopes)", expected, f"of shape {tuple(slopes.shape)}")))
    if slopes.device != geometry.device:
        expected = f"on the device of `query` ({geometry.device})"
        raise ConfigError(message(caller, must_be("ALiBi(slopes)", expected, f"on {slopes.device}")))
    return alibi


def _looks_like_a_mask(bias: Tensor) -> bool:
    """Both 0 and 1 and nothing else. Looked at only where that is free: eager mode, CPU, not learned."""
    if bias.requires_grad or not is_free_to_look_at(bias):
        return False
    first = bias[(slice(0, 8),) * bias.dim()]
    if not bool(((first == 0) | (first == 1)).all()):
        return False
    ones = bias == 1
    return bool(ones.any()) and not bool(ones.all()) and bool((ones | (bias == 0)).all())


def _sinks(caller: str, sinks: Tensor, geometry: Geometry) -> Tensor:
    if not sinks.dtype.is_floating_point:
        raise DTypeError(message(caller, must_be("sinks", "floating point", sinks.dtype)))
    full = (geometry.batch, geometry.num_heads, geometry.q_len)
    shaped: Tensor | None = None
    if sinks.dim() == 1:
        shaped = sinks[None, :, None]
    elif sinks.dim() == 4 and sinks.shape[3] == 1:
        shaped = sinks[..., 0]
    if shaped is None or not _broadcasts(shaped.shape, full):
        expected = f"of shape [num_heads] = ({geometry.num_heads},) or [batch, heads, q_len, 1]"
        raise ShapeError(message(caller, must_be("sinks", expected, f"of shape {tuple(sinks.shape)}")))
    check_device(caller, "sinks", sinks, geometry.device)
    return shaped


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    return all(have in (1, need) for have, need in zip(shape, full, strict=True))
