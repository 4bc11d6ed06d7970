"""Weight matrices that probes are checked on: every kind of row, cut into strips and calls.

Positions stay below the bound that ``check_probe`` promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Geometry, Strip


@dataclass(frozen=True, eq=False)
class Matrix:
    """Scores of one attention call, from which strips are cut.

    Args:
        logits: float64 scores that are exact in float32 too; −inf where masked.
        q_positions: Absolute position of each query.
        sinks: Sink logit per row, or None.
        kv_start: Absolute position of key 0.
        tied: Whether many scores are equal.
    """

    logits: Float[Tensor, "batch heads q kv"]
    q_positions: Int[Tensor, "batch_or_1 q"]
    sinks: Float[Tensor, "heads"] | None = None
    kv_start: int = 0
    tied: bool = False

    def geometry(self, dtype: torch.dtype) -> Geometry:
        """Of the call."""
        batch, heads, q_len, kv_len = self.logits.shape
        return Geometry(batch, heads, q_len, kv_len, self.q_positions, self.kv_start, dtype, self.logits.device)

    def strip(self, rows: slice, keys: slice, dtype: torch.dtype = torch.float64) -> Strip:
        """Softmax of these rows, in float64, rounded once."""
        logits = self.logits[:, :, rows]
        denominator = logits
        if self.sinks is not None:
            sink = self.sinks[None, :, None, None].expand(*logits.shape[:3], 1)
            denominator = torch.cat([logits, sink], dim=-1)
        if denominator.shape[-1] == 0:
            lse = logits.new_full(logits.shape[:3], -torch.inf)
        else:
            lse = torch.logsumexp(denominator, dim=-1)
        weights = torch.where(logits == -torch.inf, 0.0, torch.exp(logits - lse[..., None]))
        sink_share = torch.zeros_like(lse) if self.sinks is None else torch.exp(self.sinks[None, :, None] - lse)
        return Strip(
            geometry=self.geometry(dtype),
            row=rows.start,
            key=keys.start,
            logits=logits[..., keys].to(dtype, copy=True),
            weights=weights[..., keys].to(dtype, copy=True),
            lse=lse.to(dtype, copy=True),
            sink_share=sink_share.to(dtype, copy=True),
        )

    def whole(self, dtype: torch.dtype = torch.float64) -> Strip:
        """The matrix as one strip."""
        return self.strip(slice(0, self.logits.shape[2]), slice(0, self.logits.shape[3]), dtype)

    def strips(self, height: int, dtype: torch.dtype = torch.float64) -> Iterator[Strip]:
        """The matrix from top to bottom, every strip as narrow as its mask lets it be."""
        q_len = self.logits.shape[2]
        for row in range(0, max(q_len, 1), height):
            rows = slice(row, min(row + height, q_len))
            used = (self.logits[:, :, rows] != -torch.inf).any(dim=0).any(dim=0).any(dim=0).nonzero().flatten().tolist()
            keys = slice(used[0], used[-1] + 1) if used else slice(0, 0)
            yield self.strip(rows, keys, dtype)

    def call(self, rows: slice, keys: slice) -> Matrix:
        """Some queries and keys as a call by itself, as one step of a generation."""
        return replace(
            self,
            logits=self.logits[:, :, rows, keys],
            q_positions=self.q_positions[:, rows],
            kv_start=self.kv_start + keys.start,
        )

    def take(self, index: Int[Tensor, "new_batch"]) -> Matrix:
        """The chosen batch rows."""
        positions = self.q_positions if self.q_positions.shape[0] == 1 else self.q_positions[index]
        return replace(self, logits=self.logits[index], q_positions=positions)


def matrices(seed: int) -> Iterator[tuple[str, Matrix]]:
    """Named matrices, one for every way in which a row can be special."""
    random = torch.Generator().manual_seed(seed)
    plain = _random(random, 2, 3, 9, 13)
    yield "a random matrix with empty rows", plain
    yield "sinks", replace(plain, sinks=torch.tensor([-1.0, 0.5, 4.0], dtype=torch.float64))
    yield "one row", _random(random, 2, 1, 1, 7)
    yield "no rows", _random(random, 1, 2, 0, 5)
    yield "no keys", _random(random, 2, 2, 3, 0)
    yield "no keys but sinks", replace(_random(random, 2, 2, 3, 0), sinks=torch.zeros(2, dtype=torch.float64))
    yield "more queries than keys", _random(random, 1, 2, 20, 3)
    yield "positions that differ between batch rows", replace(plain, q_positions=_starts(torch.tensor([2, 7]), 9))
    yield "a cache that slid", replace(plain, kv_start=6, q_positions=_starts(torch.tensor([10]), 9))
    spoiled = plain.logits.clone()
    spoiled[:, :, 4] = spoiled[:, :, 4].masked_fill(spoiled[:, :, 4] != -torch.inf, torch.nan)
    yield "a NaN row", replace(plain, logits=spoiled)
    ties = torch.round(_random(random, 2, 2, 6, 150).logits) * 300
    yield "scores that tie and weights that underflow", Matrix(ties, _starts(torch.tensor([144]), 6), tied=True)
    yield "long rows", _random(random, 1, 2, 5, 397)
    yield "causal", causal(seed)


def causal(seed: int, *, length: int = 14, window: int | None = None, shift: bool = False) -> Matrix:
    """A self-attention matrix, whose upper left corners are the calls of a generation.

    Args:
        seed: Of the scores.
        length: Number of positions.
        window: Keys further back are masked, so that a sliding cache may drop them.
        shift: Let the queries of the second batch row sit one position earlier.
    """
    logits = _random(torch.Generator().manual_seed(seed), 2, 2, length, length).logits
    positions = _starts(torch.tensor([0, -1]) if shift else torch.tensor([0]), length).clamp(min=0)
    keys = torch.arange(length)
    allowed = keys <= positions[:, :, None]
    if window is not None:
        allowed &= keys > positions[:, :, None] - window
    return Matrix(logits.masked_fill(~allowed[:, None], -torch.inf), positions)


def _random(random: torch.Generator, batch: int, heads: int, q_len: int, kv_len: int) -> Matrix:
    """Normal scores, a quarter of the pairs masked, the third row empty, the last two keys seen by few."""
    logits = torch.randn(batch, heads, q_len, kv_len, generator=random).mul_(2)
    masked = torch.rand(batch, heads, q_len, kv_len, generator=random) < 0.25
    masked[:, :, 2:3] = True
    masked[:, :, : q_len // 2, -2:] = True
    positions = _starts(torch.tensor([max(0, kv_len - q_len)]), q_len)
    return Matrix(logits.double().masked_fill(masked, -torch.inf), positions)


def _starts(starts: Int[Tensor, "batch_or_1"], q_len: int) -> Int[Tensor, "batch_or_1 q"]:
    return starts[:, None] + torch.arange(q_len)
