"""Reasons: of what the score between one query and one key is made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.lens.kept import KeptCall, one_layer, places_of
from regard.lens.seen import Seen
from regard.ops import ALiBi


@dataclass(frozen=True, eq=False)
class Reasons:
    """The parts of one score, for each head.

        score  = softcap + bias,  softcap = product + capped,  product = content + Σ rotary
        weight = exp(score − lse) where allowed, else 0

    Args:
        content: scale · q·k without rotation: what two tokens would give each other at the same place.
        rotary: What the distance adds or takes, for each rotary band, from fast to slow; empty without ``frequencies``,
            where all of the product is content.
        product: scale · q·k as it is.
        capped: What the soft cap took or added.
        bias: What position added by a bias (ALiBi, T5), or another one.
        score: All of it together.
        allowed: Whether the mask lets the query see the key.
        lse: The log of the denominator: what all keys (and a sink) together come to.
        weight: What becomes of it.
        sink_share: What a sink takes of the query.
    """

    content: Float64[Tensor, "heads"]
    rotary: Float64[Tensor, "heads bands"]
    product: Float64[Tensor, "heads"]
    capped: Float64[Tensor, "heads"]
    bias: Float64[Tensor, "heads"]
    score: Float64[Tensor, "heads"]
    allowed: Bool[Tensor, "heads"]
    lse: Float64[Tensor, "heads"]
    weight: Float64[Tensor, "heads"]
    sink_share: Float64[Tensor, "heads"]


def reasons(
    seen: Seen,
    name: str,
    *,
    query: int,
    key: int,
    item: int = 0,
    frequencies: Tensor | None = None,
    interleaved: bool = False,
) -> Reasons:
    """Why a query gives a key the weight it gives: content, position, bias, soft cap, mask and sink.

    Queries and keys are those after rotary embedding. With the rotary frequencies they are turned back, so that the
    product is split into what it would be at distance 0 and what the distance changes in each band.

    Args:
        seen: Of ``regard.watch(model, keep=True)``.
        name: The layer's module, or the end of its name.
        query: Position of the query; −1 is the last.
        key: Position of the key.
        item: Batch row.
        frequencies: Angle per position of each rotary band (``inv_freq`` of transformers' models, ``frequencies`` of
            transformers), in radians; the first 2 · bands dimensions of a head are taken to be rotated.
        interleaved: Whether a band is two neighbours (GPT-J) and not one of each half (Llama).

    Raises:
        ConfigError: Nothing was kept; no such layer, position or batch row.
        ShapeError: More bands than half the dimensions of a head.

    Numerics:
        float64, from the queries and keys as the model computed them; parts add up to the score. ``lse``, ``weight``
        and ``sink_share`` are statistics of the call, in float32 (float64 for float64).

    Cost:
        One product of queries and keys up to the query.

    Source:
        Su et al. 2021, arXiv:2104.09864, section 3.2 for the bands.
    """
    layer = one_layer(seen, name, caller="reasons")
    (place,) = places_of([query], layer.q_start, layer.q_end, caller="reasons", argument="query")
    kept = next(call for call in layer.calls if call.q_start <= place < call.q_end)
    call = kept.call
    (column,) = places_of([key], call.kv_start, call.kv_end, caller="reasons", argument="key")
    if not 0 <= item < layer.batch:
        raise ConfigError(message("reasons", must_be("item", f"from 0 to {layer.batch - 1}", item)))
    row, at = place - kept.q_start, column - call.kv_start
    group = layer.num_heads // call.key.shape[1]
    q = call.query[item, :, row].double()
    k = call.key[item, :, at].double().repeat_interleave(group, 0)
    scale = call.scale if call.scale is not None else q.shape[-1] ** -0.5
    product = scale * (q * k).sum(-1)
    content, rotary = _turned_back(q, k, frequencies, place - column, scale=scale, interleaved=interleaved)
    cap = call.logit_softcap
    softcap = product if cap is None else cap * torch.tanh(product / cap)
    bias = _bias(kept, item, row, at, place - column)
    strip = next(strip for strip in kept.strips() if strip.rows.start <= row < strip.rows.stop)
    line, within = row - strip.rows.start, strip.keys.start <= at < strip.keys.stop
    weight = strip.weights[item, :, line, at - strip.keys.start] if within else torch.zeros(layer.num_heads)
    allowed = strip.logits[item, :, line, at - strip.keys.start] > -torch.inf if within else weight > 0
    return Reasons(
        content=content,
        rotary=rotary,
        product=product,
        capped=softcap - product,
        bias=bias,
        score=softcap + bias,
        allowed=allowed,
        lse=strip.lse[item, :, line].double(),
        weight=weight.double(),
        sink_share=strip.sink_share[item, :, line].double(),
    )


def _turned_back(
    q: Tensor, k: Tensor, frequencies: Tensor | None, distance: int, *, scale: float, interleaved: bool
) -> tuple[Tensor, Tensor]:
    """The product at distance 0, and what the distance does in each band, which are [heads] and [heads, bands]."""
    if frequencies is None:
        return scale * (q * k).sum(-1), q.new_zeros(q.shape[0], 0)
    bands = frequencies.numel()
    if 2 * bands > q.shape[-1]:
        expected = f"at most {q.shape[-1] // 2} bands, half the dimensions of a head"
        raise ShapeError(message("reasons", must_be("frequencies", expected, f"{bands}")))
    turned, rest = slice(0, 2 * bands), slice(2 * bands, None)
    q_bands, k_bands = (_by_band(tensor[:, turned], interleaved=interleaved) for tensor in (q, k))
    there = (q_bands * k_bands).sum(-1)
    angle = -distance * frequencies.double().flatten().to(q.device)  # turns the query back to the place of the key
    cos, sin = angle.cos(), angle.sin()
    first, second = q_bands.unbind(-1)
    back = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
    here = (back * k_bands).sum(-1)
    content = here.sum(-1) + (q[:, rest] * k[:, rest]).sum(-1)
    return scale * content, scale * (there - here)


def _by_band(rotated: Tensor, *, interleaved: bool) -> Tensor:
    """[heads, 2 · bands] as [heads, bands, 2]."""
    return torch.unflatten(rotated, -1, (-1, 2)) if interleaved else torch.unflatten(rotated, -1, (2, -1)).mT


def _bias(kept: KeptCall, item: int, row: int, at: int, distance: int) -> Tensor:
    """What is added to the score, for each head."""
    call = kept.call
    heads = call.query.shape[1]
    if call.bias is None:
        return torch.zeros(heads, dtype=torch.float64, device=call.query.device)
    if isinstance(call.bias, ALiBi):
        return -call.bias.slopes.double() * abs(distance)
    wide = call.bias.expand(*call.query.shape[:3], call.key.shape[2])
    return wide[item, :, row, at].double()
