"""Walking over the weight matrix in blocks: which blocks hold anything, and what their logits are."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.ops._call import Call, cut
from regard.ops._lower import Lowered


@dataclass(frozen=True)
class Plan:
    """Which blocks of a call have to be computed.

    Args:
        q_block: Queries in a block.
        k_block: Keys in a block.
        some: Whether any cell of a block is allowed, for any batch row and head; nested lists on the host.
        every: Whether all cells of a block are allowed, for all batch rows and heads.
    """

    q_block: int
    k_block: int
    some: list[list[bool]]
    every: list[list[bool]]


_plans: weakref.WeakKeyDictionary[Lowered, dict[tuple[int, int], Plan]] = weakref.WeakKeyDictionary()


def plan(call: Call, q_block: int, k_block: int) -> Plan:
    """The blocks of a call. A lowered mask keeps its plans, so that layers sharing a mask share them."""
    if call.mask is None:
        blocks = -(-call.geometry.q_len // q_block), -(-call.geometry.kv_len // k_block)
        yes = [[True] * blocks[1] for _ in range(blocks[0])]
        return Plan(q_block, k_block, yes, yes)
    known = _plans.setdefault(call.mask, {})
    if (q_block, k_block) not in known:
        some, every = call.mask.bounds(call.geometry, q_block, k_block)
        known[q_block, k_block] = Plan(
            q_block,
            k_block,
            some.flatten(0, 1).any(dim=0).tolist(),
            every.flatten(0, 1).all(dim=0).tolist(),
        )
    return known[q_block, k_block]


def tile_allowed(call: Call, rows: slice, keys: slice, *, full: bool) -> Bool[Tensor, "#batch #heads r c"] | None:
    """Which cells of a tile are allowed; None when the plan knows that all are and no bias can block."""
    if full and call.bias is None:
        return None
    return call.allowed(rows, keys)


@dataclass(frozen=True, eq=False)
class TileLogits:
    """The logits of a tile and what the gradient needs to know of them."""

    logits: Float[Tensor, "batch heads r c"]
    capped: Float[Tensor, "batch heads r c"] | None


def tile_logits(
    call: Call,
    query: Float[Tensor, "batch kv_heads rows head_dim"],
    key: Float[Tensor, "batch kv_heads c head_dim"],
    allowed: Bool[Tensor, "#batch #heads r c"] | None,
    rows: slice,
    keys: slice,
    *,
    scale: float | None = None,
) -> TileLogits:
    """Final scores of a tile: scaled, capped, biased, −inf where masked.

    Args:
        call: The call.
        query: Queries of the rows, scaled unless ``scale`` is given, the heads of a group laid one after another along
            the rows.
        key: Keys of the tile.
        allowed: Which cells of the tile are allowed; None for all.
        rows: Which queries the tile holds.
        keys: Which keys the tile holds.
        scale: Multiplies the scores; None where the queries are scaled already.
    """
    batch, kv_heads, stacked, _ = query.shape
    scores = query @ key.transpose(2, 3)
    if scale is not None:
        scores.mul_(scale)
    scores = scores.view(batch, kv_heads * call.group, stacked // call.group, key.shape[2])
    capped = None
    if call.logit_softcap is not None:
        capped = torch.tanh(scores / call.logit_softcap)
        scores = capped * call.logit_softcap
    if call.bias is not None:
        scores = scores + cut(call.bias, rows, keys).to(scores.dtype)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return TileLogits(scores, capped)


def stack_group(tensor: Float[Tensor, "batch heads r d"], group: int) -> Float[Tensor, "batch kv_heads rows d"]:
    """Lay the heads that share a kv head one after another along the rows."""
    if group == 1:
        return tensor
    batch, heads, rows, dim = tensor.shape
    return tensor.reshape(batch, heads // group, group * rows, dim)


def unstack_group(tensor: Float[Tensor, "batch kv_heads rows d"], group: int) -> Float[Tensor, "batch heads r d"]:
    """Undo ``stack_group``."""
    if group == 1:
        return tensor
    batch, kv_heads, rows, dim = tensor.shape
    return tensor.reshape(batch, kv_heads * group, rows // group, dim)
