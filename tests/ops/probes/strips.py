"""Strips made from a dense matrix of logits and a mask, with a softmax written in Python floats."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.ops import Geometry, Strip
from regard.ops.probes import Probe


@dataclass
class Dense:
    """One call: logits [B, H, q, kv] (−inf masked), sinks [H] or None, positions; and what the softmax makes of it."""

    logits: np.ndarray
    q_positions: np.ndarray
    kv_start: int = 0
    sinks: np.ndarray | None = None
    weights: np.ndarray = field(init=False)
    lse: np.ndarray = field(init=False)
    sink_share: np.ndarray = field(init=False)

    def __post_init__(self):
        self.weights = np.zeros_like(self.logits)
        self.lse = np.full(self.logits.shape[:3], -np.inf)
        self.sink_share = np.zeros(self.logits.shape[:3])
        for b, h, i in np.ndindex(*self.logits.shape[:3]):
            row = self.logits[b, h, i].tolist()
            sink = [] if self.sinks is None else [float(self.sinks[h])]
            top = max([*row, *sink], default=-math.inf)
            if top == -math.inf:
                continue
            total = math.fsum(math.exp(s - top) for s in [*row, *sink])
            self.lse[b, h, i] = math.log(total) + top
            self.weights[b, h, i] = [math.exp(s - top) / total for s in row]
            self.sink_share[b, h, i] = math.exp(sink[0] - top) / total if sink else 0.0

    @property
    def shape(self):
        return self.logits.shape

    def position(self, b: int, i: int) -> int:
        """Absolute position of a query."""
        return int(self.q_positions[b if len(self.q_positions) > 1 else 0, i])

    def geometry(self, dtype: torch.dtype) -> Geometry:
        positions = torch.tensor(self.q_positions, dtype=torch.int64)
        return Geometry(*self.shape, positions, self.kv_start, dtype, torch.device("cpu"))

    def strip(self, rows: slice, keys: slice, dtype: torch.dtype = torch.float64) -> Strip:
        def cut(values: np.ndarray, *index: slice) -> Tensor:
            return torch.tensor(values[(slice(None), slice(None), *index)], dtype=dtype)

        return Strip(
            geometry=self.geometry(dtype),
            row=rows.start,
            key=keys.start,
            logits=cut(self.logits, rows, keys),
            weights=cut(self.weights, rows, keys),
            lse=cut(self.lse, rows),
            sink_share=cut(self.sink_share, rows),
        )

    def strips(self, height: int, dtype: torch.dtype = torch.float64) -> list[Strip]:
        """From top to bottom, each only as wide as its mask."""
        out = []
        for row in range(0, max(1, self.shape[2]), height):
            rows = slice(row, min(row + height, self.shape[2]))
            used = np.flatnonzero((self.logits[:, :, rows] != -np.inf).any(axis=(0, 1, 2)))
            keys = slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 0)
            out.append(self.strip(rows, keys, dtype))
        return out


def stream(probe: Probe, dense: Dense, height: int, dtype: torch.dtype = torch.float64):
    """The value of a state that was shown all strips."""
    state = probe.begin()
    for strip in dense.strips(height, dtype):
        state.update(strip)
    return state.value()


@st.composite
def dense_calls(draw, *, max_q: int = 6, max_kv: int = 9) -> Dense:
    """Any small call: no queries, no keys, empty rows, ties, underflow, sinks, positions of all kinds."""
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    q_len, kv_len = draw(st.integers(0, max_q)), draw(st.integers(0, max_kv))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = random.normal(size=(batch, heads, q_len, kv_len)) * draw(st.sampled_from([1.0, 5.0, 400.0]))
    if draw(st.booleans()):
        logits = np.round(logits)
    logits = logits.astype(np.float32).astype(np.float64)
    masked = random.random(logits.shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    if draw(st.booleans()) and kv_len:
        masked |= np.arange(kv_len) < draw(st.integers(0, kv_len))
    logits[masked] = -np.inf
    starts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=1)) if draw(st.booleans()) else None
    starts = starts or draw(st.lists(st.integers(0, 12), min_size=batch, max_size=batch))
    return Dense(
        logits=logits,
        q_positions=np.array(starts)[:, None] + np.arange(q_len),
        kv_start=draw(st.sampled_from([0, 0, 4])),
        sinks=random.normal(size=heads) * 3 if draw(st.booleans()) else None,
    )
