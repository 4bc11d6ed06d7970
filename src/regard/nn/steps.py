"""Attention one stage at a time, for learning: every tensor between the input and the output, by name."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import DTypeError, message, must_be
from regard.nn.attention import Heads, MultiHeadAttention, as_mask
from regard.nn.textbook import SelfAttention
from regard.ops import ALiBi, Mask, attend, dense_mask


@dataclass(frozen=True, eq=False)
class Steps:
    """Every stage of one attention call. Print it to see shapes and formulas.

    Args:
        query: input · W^Q + b, split into heads (rotated, with rotary positions).
        key: input · W^K + b, split into heads; with grouped heads each is repeated for its query heads.
        value: input · W^V + b, the same.
        scores: query · keyᵀ.
        scaled: scale · scores, plus what positions add.
        masked: scaled where the mask allows, −inf elsewhere.
        weights: softmax of masked along the keys; a row without any allowed key is zeros.
        context: weights · value.
        output: the heads joined, · W^O + b.
    """

    query: Float[Tensor, "batch heads q_len head_dim"]
    key: Float[Tensor, "batch heads kv_len head_dim"]
    value: Float[Tensor, "batch heads kv_len value_dim"]
    scores: Float[Tensor, "batch heads q_len kv_len"]
    scaled: Float[Tensor, "batch heads q_len kv_len"]
    masked: Float[Tensor, "batch heads q_len kv_len"]
    weights: Float[Tensor, "batch heads q_len kv_len"]
    context: Float[Tensor, "batch heads q_len value_dim"]
    output: Float[Tensor, "batch q_len d_model"]

    def __str__(self) -> str:
        formulas = {
            "query": "input · W^Q, split into heads",
            "key": "input · W^K, split into heads",
            "value": "input · W^V, split into heads",
            "scores": "query · keyᵀ",
            "scaled": "scale · scores",
            "masked": "scaled where allowed, else −inf",
            "weights": "softmax of masked along the keys",
            "context": "weights · value",
            "output": "heads joined · W^O",
        }
        return "\n".join(
            f"{field.name:<8} {tuple(getattr(self, field.name).shape)!s:<18} {formulas[field.name]}"
            for field in fields(self)
        )


def steps(
    attention: MultiHeadAttention | SelfAttention,
    query: Float[Tensor, "batch q_len width"],
    key: Float[Tensor, "batch kv_len width"] | None = None,
    value: Float[Tensor, "batch kv_len width"] | None = None,
    mask: Mask | Tensor | None = None,
) -> Steps:
    """Compute what a call of the module computes, and keep every stage.

    Args:
        attention: The module; its parameters are used as they are.
        query: As for a call of the module, and so are the others.
        key: ``query`` by default.
        value: ``key`` by default.
        mask: As for a call.

    Returns:
        The stages; ``output`` and ``weights`` are what the module returns (dropout apart), to rounding.

    Raises:
        ShapeError, DTypeError: as a call of the module.

    Numerics:
        Every stage in the dtype of its inputs, softmax included; differentiable.

    Cost:
        Quadratic memory, several times over: for short inputs.

    Example:
        >>> import torch
        >>> from regard.nn import MultiHeadAttention, steps
        >>> print(steps(MultiHeadAttention(8, 2), torch.randn(1, 5, 8)))
        query    (1, 2, 5, 4)       input · W^Q, split into heads
        key      (1, 2, 5, 4)       input · W^K, split into heads
        value    (1, 2, 5, 4)       input · W^V, split into heads
        scores   (1, 2, 5, 5)       query · keyᵀ
        scaled   (1, 2, 5, 5)       scale · scores
        masked   (1, 2, 5, 5)       scaled where allowed, else −inf
        weights  (1, 2, 5, 5)       softmax of masked along the keys
        context  (1, 2, 5, 4)       weights · value
        output   (1, 5, 8)          heads joined · W^O
    """
    if not isinstance(attention, MultiHeadAttention | SelfAttention):
        expected = "a MultiHeadAttention or SelfAttention of regard.nn"
        hint = "from_torch(attention) makes one of torch's"
        found = f"a {type(attention).__name__}"
        raise DTypeError(message("steps", must_be("attention", expected, found), hint=hint))
    heads, allowed = attention.heads(query, key, value), as_mask("steps", mask)
    with torch.no_grad():  # refuses what a call of the module refuses
        attend(heads.query, heads.key, heads.value, mask=allowed, bias=heads.bias, scale=attention.scale)
    group = heads.query.shape[1] // heads.key.shape[1]
    keys, values = heads.key.repeat_interleave(group, dim=1), heads.value.repeat_interleave(group, dim=1)
    scores = heads.query @ keys.transpose(2, 3)
    scaled = scores * (heads.query.shape[-1] ** -0.5 if attention.scale is None else attention.scale)
    bias = _added(heads)
    scaled = scaled if bias is None else scaled + bias.to(scaled.dtype)
    masked = scaled
    if allowed is not None:
        batch, num_heads, q_len, kv_len = scores.shape
        may_see = dense_mask(allowed, (batch, num_heads, q_len, kv_len), device=scores.device)
        masked = scaled.masked_fill(~may_see, -torch.inf)
    found = _softmax(masked, attention.sinks)
    context = found @ values
    return Steps(heads.query, keys, values, scores, scaled, masked, found, context, attention.join(context))


def _added(heads: Heads) -> Tensor | None:
    """What positions add to the scores, written out."""
    if not isinstance(heads.bias, ALiBi):
        return heads.bias
    device = heads.query.device
    i, j = torch.arange(heads.query.shape[2], device=device), torch.arange(heads.key.shape[2], device=device)
    return -heads.bias.slopes[:, None, None] * (i[:, None] - j).abs()


def _softmax(masked: Tensor, sinks: Tensor | None) -> Tensor:
    """Along the keys; a sink is one more key, whose weight goes nowhere."""
    if sinks is None:
        empty = masked.isneginf().all(dim=-1, keepdim=True)
        return masked.masked_fill(empty, 0).softmax(dim=-1).masked_fill(empty, 0)
    sink = sinks[:, None, None].expand(*masked.shape[:-1], 1).to(masked.dtype)
    return torch.cat([masked, sink], dim=-1).softmax(dim=-1)[..., :-1]
