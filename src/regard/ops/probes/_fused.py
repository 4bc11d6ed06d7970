"""What a fast backend can answer for a probe in the same pass as the output, and how the answer is handed over.

A probe offers a ``Question`` for a call, or None where only strips will do. The backend returns one ``Answer`` per
question; the probe's state takes it in as if it had seen the strips of the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from regard.ops._strip import Geometry


class Asked(IntEnum):
    """What is asked; numbered as REGARD_* in native/include/regard.h."""

    ENTROPY = 0
    DISTANCE = 1
    SINK_SHARE = 2
    TOP_K = 3
    FIRST_KEYS = 4
    OFFSETS = 5
    SPANS = 6
    KEY_MASS = 7
    HEAT_MAP = 8
    WEIGHTS = 9
    LOG_SUM_EXP = 10  # every backend has it at hand; not a native probe


@dataclass(frozen=True)
class Question:
    """One thing to gather of the weights of a call.

    Args:
        kind: What.
        size: How many: k, first keys, offsets, spans, map rows, weight rows.
        cols: Columns of a heat map.
        length: Positions that a heat map's bins divide; 0 for the lengths of the call.
        numbers: Offsets, span bounds one after another, or query indices.
    """

    kind: Asked
    size: int = 0
    cols: int = 0
    length: int = 0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Answer:
    """What was gathered over all queries and keys of a call.

    Args:
        geometry: Of the call.
        values: float32 [batch, heads, q, …] for what rows are asked; float64 sums for KEY_MASS [batch, heads, kv] and
            HEAT_MAP [batch, heads, rows, cols].
        keys: Absolute key positions of TOP_K, −1 for none.
        rest: The mass TOP_K left out.
    """

    geometry: Geometry
    values: Tensor
    keys: Tensor | None = None
    rest: Tensor | None = None
