"""A strip: some whole rows of the weight matrix, with all that a probe may ask about them.

Probes never see the full matrix. They are shown strips, in order of the query index, each a few rows high and as wide
as the keys those rows may see; memory is linear in the number of keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """What scores, sums and weights of inputs of a dtype are kept in: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


LARGEST_POSITION = 1 << 30
"""Positions and the distances between them lie within ± this."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """The shape of one attention call and where its queries and keys sit.

    Args:
        batch: Number of batch rows.
        num_heads: Number of query heads.
        q_len: Number of queries in this call.
        kv_len: Number of keys in this call.
        q_positions: Absolute position of each query; one row if all batch rows agree.
        kv_start: Absolute position of key 0 (more than 0 for a sliding cache).
        dtype: Of statistics (``statistics_dtype``).
        device: Of the inputs.
        aligned: Whether queries are known to be the last positions (``q_start="end"``).
    """

    batch: int
    num_heads: int
    q_len: int
    kv_len: int
    q_positions: Int[Tensor, "batch_or_1 q_len"]
    kv_start: int
    dtype: torch.dtype
    device: torch.device
    aligned: bool = False

    @property
    def square(self) -> bool:
        """Whether query i sits at the position of key i, for all of them."""
        return self.aligned and self.q_len == self.kv_len

    @property
    def kv_end(self) -> int:
        """One more than the absolute position of the last key."""
        return self.kv_start + self.kv_len


@dataclass(frozen=True, eq=False)
class Strip:
    """Rows [row, row + r) of the weight matrix, restricted to keys [key, key + c).

    Every key outside the range has weight exactly 0 in these rows: it is masked for all of them.

    Args:
        geometry: Of the call the rows belong to.
        row: Index of the first row.
        key: Index of the first key (its absolute position is ``geometry.kv_start + key``).
        logits: Final scores: scaled, soft-capped, biased; −inf where masked.
        weights: softmax of the logits (sink included in the denominator), exactly 0 where masked or where the row
            is empty.
        lse: Natural log of the denominator, sink included; −inf for an empty row without sink.
        sink_share: What the sink took of each row: 1 for an empty row with a sink, 0 without sinks.
    """

    geometry: Geometry
    row: int
    key: int
    logits: Float[Tensor, "batch heads r c"]
    weights: Float[Tensor, "batch heads r c"]
    lse: Float[Tensor, "batch heads r"]
    sink_share: Float[Tensor, "batch heads r"]

    @property
    def rows(self) -> slice:
        """Which queries of the call these rows are."""
        return slice(self.row, self.row + self.weights.shape[2])

    @property
    def keys(self) -> slice:
        """Which keys of the call these columns are."""
        return slice(self.key, self.key + self.weights.shape[3])

    @property
    def q_positions(self) -> Int[Tensor, "batch_or_1 r"]:
        """Absolute position of each row's query."""
        return self.geometry.q_positions[:, self.rows]

    @property
    def k_positions(self) -> Int[Tensor, "c"]:
        """Absolute position of each column's key."""
        start = self.geometry.kv_start + self.key
        return torch.arange(start, start + self.weights.shape[3], device=self.weights.device)
