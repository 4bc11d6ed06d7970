"""Masks as data: a short postfix program over numbered arrays, and its numpy evaluator.

A mask in ``regard.ops`` is a tree of values such as ``Causal() & Padding(keep)``. A tree cannot cross a custom-op
boundary and cannot be written to a file; a list of integers and a list of arrays can do both. ``regard.ops`` lowers
every mask to such a program and evaluates it with torch; this module evaluates the same program with numpy, so that a
recording can be read back without torch.

    Causal() & Padding(keep)   ->   code = (CAUSAL, PADDING, 0, AND),  arrays = (keep,)

Rules about *where a token sits* (causal, window, prefix) read absolute positions; rules about *which token it is*
(padding, documents, allowed) read indices into the arrays of the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Int, Shaped

from regard.errors import UnsupportedError, message


class Op(IntEnum):
    """What one instruction does; in brackets the integers that follow it in the code."""

    EVERYTHING = 0  # []               every key is allowed
    CAUSAL = 1  # []                   key position <= query position
    WINDOW = 2  # [size]               |query position - key position| < size
    PADDING = 3  # [array]             keep[b, j]; array is bool [1 | batch, kv_len]
    DOCUMENTS = 4  # [array, array]    key_ids[b, j] == query_ids[b, i] >= 0; int64 [1 | batch, kv_len], [.., q_len]
    PREFIX = 5  # [array]              key position < length[b]; array is int64 [1 | batch]
    ALLOWED = 6  # [array]             allowed[b, h, i, j]; bool, broadcastable to [batch, heads, q_len, kv_len]
    AND = 7  # []                      of the two results before it
    OR = 8  # []                       of the two results before it
    NOT = 9  # []                      of the result before it
    WHERE = 10  # [function]           a Python predicate of positions; known to ``regard.ops`` alone, never stored


OPERANDS: dict[Op, int] = {
    Op.EVERYTHING: 0,
    Op.CAUSAL: 0,
    Op.WINDOW: 1,
    Op.PADDING: 1,
    Op.DOCUMENTS: 2,
    Op.PREFIX: 1,
    Op.ALLOWED: 1,
    Op.AND: 0,
    Op.OR: 0,
    Op.NOT: 0,
    Op.WHERE: 1,
}


def instructions(code: tuple[int, ...]) -> Iterator[tuple[Op, tuple[int, ...]]]:
    """Read a code one instruction at a time: the operation and the integers that follow it."""
    at = 0
    while at < len(code):
        op = Op(code[at])
        end = at + 1 + OPERANDS[op]
        yield op, code[at + 1 : end]
        at = end


@dataclass(frozen=True, eq=False)
class MaskProgram:
    """A mask as data.

    Args:
        code: The instructions, flattened (see ``Op``).
        arrays: What the instructions refer to by number.
    """

    code: tuple[int, ...]
    arrays: tuple[np.ndarray, ...] = ()

    def allowed(
        self,
        q_positions: Int[np.ndarray, "batch_or_1 q"],
        k_positions: Int[np.ndarray, "k"],
        *,
        rows: slice = slice(None),
        keys: slice = slice(None),
    ) -> Bool[np.ndarray, "b h i j"]:
        """Evaluate the program on a tile: which keys each query may see.

        Args:
            q_positions: Absolute position of each query of the tile.
            k_positions: Absolute position of each key of the tile.
            rows: Which queries of the call the tile holds; indexes the arrays.
            keys: Which keys of the call the tile holds; indexes the arrays.

        Returns:
            True where the query may see the key; axes of size 1 broadcast to [batch, heads, q, k].

        Raises:
            UnsupportedError: The program holds a Python function, which only ``regard.ops`` can evaluate.
        """
        query, key = q_positions[:, None, :, None], k_positions[None, None, None, :]
        stack: list[np.ndarray] = []
        for op, operands in instructions(self.code):
            if op in (Op.AND, Op.OR):
                right, left = stack.pop(), stack.pop()
                stack.append(left & right if op is Op.AND else left | right)
            elif op is Op.NOT:
                stack.append(~stack.pop())
            else:
                stack.append(self._leaf(op, operands, query, key, rows, keys))
        (answer,) = stack
        return answer

    def _leaf(
        self, op: Op, operands: tuple[int, ...], query: np.ndarray, key: np.ndarray, rows: slice, keys: slice
    ) -> np.ndarray:
        """What one rule allows; queries and keys are [batch or 1, 1, q, 1] and [1, 1, 1, k]."""
        values = [self.arrays[number] for number in operands] if op in _READS_ARRAYS else []
        whole = (len(values[0]) if values else 1, 1, query.shape[2], key.shape[3])
        result: np.ndarray
        match op:
            case Op.EVERYTHING:
                result = np.ones(whole, dtype=bool)
            case Op.CAUSAL:
                result = key <= query
            case Op.WINDOW:
                result = np.abs(query - key) < operands[0]
            case Op.PADDING:
                result = np.broadcast_to(values[0][:, None, None, keys], whole)
            case Op.DOCUMENTS:
                key_ids, query_ids = values[0][:, None, None, keys], values[1][:, None, rows, None]
                result = (key_ids == query_ids) & (key_ids >= 0)
            case Op.PREFIX:
                result = np.broadcast_to(key < values[0][:, None, None, None], whole)
            case Op.ALLOWED:
                result = _cut(values[0], rows, keys)
            case Op.WHERE:
                problem = "a mask built from a Python function cannot be evaluated outside regard.ops."
                raise UnsupportedError(message("MaskProgram.allowed", problem))
        return result

    def problems(self) -> list[str]:
        """Why this program cannot be evaluated, as sentences; empty for a sound one."""
        found: list[str] = []
        depth, at = 0, 0
        while at < len(self.code):
            word = self.code[at]
            if word not in _WORDS:
                return [*found, f"the code holds {word} at place {at}, which is no instruction"]
            op = Op(word)
            operands = self.code[at + 1 : at + 1 + OPERANDS[op]]
            if len(operands) < OPERANDS[op]:
                return [*found, f"the code ends within {op.name}"]
            found += self._problems_of(op, operands)
            depth += {Op.AND: -1, Op.OR: -1, Op.NOT: 0}.get(op, 1)
            if depth < 1:
                return [*found, f"{op.name} at place {at} has too little before it"]
            at += 1 + OPERANDS[op]
        return found if depth == 1 else [*found, f"the code leaves {depth} results where it must leave one"]

    def _problems_of(self, op: Op, operands: tuple[int, ...]) -> list[str]:
        if op is Op.WHERE:
            return ["WHERE holds a Python function, which is never stored"]
        if op not in _READS_ARRAYS:
            return []
        found: list[str] = []
        for number in operands:
            if not 0 <= number < len(self.arrays):
                found.append(f"{op.name} reads array {number} of {len(self.arrays)}")
                continue
            array, (dtype, axes) = self.arrays[number], _READS[op]
            if array.dtype.name != dtype or array.ndim != axes:
                found.append(f"{op.name} must read {dtype} with {axes} axes, but reads {array.dtype} {array.shape}")
        return found


_WORDS = frozenset(int(op) for op in Op)
_READS = {Op.PADDING: ("bool", 2), Op.DOCUMENTS: ("int64", 2), Op.PREFIX: ("int64", 1), Op.ALLOWED: ("bool", 4)}
_READS_ARRAYS = frozenset(_READS)


def _cut(allowed: Shaped[np.ndarray, "b h i j"], rows: slice, keys: slice) -> Shaped[np.ndarray, "b h q k"]:
    """Take the rows and keys of a tile, leaving axes of size 1 to broadcast."""
    allowed = allowed[:, :, rows, :] if allowed.shape[2] > 1 else allowed
    return allowed[:, :, :, keys] if allowed.shape[3] > 1 else allowed
