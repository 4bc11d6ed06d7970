"""The way in for plain PyTorch: a function mode that sees attention functions and softmaxes wherever they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from regard.lens._call import AttentionCall, Kind, kind_of
from regard.lens._frames import Frame, is_quiet
from regard.lens._heads import multi_head_call, multi_head_output
from regard.lens._own_softmax import note_softmax
from regard.lens._session import Session
from regard.lens.adapters import Adapter
from regard.ops import Causal

_SDPA = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in (
            ("query", inspect.Parameter.empty),
            ("key", inspect.Parameter.empty),
            ("value", inspect.Parameter.empty),
            ("attn_mask", None),
            ("dropout_p", 0.0),
            ("is_causal", False),
        )
    ]
    + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in (("scale", None), ("enable_gqa", False))]
)


class FunctionalMode(TorchFunctionMode):
    """Observes the attention functions that one session's model calls in this thread.

    Args:
        session: Where calls are written down.
        adapters: Asked what they know about a mask.
    """

    def __init__(self, session: Session, adapters: tuple[Adapter, ...]) -> None:
        super().__init__()
        self.session = session
        self.adapters = adapters

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        frame = self.session.frames.top if handler is not None else None
        if handler is None or frame is None or is_quiet():
            return func(*args, **kwargs)
        return handler(self, frame, func, args, kwargs)


def _scaled_dot_product(
    mode: FunctionalMode, frame: Frame, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    bound = _SDPA.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    call, value = _sdpa_call(mode, frame, given)
    if mode.session.serve == "regard" and mode.session.wants(frame.module):
        output = mode.session.output(call, value, given["dropout_p"])
        shape = (*given["query"].shape[:-1], value.shape[-1])
        output = output.reshape(shape)
    else:
        output = func(*args, **kwargs)
    mode.session.record(frame.module, call, via="functional")
    return output


def _sdpa_call(mode: FunctionalMode, frame: Frame, given: dict[str, Any]) -> tuple[AttentionCall, Tensor]:
    """Translate the arguments of ``F.scaled_dot_product_attention``."""
    query, key, value = (_four_dimensions(given[name]) for name in ("query", "key", "value"))
    q_len, kv_len = query.shape[2], key.shape[2]
    batch = max(query.shape[0], key.shape[0])
    query, key, value = (tensor.expand(batch, -1, -1, -1) for tensor in (query, key, value))
    attn_mask = given["attn_mask"]
    kind = kind_of(frame.name, given["query"], given["key"], q_len=q_len, kv_len=kv_len)
    place: dict[str, Any] = {"q_start": 0, "kv_start": 0}
    if given["is_causal"]:
        place["mask"] = Causal()  # torch aligns it to the upper left: query 0 sees key 0
    elif attn_mask is not None:
        place = _masked(mode, attn_mask, given["query"], kind, q_len=q_len, kv_len=kv_len)
        kv_len = place.pop("kv_len", kv_len)
        key, value = key[:, :, :kv_len], value[:, :, :kv_len]
    elif kind == "self":
        place["q_start"] = kv_len - q_len
    else:
        place["q_start"] = None
    return AttentionCall(query=query, key=key, kind=kind, scale=given["scale"], **place), value


def _masked(
    mode: FunctionalMode, attn_mask: Tensor, query: Tensor, kind: Kind, *, q_len: int, kv_len: int
) -> dict[str, Any]:
    """What a mask tensor says, from the adapter that saw it being made or from its own values."""
    for adapter in mode.adapters:
        known = adapter.known_mask(attn_mask)
        if known is not None:
            return {"mask": known.mask, "q_start": known.q_start, "kv_start": known.kv_start, "kv_len": known.kv_len}
    wide = attn_mask.expand(*query.shape[:-2], *attn_mask.shape[-2:]) if query.dim() > 4 else attn_mask
    wide = _four_dimensions(wide) if wide.dim() != 2 else wide[None, None]
    place: dict[str, Any] = {"q_start": kv_len - q_len if kind == "self" else None}
    place["mask" if attn_mask.dtype == torch.bool else "bias"] = wide
    return place


def _four_dimensions(tensor: Tensor) -> Tensor:
    """[..., heads, length, dim] as [batch, heads, length, dim]; three dimensions are one head per batch row."""
    if tensor.dim() == 3:
        return tensor[:, None]
    return tensor.reshape(-1, *tensor.shape[-3:]) if tensor.dim() > 4 else tensor


def _multi_head(
    mode: FunctionalMode, frame: Frame, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    bound = _MULTI_HEAD.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    kind = kind_of(
        frame.name, given["query"], given["key"], q_len=given["query"].shape[0], kv_len=given["key"].shape[0]
    )
    call, value = multi_head_call(given, kind)
    if mode.session.serve == "regard" and mode.session.wants(frame.module):
        output: Any = multi_head_output(mode.session, given, call, value)
    else:
        output = func(*args, **kwargs)
    mode.session.record(frame.module, call, via="functional")
    return output


def _softmax(
    mode: FunctionalMode, frame: Frame, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    note_softmax(mode.session, args, kwargs)
    return func(*args, **kwargs)


_MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)
_HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.scaled_dot_product_attention: _scaled_dot_product,
    functional.multi_head_attention_forward: _multi_head,
    functional.softmax: _softmax,
    torch.softmax: _softmax,
    Tensor.softmax: _softmax,
    torch.special.softmax: _softmax,
}
