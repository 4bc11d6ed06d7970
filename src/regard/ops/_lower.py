"""Masks lowered to integers and tensors, evaluated tile by tile with torch.

``lower`` turns a mask value into the postfix program of ``regard.records.mask_program``. ``Lowered.allowed`` evaluates
a tile of it; ``Lowered.bounds`` says for whole blocks, without evaluating them, whether any or every cell is allowed,
which is what lets a backend skip blocks in linear memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.errors import DTypeError, ShapeError, message, must_be
from regard.ops import masks
from regard.ops._placement import check_dense, check_device
from regard.ops._strip import LARGEST_POSITION, Geometry
from regard.records.mask_program import Op, instructions

_BlockTable = Bool[Tensor, "batch_or_1 heads_or_1 q_blocks k_blocks"]
Blocks = tuple[_BlockTable, _BlockTable]


def ends(span: slice, length: int) -> tuple[int, int]:
    """Where a slice starts and stops. All of a symbolic length stays symbolic, which ``indices`` would not leave it."""
    if span == slice(None):
        return 0, length
    start, stop, _ = span.indices(length)
    return start, stop


class _Extents(NamedTuple):
    """Lowest and highest position of the queries and keys of each block, as [batch or 1, 1, q blocks, k blocks]."""

    q_low: Tensor
    q_high: Tensor
    k_low: Tensor
    k_high: Tensor


@dataclass(frozen=True, eq=False)
class Lowered:
    """A mask as a postfix program over tensors.

    Args:
        code: Instructions (see ``regard.records.mask_program.Op``).
        tensors: What the instructions refer to by number; shapes as ``Op`` says.
        functions: The predicates of ``Where``, referred to by number.
        sources: The tensors the person gave, and their versions then.
    """

    code: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()
    functions: tuple[masks.Predicate, ...] = ()
    sources: tuple[tuple[Tensor, int], ...] = ()

    def changed(self) -> bool:
        """Whether a tensor of the mask may have been written to since it was lowered."""
        return any(tensor.is_inference() or tensor._version != version for tensor, version in self.sources)

    def allowed(self, geometry: Geometry, rows: slice, keys: slice) -> Bool[Tensor, "batch_or_1 heads_or_1 q k"]:
        """Which keys of the tile each of its queries may see; broadcastable to [batch, heads, q, k]."""
        query = geometry.q_positions[:, None, rows, None]
        start, stop = ends(keys, geometry.kv_len)
        key = torch.arange(geometry.kv_start + start, geometry.kv_start + stop, device=geometry.device)
        stack: list[Tensor] = []
        for op, operands in instructions(self.code):
            if op in (Op.AND, Op.OR):
                right, left = stack.pop(), stack.pop()
                stack.append(left & right if op is Op.AND else left | right)
            elif op is Op.NOT:
                stack.append(~stack.pop())
            else:
                stack.append(self._leaf(op, operands, geometry, query, key[None, None, None, :], rows, keys))
        (answer,) = stack
        return answer.expand(-1, -1, query.shape[2], key.shape[0])

    def _leaf(
        self,
        op: Op,
        operands: tuple[int, ...],
        geometry: Geometry,
        query: Tensor,
        key: Tensor,
        rows: slice,
        keys: slice,
    ) -> Tensor:
        match op:
            case Op.EVERYTHING:
                return torch.ones((1, 1, 1, 1), dtype=torch.bool, device=geometry.device)
            case Op.CAUSAL:
                return key <= query
            case Op.WINDOW:
                return (query - key).abs() < operands[0]
            case Op.PADDING:
                return self.tensors[operands[0]][:, None, None, keys]
            case Op.DOCUMENTS:
                key_ids = self.tensors[operands[0]][:, None, None, keys]
                query_ids = self.tensors[operands[1]][:, None, rows, None]
                return (key_ids == query_ids) & (key_ids >= 0)
            case Op.PREFIX:
                return key < self.tensors[operands[0]][:, None, None, None]
            case Op.ALLOWED:
                allowed = self.tensors[operands[0]]
                allowed = allowed[:, :, rows] if allowed.shape[2] > 1 else allowed
                return allowed[..., keys] if allowed.shape[3] > 1 else allowed
            case Op.WHERE:
                batch = torch.arange(geometry.batch, device=geometry.device)[:, None, None, None]
                heads = torch.arange(geometry.num_heads, device=geometry.device)[None, :, None, None]
                answer = self.functions[operands[0]](batch, heads, query, key)
                if not isinstance(answer, Tensor) or answer.dtype != torch.bool or answer.dim() > 4:
                    found = (
                        f"{answer.dtype} of {answer.dim()} dimensions" if isinstance(answer, Tensor) else repr(answer)
                    )
                    problem = must_be(
                        "fn", "a function that returns a bool tensor of up to 4 dimensions", f"one that returns {found}"
                    )
                    raise DTypeError(message("Where", problem))
                return answer[(None,) * (4 - answer.dim())]
        raise AssertionError(op)

    def bounds(self, geometry: Geometry, q_block: int, k_block: int) -> Blocks:
        """Whether any and whether every cell of each block is allowed.

        The answers are safe rather than tight: "any" may be True for a block that turns out empty, "all" may be False
        for a block that turns out full. Cost: linear in the lengths, except that a tensor mask is read once.
        """
        q_low, q_high = (side[:, None, :, None] for side in _extent(geometry.q_positions, q_block))
        key = torch.arange(geometry.kv_start, geometry.kv_end, device=geometry.device)[None]
        k_low, k_high = (side[:, None, None, :] for side in _extent(key, k_block))
        extents = _Extents(q_low, q_high, k_low, k_high)
        stack: list[Blocks] = []
        for op, operands in instructions(self.code):
            if op in (Op.AND, Op.OR):
                (right_any, right_all), (left_any, left_all) = stack.pop(), stack.pop()
                join = torch.logical_and if op is Op.AND else torch.logical_or
                stack.append((join(left_any, right_any), join(left_all, right_all)))
            elif op is Op.NOT:
                some, every = stack.pop()
                stack.append((~every, ~some))
            else:
                stack.append(self._leaf_bounds(op, operands, extents, q_block, k_block))
        ((some, every),) = stack
        blocks = q_low.shape[2], k_low.shape[3]
        return some.expand(-1, -1, *blocks), every.expand(-1, -1, *blocks)

    def _leaf_bounds(self, op: Op, operands: tuple[int, ...], extents: _Extents, q_block: int, k_block: int) -> Blocks:
        q_low, q_high, k_low, k_high = extents
        yes = torch.ones_like(k_low, dtype=torch.bool)
        match op:
            case Op.EVERYTHING:
                return yes, yes
            case Op.CAUSAL:
                return k_low <= q_high, k_high <= q_low
            case Op.WINDOW:
                nearest = torch.maximum(k_low - q_high, q_low - k_high).clamp(min=0)
                farthest = torch.maximum(k_high - q_low, q_high - k_low)
                return nearest < operands[0], farthest < operands[0]
            case Op.PREFIX:
                length = self.tensors[operands[0]][:, None, None, None]
                return k_low < length, k_high < length
            case Op.PADDING:
                lowest, highest = _extent(self.tensors[operands[0]].long(), k_block)
                return (highest == 1)[:, None, None, :], (lowest == 1)[:, None, None, :]
            case Op.DOCUMENTS:
                return _document_bounds(self.tensors[operands[0]], self.tensors[operands[1]], q_block, k_block)
            case Op.ALLOWED:
                return _tensor_bounds(self.tensors[operands[0]], q_block, k_block)
            case Op.WHERE:
                return yes, ~yes
        raise AssertionError(op)


def _extent(values: Int[Tensor, "b n"], block: int) -> tuple[Int[Tensor, "b blocks"], Int[Tensor, "b blocks"]]:
    """Smallest and largest value of each block along the last axis."""
    short = -values.shape[1] % block
    if short:
        values = torch.cat([values, values[:, -1:].expand(-1, short)], dim=1)
    return torch.aminmax(values.reshape(len(values), values.shape[1] // block, block), dim=2)


def _document_bounds(key_ids: Tensor, query_ids: Tensor, q_block: int, k_block: int) -> Blocks:
    k_low, k_high = (side[:, None, None, :] for side in _extent(key_ids, k_block))
    q_low, q_high = (side[:, None, :, None] for side in _extent(query_ids, q_block))
    overlap = (torch.maximum(k_low, q_low).clamp(min=0)) <= torch.minimum(k_high, q_high)
    one = (k_low == k_high) & (q_low == q_high) & (k_low == q_low) & (k_low >= 0)
    return overlap, one


def _tensor_bounds(allowed: Bool[Tensor, "b h i j"], q_block: int, k_block: int) -> Blocks:
    result = []
    for pad, reduce in ((False, torch.any), (True, torch.all)):
        blocks = allowed
        for dim, size in ((2, q_block), (3, k_block)):
            if blocks.shape[dim] > 1:
                short = -blocks.shape[dim] % size
                shape = [*blocks.shape]
                shape[dim] = short
                blocks = torch.cat([blocks, blocks.new_full(shape, pad)], dim=dim)
                count = blocks.shape[dim] // size  # not -1: another length may be 0
                split = (*blocks.shape[:dim], count, size, *blocks.shape[dim + 1 :])
                blocks = reduce(blocks.reshape(split), dim=dim + 1)
        result.append(blocks)
    return result[0], result[1]


_KEPT = 4
"""Calls of different sizes that a mask remembers: enough for the stacks of one model, not for a whole generation."""
_lowered: weakref.WeakKeyDictionary[masks.Mask, dict[tuple[object, ...], Lowered]] = weakref.WeakKeyDictionary()


def lower_once(mask: masks.Mask, geometry: Geometry, *, caller: str, q_start: object) -> Lowered:
    """``lower``, remembered by the mask: layers that share a mask share its program and what is derived from it.

    Args:
        mask: The mask.
        geometry: Of the call.
        caller: For messages.
        q_start: What the person gave as such; a tensor may change under us, so then nothing is remembered.
    """
    if isinstance(q_start, Tensor) or torch.compiler.is_compiling():
        return lower(mask, geometry, caller=caller)
    sizes = (geometry.batch, geometry.num_heads, geometry.q_len, geometry.kv_len)
    known = _lowered.setdefault(mask, {})
    # what is made in inference mode cannot be saved for a gradient later
    place = (sizes, q_start, geometry.kv_start, geometry.device, torch.is_inference_mode_enabled())
    found = known.pop(place, None)
    if found is None or found.changed():
        found = lower(mask, geometry, caller=caller)
    known[place] = found
    if len(known) > _KEPT:
        known.pop(next(iter(known)), None)
    return found


def lower(mask: masks.Mask, geometry: Geometry, *, caller: str) -> Lowered:
    """Turn a mask value into a program for a call of this geometry.

    Raises:
        ShapeError: if a tensor of the mask does not fit the call.
        ConfigError: if a tensor of the mask is on another device.
        UnsupportedError: if a tensor of the mask is not dense.
    """
    code: list[int] = []
    tensors: list[Tensor] = []
    functions: list[masks.Predicate] = []
    sources: tuple[tuple[Tensor, int], ...] = ()

    def keep(tensor: Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    def visit(node: masks.Mask) -> None:
        match node:
            case masks.Causal():
                code.append(Op.CAUSAL)
            case masks.SlidingWindow(size):
                code.extend((Op.WINDOW, min(size, 2 * LARGEST_POSITION) if isinstance(size, int) else size))
            case masks.Padding(tensor):
                _fit(caller, "Padding(keep)", tensor, (geometry.batch, geometry.kv_len), "[batch, kv_len]", geometry)
                code.extend((Op.PADDING, keep(tensor)))
            case masks.Documents():
                key_ids, query_ids = _document_ids(node, geometry, caller)
                code.extend((Op.DOCUMENTS, keep(key_ids), keep(query_ids)))
            case masks.Prefix(length):
                code.extend((Op.PREFIX, keep(_lengths(length, geometry, caller))))
            case masks.Allowed(tensor) | masks.Blocked(tensor):
                code.extend((Op.ALLOWED, keep(four_dims(tensor, geometry, caller, f"{type(node).__name__}(tensor)"))))
                code.extend((Op.NOT,) if isinstance(node, masks.Blocked) else ())
            case masks.Where(fn):
                functions.append(fn)
                code.extend((Op.WHERE, len(functions) - 1))
            case masks.And(left, right) | masks.Or(left, right):
                visit(left)
                visit(right)
                code.append(Op.AND if isinstance(node, masks.And) else Op.OR)
            case masks.Not(inner):
                visit(inner)
                code.append(Op.NOT)
            case _:
                known = "built from the masks of regard.ops by &, | and ~"
                raise DTypeError(message(caller, must_be("mask", known, f"a {type(node).__name__}")))

    visit(mask)
    if not torch.compiler.is_compiling():
        leaves = (leaf for leaf in pytree.tree_leaves(mask) if isinstance(leaf, Tensor))
        sources = tuple((leaf, 0 if leaf.is_inference() else leaf._version) for leaf in leaves)
    return Lowered(tuple(int(word) for word in code), tuple(tensors), tuple(functions), sources)


def _document_ids(mask: masks.Documents, geometry: Geometry, caller: str) -> tuple[Tensor, Tensor]:
    key_ids = mask.key_ids.long() if mask.key_ids.layout == torch.strided else mask.key_ids
    _fit(caller, "Documents(key_ids)", key_ids, (geometry.batch, geometry.kv_len), "[batch, kv_len]", geometry)
    if mask.query_ids is not None:
        q_sizes = (geometry.batch, geometry.q_len)
        _fit(caller, "Documents(query_ids)", mask.query_ids, q_sizes, "[batch, q_len]", geometry)
        return key_ids, mask.query_ids.long()
    place = geometry.q_positions - geometry.kv_start
    rows = max(key_ids.shape[0], place.shape[0])
    if geometry.kv_len == 0:
        return key_ids, place.new_full((rows, geometry.q_len), -1)
    ids = key_ids.expand(rows, -1).gather(1, place.clamp(0, geometry.kv_len - 1).expand(rows, -1))
    return key_ids, torch.where((place >= 0) & (place < geometry.kv_len), ids, -1)


def _lengths(length: int | Tensor, geometry: Geometry, caller: str) -> Tensor:
    if not isinstance(length, Tensor):
        inside = max(-LARGEST_POSITION, min(length, LARGEST_POSITION)) if isinstance(length, int) else length
        return torch.full((1,), inside, device=geometry.device)
    _fit(caller, "Prefix(length)", length, (geometry.batch,), "[batch]", geometry)
    return length.long()


def four_dims(tensor: Tensor, geometry: Geometry, caller: str, name: str) -> Tensor:
    """Read [kv], [q, kv], [batch, q, kv] or four dimensions as four dimensions of bool."""
    full = (geometry.batch, geometry.num_heads, geometry.q_len, geometry.kv_len)
    check_dense(caller, name, tensor)
    check_device(caller, name, tensor, geometry.device)
    tensor = tensor if tensor.dtype == torch.bool else tensor != 0
    shaped = tensor[:, None] if tensor.dim() == 3 else tensor[(None,) * (4 - tensor.dim())]
    if tensor.dim() > 4 or any(have not in (1, need) for have, need in zip(shaped.shape, full, strict=True)):
        expected = f"broadcastable to [batch, heads, q_len, kv_len] = {full}"
        raise ShapeError(message(caller, must_be(name, expected, f"of shape {tuple(tensor.shape)}")))
    return shaped


def _fit(caller: str, name: str, tensor: Tensor, full: Sequence[int], expected: str, geometry: Geometry) -> None:
    """Refuse a tensor that lies elsewhere or is not of the full shape; its first axis, the batch, may be 1."""
    check_dense(caller, name, tensor)
    check_device(caller, name, tensor, geometry.device)
    if tuple(tensor.shape[1:]) != tuple(full[1:]) or tensor.shape[0] not in (1, full[0]):
        expected = f"of shape {expected} = {tuple(full)}"
        raise ShapeError(message(caller, must_be(name, expected, f"of shape {tuple(tensor.shape)}")))
