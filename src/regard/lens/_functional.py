"""The way in for plain PyTorch: a function mode that sees attention functions and softmaxes wherever they run."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from regard.lens._call import AttentionCall, Kind, kind_of
from regard.lens._frames import Frame, is_quiet, quiet
from regard.lens._heads import multi_head_call, multi_head_context, multi_head_output, without_columns
from regard.lens._own_softmax import changed_softmax, note_softmax
from regard.lens._session import Session, changed_by
from regard.lens.changes import Changed
from regard.lens.kept import Output
from regard.ops import Causal, Documents, Mask, SlidingWindow, Where, attend, weights
from regard.ops.masks import And, Not, Or

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
    + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (("scale", None), ("enable_gqa", False))
    ]
)


_Watcher = tuple[Session, Frame]


class _Active(threading.local):
    """The sessions whose models are running in this thread, and the mode that listens for them."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.mode: FunctionalMode | None = None


_active = _Active()


class FunctionalMode(TorchFunctionMode):
    """Sees every torch function that a thread calls while a watched model runs in it.

    One mode per thread serves all sessions, so nested watches write the same calls down.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is None or is_quiet():
            return func(*args, **kwargs)
        watchers = [(session, frame) for session in _active.sessions if (frame := session.frames.top) is not None]
        return handler(watchers, func, args, kwargs)


def listen(session: Session) -> None:
    """The session's model starts to run in this thread."""
    _active.sessions.append(session)
    if _active.mode is None:
        _active.mode = FunctionalMode()
        _active.mode.__enter__()  # type: ignore[no-untyped-call]


def unlisten(session: Session) -> None:
    """It has ended."""
    if session in _active.sessions:
        _active.sessions.remove(session)
    if not _active.sessions and _active.mode is not None:
        _active.mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        _active.mode = None


def _serves(watchers: list[_Watcher]) -> bool:
    return any(session.serve == "regard" and session.wants(frame.module) for session, frame in watchers)


def _changed(watchers: list[_Watcher], call: AttentionCall) -> Changed:
    return changed_by([(session, frame.module) for session, frame in watchers], call)


def _record(
    watchers: list[_Watcher], changed: Changed, *, via: str = "functional", value: Tensor, output: Output | None
) -> None:
    for session, frame in watchers:
        session.record(frame.module, changed, via=via, value=value, output=output)


def _scaled_dot_product(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    bound = _SDPA.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if given["query"].is_nested:
        for session, frame in watchers:
            session.refuse(frame.module, "its inputs are nested tensors")
        return func(*args, **kwargs)
    call, value = _sdpa_call(*watchers[-1], given)
    changed = _changed(watchers, call)
    with quiet():
        if changed.recomputed or _serves(watchers):
            output = Session.output(changed.call, value, given["dropout_p"])
            output = output.reshape(*given["query"].shape[:-1], value.shape[-1])
        else:
            output = func(*args, **kwargs)
        if changed.silenced:
            output = changed.without_silenced(_four_dimensions(output), dim=1).reshape(output.shape)
    _record(watchers, changed, value=value, output=Output(output, -3) if output.dim() > 3 else None)
    return output


def _sdpa_call(session: Session, frame: Frame, given: dict[str, Any]) -> tuple[AttentionCall, Tensor]:
    """Translate the arguments of ``F.scaled_dot_product_attention``."""
    query, key, value = (_four_dimensions(given[name]) for name in ("query", "key", "value"))
    q_len, kv_len = query.shape[2], key.shape[2]
    batch = max(query.shape[0], key.shape[0])
    heads = max(query.shape[1], key.shape[1])
    query = query.expand(batch, heads, -1, -1)
    key, value = key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)
    attn_mask = given["attn_mask"]
    kind = kind_of(frame.name, given["query"], given["key"], q_len=q_len, kv_len=kv_len)
    if kind == "cross" and session.grows(frame.module, q_len=q_len, kv_len=kv_len):
        kind = "self"
    place: dict[str, Any] = {"q_start": 0, "kv_start": 0}
    if given["is_causal"]:
        place["mask"] = Causal()  # torch aligns it to the upper left: query 0 sees key 0
    elif attn_mask is not None:
        place = _masked(session, attn_mask, given["query"], kind, q_len=q_len, kv_len=kv_len)
        kv_len = place.pop("kv_len", kv_len)
        key, value = key[:, :, :kv_len], value[:, :, :kv_len]
    elif kind == "self":
        place["q_start"] = kv_len - q_len
    else:
        place["q_start"] = None
    return AttentionCall(query=query, key=key, kind=kind, scale=given["scale"], **place), value


def _masked(
    session: Session, attn_mask: Tensor, query: Tensor, kind: Kind, *, q_len: int, kv_len: int
) -> dict[str, Any]:
    """What a mask tensor says, from the adapter that saw it being made or from its own values."""
    for adapter in session.adapters:
        known = adapter.known_mask(attn_mask)
        if known is not None:
            return {"mask": known.mask, "q_start": known.q_start, "kv_start": known.kv_start, "kv_len": known.kv_len}
    wide = attn_mask.expand(*query.shape[:-2], *attn_mask.shape[-2:]) if query.dim() > 4 else attn_mask
    wide = _four_dimensions(wide)
    place: dict[str, Any] = {"q_start": kv_len - q_len if kind == "self" else None}
    place["mask" if attn_mask.dtype == torch.bool else "bias"] = wide
    return place


def _four_dimensions(tensor: Tensor) -> Tensor:
    """[..., heads, length, dim] as [batch, heads, length, dim]; three dimensions are one head per batch row."""
    if tensor.dim() == 2:
        return tensor[None, None]
    if tensor.dim() == 3:
        return tensor[:, None]
    return tensor.reshape(-1, *tensor.shape[-3:]) if tensor.dim() > 4 else tensor


def _multi_head(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    bound = _MULTI_HEAD.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    query, key = given["query"], given["key"]
    with quiet():
        call, value = multi_head_call(
            given, kind_of(watchers[-1][1].name, query, key, q_len=query.shape[0], kv_len=key.shape[0])
        )
        changed = _changed(watchers, call)
        given["out_proj_weight"] = without_columns(given["out_proj_weight"], changed.silenced, given["num_heads"])
        kept = any(session.keep for session, _ in watchers)
        context: Tensor | None = None
        if changed.recomputed or _serves(watchers) or (kept and torch.is_grad_enabled()):
            context = multi_head_context(given, changed.call, value)
            output = multi_head_output(given, changed.call, context)
        else:
            output = func(**given)
    _record(watchers, changed, value=value, output=None if context is None else Output(context, 1))
    for session, _ in watchers if kept else ():
        session.project_directly(given["out_proj_weight"])
    return output


def _softmax(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    for session, _ in watchers:
        note_softmax(session, args, kwargs)
    with quiet():
        result = func(*args, **kwargs)
        return changed_softmax([session for session, _ in watchers], args, kwargs, result)


def _attend(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """``regard.attend``, as the modules of ``regard.nn`` call it."""
    bound = _ATTEND.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    call = _attend_call(watchers[-1][1], given)
    if call is None:
        for session, frame in watchers:
            session.refuse(frame.module, "its batch rows have queries at positions of their own")
        with quiet():
            return func(*args, **kwargs)
    changed = _changed(watchers, call)
    with quiet():
        if changed.recomputed:
            output = Session.output(changed.call, given["value"], given["dropout_p"])
        else:
            output = func(*args, **kwargs)
    output = changed.without_silenced(output, dim=1)
    _record(watchers, changed, via="attend", value=given["value"], output=Output(output, 1))
    return output


def _attend_call(frame: Frame, given: dict[str, Any]) -> AttentionCall | None:
    """The arguments of ``regard.attend`` as a call; None where every batch row has positions of its own."""
    query, key, kv_start, q_start = (given[name] for name in ("query", "key", "kv_start", "q_start"))
    if isinstance(q_start, Tensor):
        return None
    q_len, kv_len = query.shape[2], key.shape[2]
    kind = kind_of(frame.name, query, key, q_len=q_len, kv_len=kv_len)
    if isinstance(q_start, int) and q_start + q_len == kv_start + kv_len:
        kind = "self"  # the queries are the last of the keys' own sequence: a cache
    if kind == "cross" and q_start == "end" and not _reads_query_positions(given["mask"]):
        q_start = None  # only the calls around this one can tell where its queries sit
    elif isinstance(q_start, str):
        q_start = kv_start + kv_len - q_len if q_start == "end" else kv_start
    options = {name: given[name] for name in ("mask", "bias", "scale", "logit_softcap", "sinks")}
    return AttentionCall(query=query, key=key, kind=kind, q_start=q_start, kv_start=kv_start, **options)


def _linear(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """``F.linear(values, weight, bias)``: perhaps the output projection of the attention before it."""
    for session, _ in watchers:
        if session.unprojected is not None and len(args) > 1:
            session.project(args[0], args[1])
    return func(*args, **kwargs)


def _addmm(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """``torch.addmm(bias, values, weight)``, which GPT-2 projects with."""
    for session, _ in watchers:
        if session.unprojected is not None and len(args) > 2:
            session.project(args[1], args[2].mT)
    return func(*args, **kwargs)


def _reads_query_positions(mask: Mask | Tensor | None) -> bool:
    """Whether what a mask allows depends on where a query sits."""
    if isinstance(mask, And | Or):
        return _reads_query_positions(mask.left) or _reads_query_positions(mask.right)
    if isinstance(mask, Not):
        return _reads_query_positions(mask.mask)
    return isinstance(mask, Causal | SlidingWindow | Documents | Where)


def _weights(
    watchers: list[_Watcher],
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """``regard.weights`` repeats the softmax of an ``attend`` beside it: changed as that is, and not counted again."""
    bound = _WEIGHTS.bind(*args, **kwargs)
    bound.apply_defaults()
    call = _attend_call(watchers[-1][1], bound.arguments)
    changed = None if call is None else _changed(watchers, call)
    with quiet():
        if changed is None or not changed.recomputed:
            return func(*args, **kwargs)
        return func(changed.call.query, changed.call.key, **changed.call.options())


_ATTEND = inspect.signature(attend)
_WEIGHTS = inspect.signature(weights)
_MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)
_HANDLERS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.scaled_dot_product_attention: _scaled_dot_product,
    functional.multi_head_attention_forward: _multi_head,
    attend: _attend,
    weights: _weights,
    functional.linear: _linear,
    torch.addmm: _addmm,
    functional.softmax: _softmax,
    torch.softmax: _softmax,
    Tensor.softmax: _softmax,
    torch.special.softmax: _softmax,
}
