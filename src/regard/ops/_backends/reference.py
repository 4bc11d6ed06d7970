"""The definition of attention: every step written out, differentiable any number of times, quadratic memory.

    score  = scale · q·k                          in float32 (float64 for float64)
    score  = c · tanh(score / c)                  with a soft cap c
    score  = score + bias
    logit  = score where allowed, else −inf
    weight = exp(logit − lse),  lse = log(Σ exp(logit) + exp(sink))
    output = Σ weight · value

A query that may see no key gets zero weights, zero output and zero gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.ops._call import Call, is_finite
from regard.ops._dropout import drop
from regard.ops.transforms import in_transform

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Dense:
    """The whole weight matrix and what it was made of."""

    logits: Float[Tensor, "batch heads q kv"]
    weights: Float[Tensor, "batch heads q kv"]
    lse: Float[Tensor, "batch heads q"]
    sink_share: Float[Tensor, "batch heads q"]
    allowed: Bool[Tensor, "#batch #heads q kv"] | None


def reasons_against(call: Call) -> list[str]:
    """Why this backend cannot take the call: never."""
    return []


def forward(call: Call) -> Float[Tensor, "batch heads q value_dim"]:
    """The output."""
    seen = dense(call)
    assert call.value is not None
    value = _repeated(call.value.to(call.geometry.dtype), call.group)
    weights = drop(seen.weights, call, ALL, ALL) if call.dropout_p > 0 else seen.weights
    if seen.allowed is not None and not _known_finite(value):
        pairs = weights[..., None] * torch.where(seen.allowed[..., None], value[:, :, None], 0)
        return pairs.sum(dim=3).to(call.query.dtype)
    return (weights @ value).to(call.query.dtype)


def dense(call: Call) -> Dense:
    """Logits, weights and their denominators."""
    allowed = call.allowed(ALL, ALL)
    logits = _scores(call, allowed)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    empty = _empty_rows(call, allowed)
    top = _top(call, logits, empty)
    exponentials = (logits - top[..., None]).exp()
    total = exponentials.sum(dim=3)
    sink = torch.zeros_like(total)
    if call.sinks is not None:
        sink = (call.sinks.to(total.dtype) - top).exp().expand_as(total)
    total = total + sink
    nothing = empty if call.sinks is None else empty & (call.sinks == -torch.inf)
    divisor = total.masked_fill(nothing, 1)
    lse = (divisor.log() + top).masked_fill(nothing, -torch.inf)
    weights = exponentials / divisor[..., None]
    if allowed is not None:  # a row that sees a NaN is NaN where it may look and 0 behind the mask
        weights = weights.masked_fill(~allowed, 0)
    return Dense(logits, weights, lse, sink / divisor, allowed)


def _scores(call: Call, allowed: Tensor | None) -> Tensor:
    """Scaled, capped and biased scores, before the mask."""
    dtype = call.geometry.dtype
    query, key = call.query.to(dtype) * call.scale, _repeated(call.key.to(dtype), call.group)
    if allowed is not None and not (_known_finite(query) and _known_finite(key)):
        visible = torch.where(allowed[..., None], key[:, :, None], 0)
        scores = (query[:, :, :, None] * visible).sum(dim=4)
    else:
        scores = query @ key.transpose(2, 3)
    if call.logit_softcap is not None:
        scores = call.logit_softcap * torch.tanh(scores / call.logit_softcap)
    return scores if call.bias is None else scores + call.bias.to(dtype)


def _empty_rows(call: Call, allowed: Tensor | None) -> Bool[Tensor, "batch heads q"]:
    """Queries that may see no key. This depends on the mask, never on the values."""
    shape = call.query.shape[:3]
    if allowed is None or call.geometry.kv_len == 0:
        return torch.full(shape, call.geometry.kv_len == 0, dtype=torch.bool, device=call.query.device)
    return ~allowed.any(dim=3).expand(shape)


def _top(call: Call, logits: Tensor, empty: Tensor) -> Tensor:
    """What is subtracted before exp. Any constant is right; the largest logit avoids overflow."""
    some_keys = call.geometry.kv_len > 0
    top = logits.detach().amax(dim=3) if some_keys else logits.new_full(logits.shape[:3], -torch.inf)
    if call.sinks is not None:
        top = torch.maximum(top, call.sinks.detach().to(top.dtype).expand_as(top))
        return top.masked_fill(empty & (top == -torch.inf), 0)
    return top.masked_fill(empty, 0)


def _repeated(tensor: Tensor, group: int) -> Tensor:
    """One kv head for each query head: query head h reads kv head h // group."""
    return tensor if group == 1 else tensor.repeat_interleave(group, dim=1)


def _known_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; under a transform or a compiler they cannot be looked at and pass."""
    if torch.compiler.is_compiling() or in_transform():
        return True
    return is_finite(tensor.detach())
