"""The way in for modules that compute their own softmax: its logits are the attention scores, caught on the way.

The output of the model is untouched: nothing is asked of the module that it does not do anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import UnsupportedError, message
from regard.lens._attention_like import is_attention_like
from regard.lens._call import AttentionCall, kind_of
from regard.lens._frames import Frame, in_backward
from regard.lens._session import Session, changed_by
from regard.lens.changes import Changed
from regard.ops import weights

_HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead", "heads")


def note_softmax(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the logits of a softmax over keys until the attention module that computes it has ended."""
    logits = _logits(args, kwargs)
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    frame = _attention_frame(session)
    if frame is None or not isinstance(logits, Tensor) or dim is None or logits.dim() < 3:
        return
    if dim in (-1, logits.dim() - 1):
        frame.softmaxes.append(logits.detach())


def changed_softmax(sessions: Sequence[Session], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The weights that a module gets of its softmax, after the changes that mean it.

    Args:
        sessions: Whose model is running; each has noted the softmax.
        args: Of the softmax.
        kwargs: Of the softmax.
        result: What it returned.

    Raises:
        UnsupportedError: the module computes several softmaxes, none of them over all keys.
    """
    frames = [(session, frame) for session in sessions if (frame := _attention_frame(session)) is not None]
    if not any(session.is_changed(frame.name) for session, frame in frames) or not frames[0][1].softmaxes:
        return result
    frame = frames[0][1]
    if len(frame.softmaxes) > 1:
        problem = f"{frame.name} cannot be changed: it computes several softmaxes per call, none of them over all keys."
        raise UnsupportedError(message("watch", problem))
    logits = _by_head(_logits(args, kwargs), frame.module)
    if logits is None:
        return result
    found = changed_by([(session, each.module) for session, each in frames], _call(logits, frame.name))
    weighed = result.reshape(logits.shape)
    for _, each in frames:
        each.changed = found
    if found.recomputed:
        weighed = weights(found.call.query, found.call.key, **found.call.options()).to(result.dtype)
    return found.without_silenced(weighed, dim=1).reshape(result.shape)


def finish_softmax(session: Session, frame: Frame) -> None:
    """Record the one softmax that an attention module computed, or write down why it cannot be read as weights."""
    if not frame.softmaxes or in_backward():
        return
    module = frame.module
    if len(frame.softmaxes) > 1:
        session.refuse(module, f"computes {len(frame.softmaxes)} softmaxes per call, none of them over all keys")
        return
    logits = _by_head(frame.softmaxes[0], module)
    if logits is None:
        shape = list(frame.softmaxes[0].shape)
        session.refuse(module, f"its own softmax has the shape {shape}, not [batch, heads, queries, keys]")
    elif logits.shape[-1] > session.eager_limit:
        session.refuse(
            module, f"its own softmax over {logits.shape[-1]} keys is beyond eager_limit={session.eager_limit}"
        )
    else:
        session.record(module, frame.changed or Changed(_call(logits, frame.name)), via="softmax")


def _logits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs.get("input", kwargs.get("self"))


def _attention_frame(session: Session) -> Frame | None:
    """The innermost running module that looks like attention (the softmax may be a module of its own)."""
    return next((frame for frame in reversed(session.frames.frames) if is_attention_like(frame.module)), None)


def _by_head(logits: Tensor, module: nn.Module) -> Tensor | None:
    """Scores as [batch, heads, q, kv]; None when that is not what they are."""
    heads = next((count for name in _HEAD_COUNTS if isinstance(count := getattr(module, name, None), int)), None)
    if logits.dim() == 4 and heads in (None, logits.shape[1]):
        return logits
    if logits.dim() == 3 and heads is None:
        return logits[:, None]
    if logits.dim() == 3 and heads is not None and logits.shape[0] % heads == 0:
        return logits.view(-1, heads, *logits.shape[1:])
    return None


def _call(logits: Tensor, name: str) -> AttentionCall:
    """The scores as the bias of a call whose own scores are 0: softmax and probes then are those of the module."""
    batch, heads, q_len, kv_len = logits.shape
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    # Masked scores are large negative numbers of many sizes; softmax gives them exactly 0, so they are blocked.
    top = logits.amax(-1, keepdim=True)
    hidden = (logits <= _HIDDEN) | ((logits - top).exp() == 0)
    zero = logits.new_zeros(())
    query, key = zero.expand(batch, heads, q_len, 1), zero.expand(batch, heads, kv_len, 1)
    kind = kind_of(name, query, key, q_len=q_len, kv_len=kv_len if q_len > 1 else q_len)
    return AttentionCall(
        query=query,
        key=key,
        kind=kind,
        bias=logits.masked_fill(hidden, float("-inf")),
        scale=1.0,
        q_start=kv_len - q_len if kind == "self" else None,
    )


_HIDDEN = -1e4  # what old code masks with is −1e4 or lower; a real score this low has weight 0 beside any other
