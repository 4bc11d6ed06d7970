"""Exact attention block by block in pure PyTorch: linear memory, empty blocks skipped, gradient by recomputation.

Forward keeps, for each query, the largest logit so far, the denominator relative to it and the output relative to it
(online softmax; Milakov and Gimelshein 2018, arXiv:1805.02867; Rabe and Staats 2021, arXiv:2112.05682). Backward
recomputes each block's weights from the saved lse (Dao et al. 2022, arXiv:2205.14135, appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.ops._call import Call, is_finite
from regard.ops._dropout import drop
from regard.ops._guard import masked_product
from regard.ops._tiles import Plan, plan, stack_group, tile_allowed, tile_logits, unstack_group

K_BLOCK = 512
TILE_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class Forward:
    """What forward leaves for backward.

    Args:
        output: In float32 (float64 for float64).
        lse: Log of the denominator, sink included; −inf for an empty row without sink.
    """

    output: Float[Tensor, "batch heads q value_dim"]
    lse: Float[Tensor, "batch heads q"]


def reasons_against(call: Call) -> list[str]:
    """Why this backend cannot take the call."""
    return []


def blocks_of(call: Call) -> Plan:
    """Blocks whose scores fit in cache for usual batches and in a few megabytes for large ones."""
    per_row = max(call.query.shape[0] * call.query.shape[1], 1) * K_BLOCK
    q_block = 1 << max(4, min(8, (TILE_CELLS // per_row).bit_length() - 1))
    return plan(call, q_block, K_BLOCK)


def forward(call: Call) -> Forward:
    """Output and lse of every query."""
    query, key, value = _prepared(call)
    guard = call.mask is not None or call.bias is not None
    guard = guard and not (is_finite(key) and is_finite(value))
    shape = query.shape[:3]
    output = value.new_empty((*shape, value.shape[3]))
    lse = value.new_empty(shape)
    blocks = blocks_of(call)
    for number, rows in _row_blocks(call, blocks):
        output[:, :, rows], lse[:, :, rows] = _forward_rows(call, blocks, number, rows, query, key, value, guard)
    return Forward(output, lse)


def _prepared(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled queries, keys and values in the dtype of the statistics."""
    dtype = call.geometry.dtype
    assert call.value is not None
    return call.query.detach().to(dtype) * call.scale, call.key.detach().to(dtype), call.value.detach().to(dtype)


def _row_blocks(call: Call, blocks: Plan) -> Iterator[tuple[int, slice]]:
    for number, start in enumerate(range(0, call.geometry.q_len, blocks.q_block)):
        yield number, slice(start, min(start + blocks.q_block, call.geometry.q_len))


def _key_blocks(call: Call, blocks: Plan, row_block: int) -> Iterator[tuple[slice, bool]]:
    """The key blocks some query of the row block may see, and whether all of them see all of it."""
    for number, start in enumerate(range(0, call.geometry.kv_len, blocks.k_block)):
        if blocks.some[row_block][number]:
            stop = min(start + blocks.k_block, call.geometry.kv_len)
            yield slice(start, stop), blocks.every[row_block][number]


def _forward_rows(
    call: Call, blocks: Plan, number: int, rows: slice, query: Tensor, key: Tensor, value: Tensor, guard: bool
) -> tuple[Tensor, Tensor]:
    queries = stack_group(query[:, :, rows], call.group)
    shape = (*query.shape[:2], rows.stop - rows.start)
    top = query.new_full(shape, -torch.inf)
    total = query.new_zeros(shape)
    output = query.new_zeros((*shape, value.shape[3]))
    sees = torch.zeros(shape, dtype=torch.bool, device=query.device)
    for keys, full in _key_blocks(call, blocks, number):
        allowed = tile_allowed(call, rows, keys, full=full)
        sees |= True if allowed is None else allowed.any(dim=3)
        logits = tile_logits(call, queries, key[:, :, keys], allowed, rows, keys).logits
        higher = torch.maximum(top, logits.amax(dim=3))
        base = higher.masked_fill(higher == -torch.inf, 0)
        decay = (top - base).exp()
        weights = (logits - base[..., None]).exp()
        total = total * decay + weights.sum(dim=3)
        if call.dropout_p > 0:
            weights = drop(weights, call, rows, keys)
        output = output * decay[..., None] + _product(weights, value[:, :, keys], allowed, guard, call.group)
        top = higher
    return _normalised(call, rows, top, total, output, sees)


def _normalised(
    call: Call, rows: slice, top: Tensor, total: Tensor, output: Tensor, sees: Tensor
) -> tuple[Tensor, Tensor]:
    """Divide by the denominator, the sink's part included; rows that see nothing become zero."""
    base = top.masked_fill(top == -torch.inf, 0)
    if call.sinks is not None:
        sink = _sink_rows(call.sinks.detach(), rows).to(top.dtype)
        higher = torch.maximum(top, sink)
        higher = higher.masked_fill(higher == -torch.inf, 0)
        decay = (base - higher).exp()
        total, output, base = total * decay + (sink - higher).exp(), output * decay[..., None], higher
    # A row that sees keys but none above −inf divides 0 by 0: it is NaN, as the definition says.
    nothing = ~sees & (total == 0)
    divisor = total.masked_fill(nothing, 1)
    lse = (divisor.log() + base).masked_fill(nothing, -torch.inf)
    return (output / divisor[..., None]).masked_fill(~sees[..., None], 0), lse


def _sink_rows(sinks: Tensor, rows: slice) -> Tensor:
    return sinks[:, :, rows] if sinks.shape[2] > 1 else sinks


def _product(weights: Tensor, value: Tensor, allowed: Tensor | None, guard: bool, group: int) -> Tensor:
    """Weights @ value for grouped heads, with nothing from behind the mask."""
    if guard and allowed is not None:
        return masked_product(weights, value.repeat_interleave(group, dim=1), allowed)
    return unstack_group(stack_group(weights, group) @ value, group)


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients with respect to the inputs, in the dtype of the statistics; None where nobody asked."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    sinks: Tensor | None


def backward(call: Call, saved: Forward, grad: Float[Tensor, "batch heads q value_dim"]) -> Gradients:
    """Gradients by recomputing every block's weights from lse.

    weight = exp(logit − lse);  d logit = weight · (d weight − Σ grad · output)

    Backward may be called inside autocast, where products would quietly become half precision.
    """
    with torch.autocast(grad.device.type, enabled=False):
        return _backward(call, saved, grad)


def _backward(call: Call, saved: Forward, grad: Tensor) -> Gradients:
    query, key, value = _prepared(call)
    grad = grad.to(query.dtype)
    guard = (call.mask is not None or call.bias is not None) and not all(
        is_finite(tensor) for tensor in (query, key, value, grad)
    )
    empty = saved.lse == -torch.inf
    lse = saved.lse.masked_fill(empty, 0)
    delta = (grad * saved.output).sum(dim=3)
    result = Gradients(
        torch.zeros_like(query),
        torch.zeros_like(key),
        torch.zeros_like(value),
        None if call.bias is None or not call.bias.requires_grad else torch.zeros_like(call.bias, dtype=query.dtype),
        _sink_gradient(call, lse, delta),
    )
    blocks = blocks_of(call)
    for number, rows in _row_blocks(call, blocks):
        for keys, full in _key_blocks(call, blocks, number):
            _backward_tile(call, rows, keys, full, guard, (query, key, value), grad, lse, delta, result)
    result.query.mul_(call.scale)
    return result


def _sink_gradient(call: Call, lse: Tensor, delta: Tensor) -> Tensor | None:
    """The sink's value is zero, so its d weight is 0 and its d logit is −share · Σ grad · output."""
    if call.sinks is None or not call.sinks.requires_grad:
        return None
    share = (call.sinks.detach().to(lse.dtype) - lse).exp()
    return (-share * delta).sum_to_size(call.sinks.shape)


def _backward_tile(
    call: Call,
    rows: slice,
    keys: slice,
    full: bool,
    guard: bool,
    inputs: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
    lse: Tensor,
    delta: Tensor,
    result: Gradients,
) -> None:
    query, key, value = inputs
    group = call.group
    allowed = tile_allowed(call, rows, keys, full=full)
    queries, tile_grad = query[:, :, rows], grad[:, :, rows]
    tile = tile_logits(call, stack_group(queries, group), key[:, :, keys], allowed, rows, keys)
    weights = _zero_behind((tile.logits - lse[:, :, rows, None]).exp(), allowed)
    dropped = drop(weights, call, rows, keys) if call.dropout_p > 0 else weights
    grad_weights = unstack_group(stack_group(tile_grad, group) @ value[:, :, keys].transpose(2, 3), group)
    if call.dropout_p > 0:
        grad_weights = drop(grad_weights, call, rows, keys)
    grad_logits = _zero_behind(weights * (grad_weights - delta[:, :, rows, None]), allowed)
    if result.bias is not None:
        _add_bias_gradient(result.bias, grad_logits, rows, keys)
    if tile.capped is not None:
        grad_logits = _zero_behind(grad_logits * (1 - tile.capped.square()), allowed)
    use = guard and allowed is not None
    mask = allowed.expand(grad_logits.shape) if use and allowed is not None else None
    result.value[:, :, keys] += _gathered(dropped, tile_grad, mask, group)
    result.key[:, :, keys] += _gathered(grad_logits, queries, mask, group)
    result.query[:, :, rows] += _product(grad_logits, key[:, :, keys], mask, use, group)


def _zero_behind(tensor: Tensor, allowed: Bool[Tensor, "#batch #heads r c"] | None) -> Tensor:
    return tensor if allowed is None else tensor.masked_fill(~allowed, 0)


def _gathered(weights: Tensor, right: Tensor, mask: Tensor | None, group: int) -> Tensor:
    """weightsᵀ @ right, summed over the heads that share a kv head."""
    if mask is not None:
        product = masked_product(weights.transpose(2, 3), right, mask.transpose(2, 3))
        return product if group == 1 else product.reshape(len(product), -1, group, *product.shape[2:]).sum(dim=2)
    return stack_group(weights, group).transpose(2, 3) @ stack_group(right, group)


def _add_bias_gradient(total: Tensor, part: Tensor, rows: slice, keys: slice) -> None:
    place = total[:, :, rows] if total.shape[2] > 1 else total
    place = place[..., keys] if total.shape[3] > 1 else place
    place += part.sum_to_size(place.shape)
