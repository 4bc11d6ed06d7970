"""The oracle: attention as a triple loop in Python floats. It shares no code with regard and none with torch's maths.

Written from the rules in DESIGN.md §2, one comment per rule. Slow on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LOWEST_ANY_DTYPE = -3.38e38
Predicate = Callable[[int, int, int, int, int, int], bool]  # b, h, i, j, position of i, position of j


@dataclass(frozen=True)
class Rule:
    """A mask twice: the regard value under test, and what it must mean, as a Python predicate."""

    value: Any
    sees: Predicate

    def __and__(self, other: Rule) -> Rule:
        return Rule(self.value & other.value, lambda *at: self.sees(*at) and other.sees(*at))

    def __or__(self, other: Rule) -> Rule:
        return Rule(self.value | other.value, lambda *at: self.sees(*at) or other.sees(*at))

    def __invert__(self) -> Rule:
        return Rule(~self.value, lambda *at: not self.sees(*at))


@dataclass(frozen=True)
class Answer:
    """Everything the oracle knows about one call, in float64."""

    output: Tensor
    weights: Tensor
    lse: Tensor
    entropy: Tensor
    sink_share: Tensor
    visible: Tensor  # bool [B, H, q, kv]: allowed by the mask and not blocked by the bias


def query_positions(batch: int, q_len: int, kv_len: int, q_start: Any = "end", kv_start: int = 0) -> list[list[int]]:
    """Where each query sits: the last query on the last key by default."""
    if isinstance(q_start, Tensor):
        starts = [int(start) for start in q_start.tolist()]
    elif q_start == "end":
        starts = [kv_start + kv_len - q_len] * batch
    elif q_start == "start":
        starts = [0] * batch
    else:
        starts = [int(q_start)] * batch
    return [[start + i for i in range(q_len)] for start in starts]


def sees_matrix(
    sees: Predicate | None, batch: int, heads: int, q_len: int, kv_len: int, q_start: Any = "end", kv_start: int = 0
) -> Tensor:
    """The predicate, cell by cell: bool [batch, heads, q_len, kv_len]."""
    matrix = torch.ones(batch, heads, q_len, kv_len, dtype=torch.bool)
    if sees is None:
        return matrix
    positions = query_positions(batch, q_len, kv_len, q_start, kv_start)
    for b in range(batch):
        for h in range(heads):
            for i in range(q_len):
                for j in range(kv_len):
                    matrix[b, h, i, j] = bool(sees(b, h, i, j, positions[b][i], kv_start + j))
    return matrix


def answer(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    sees: Predicate | Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    q_start: Any = "end",
    kv_start: int = 0,
) -> Answer:
    """Attend, one cell at a time."""
    batch, heads, q_len, head_dim = query.shape
    kv_heads, kv_len = key.shape[1], key.shape[2]
    value = torch.zeros(batch, kv_heads, kv_len, 0) if value is None else value
    value_dim = value.shape[3]
    if not isinstance(sees, Tensor):
        sees = sees_matrix(sees, batch, heads, q_len, kv_len, q_start, kv_start)
    seen = sees.expand(batch, heads, q_len, kv_len).tolist()
    q, k, v = (tensor.detach().double().tolist() for tensor in (query, key, value))
    factor = head_dim**-0.5 if scale is None and head_dim else (scale or 0.0)
    added, blocked = _bias_cells(bias, (batch, heads, q_len, kv_len))
    sink = _sink_cells(sinks, (batch, heads, q_len))

    shape = (batch, heads, q_len)
    output, weights = torch.zeros(*shape, value_dim).double(), torch.zeros(*shape, kv_len).double()
    lse, entropy, share = torch.zeros(shape).double(), torch.zeros(shape).double(), torch.zeros(shape).double()
    visible = torch.zeros(*shape, kv_len, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            g = h // (heads // kv_heads)  # neighbours share a kv head; heads are not dealt out in turn
            for i in range(q_len):
                logits: dict[int, float] = {}
                for j in range(kv_len):
                    if not seen[b][h][i][j] or (blocked is not None and blocked[b][h][i][j]):
                        continue  # masked: whatever is stored there is not even read
                    score = factor * sum(q[b][h][i][d] * k[b][g][j][d] for d in range(head_dim))
                    if logit_softcap is not None:  # the cap comes before the bias
                        score = logit_softcap * math.tanh(score / logit_softcap)
                    logits[j] = score + (added[b][h][i][j] if added is not None else 0.0)
                row = _softmax(logits, None if sink is None else sink[b][h][i])
                for j, weight in row.weights.items():
                    weights[b, h, i, j], visible[b, h, i, j] = weight, True
                    for e in range(value_dim):
                        output[b, h, i, e] += weight * v[b][g][j][e]
                lse[b, h, i], entropy[b, h, i], share[b, h, i] = row.lse, row.entropy, row.sink_share
    return Answer(output, weights, lse, entropy, share, visible)


@dataclass(frozen=True)
class _Row:
    weights: dict[int, float]
    lse: float
    entropy: float
    sink_share: float


def _softmax(logits: dict[int, float], sink: float | None) -> _Row:
    everything = [*logits.values(), *([] if sink is None else [sink])]
    if not everything:  # nothing to see and no sink: an empty row
        return _Row({}, -math.inf, 0.0, 0.0)
    if any(math.isnan(x) or x == math.inf for x in logits.values()):  # a typo must show, not turn into a one-hot row
        return _Row(dict.fromkeys(logits, math.nan), math.nan, math.nan, math.nan)
    top = max(everything)
    if top == -math.inf:  # only a sink of −inf
        return _Row({}, -math.inf, 0.0, 0.0)
    total = sum(math.exp(x - top) for x in everything)
    weights = {j: math.exp(x - top) / total for j, x in logits.items()}
    entropy = -sum(w * math.log(w) for w in weights.values() if w > 0)
    return _Row(weights, top + math.log(total), entropy, 0.0 if sink is None else math.exp(sink - top) / total)


def _bias_cells(bias: Tensor | None, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The bias as nested lists, and which cells it blocks: −inf, −3.38e38 and below, or its own dtype's lowest."""
    if bias is None:
        return None, None
    own_lowest = torch.finfo(bias.dtype).min
    flat = bias.detach().expand(shape)
    blocked = (flat.double() <= LOWEST_ANY_DTYPE) | (flat == own_lowest)
    return flat.double().tolist(), blocked.tolist()


def _sink_cells(sinks: Tensor | None, shape: tuple[int, ...]) -> Any:
    if sinks is None:
        return None
    cells = sinks.detach().double()
    cells = cells.view(1, -1, 1) if cells.dim() == 1 else cells.squeeze(-1)
    return cells.expand(shape).tolist()
