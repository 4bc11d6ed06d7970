"""The tensors of a row, and its mask and bias as each side must be told them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard import ops
from regard.bench.rows import DOCUMENTS, DTYPES, TOP_K, WINDOW, Row
from regard.nn import ALiBi


@dataclass(frozen=True, eq=False)
class Inputs:
    """What both sides of a row are given.

    Args:
        row: The row.
        query: Normally distributed, as are key, value and the bias of the case "bias".
        key: The same.
        value: The same.
        keep: Which keys are no padding, for the case "padding".
        bias: Added to the scores, without a mask in it; in the dtype of the query.
        grad: The gradient of the output, for "train".
    """

    row: Row
    query: Float[Tensor, "batch num_heads q_len head_dim"]
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"]
    value: Float[Tensor, "batch num_kv_heads kv_len head_dim"]
    keep: Bool[Tensor, "batch kv_len"] | None
    bias: Float[Tensor, "1 num_heads q_len kv_len"] | None
    grad: Float[Tensor, "batch num_heads q_len head_dim"] | None

    def visible(self, rows: Int[Tensor, "r"] | None = None) -> Bool[Tensor, "..."] | None:
        """The mask of some queries (all by default), dense; None where everything is visible."""
        shape, device = self.row.shape, self.query.device
        if self.keep is not None:
            return self.keep[:, None, None]
        query = torch.arange(shape.q_len, device=device) if rows is None else rows
        query = query[:, None] + shape.kv_len - shape.q_len
        key = torch.arange(shape.kv_len, device=device)[None]
        match self.row.case:
            case "causal" | "alibi_causal":
                return (key <= query)[None, None]
            case "window":
                return ((query - key).abs() < WINDOW)[None, None]
            case "documents":
                length = -(-shape.kv_len // DOCUMENTS)
                return (query // length == key // length)[None, None]
            case _:
                return None

    def options(self) -> dict[str, Any]:
        """``mask`` and ``bias`` as ``regard.attend`` takes them."""
        if self.row.case.startswith("alibi"):
            return self._alibi()
        return {"mask": self._mask(), "bias": self.bias}

    def _alibi(self) -> dict[str, Any]:
        """How regard is told of ALiBi: the only place that changes when it takes the slopes themselves."""
        return {"mask": ops.Causal() if self.row.case == "alibi_causal" else None, "bias": self.bias}

    def _mask(self) -> ops.Mask | None:
        match self.row.case:
            case "causal":
                return ops.Causal()
            case "window":
                return ops.SlidingWindow(WINDOW)
            case "documents":
                kv_len = self.row.shape.kv_len
                ids = torch.arange(kv_len, device=self.query.device) // -(-kv_len // DOCUMENTS)
                return ops.Documents(ids[None])
            case "padding":
                assert self.keep is not None
                return ops.Padding(self.keep)
            case _:
                return None

    def probes(self) -> tuple[ops.Probe, ...]:
        """What is asked of the weights."""
        bins = self.row.heat_map
        return ops.Entropy(), ops.TopK(TOP_K), ops.KeyMass(), ops.HeatMap(bins, bins)


def make_inputs(row: Row, *, seed: int = 0, device: str = "cpu") -> Inputs:
    """Draw the tensors of a row; the same for the same seed on every device."""
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = row.shape, DTYPES[row.dtype]

    def draw(heads: int, length: int) -> Tensor:
        numbers = torch.randn(shape.batch, heads, length, shape.head_dim, generator=generator)
        return numbers.to(dtype).to(device)

    query = draw(shape.num_heads, shape.q_len)
    key, value = draw(shape.num_kv_heads, shape.kv_len), draw(shape.num_kv_heads, shape.kv_len)
    train = row.work == "train"
    grad = draw(shape.num_heads, shape.q_len) if train else None
    for tensor in (query, key, value):
        tensor.requires_grad_(train)
    keep = None
    if row.case == "padding":
        lengths = torch.randint((shape.kv_len + 1) // 2, shape.kv_len + 1, (shape.batch, 1), generator=generator)
        keep = (torch.arange(shape.kv_len)[None] < lengths).to(device)
    return Inputs(row, query, key, value, keep, _bias(row, generator, device), grad)


def _bias(row: Row, generator: torch.Generator, device: str) -> Tensor | None:
    shape, dtype = row.shape, DTYPES[row.dtype]
    if row.case.startswith("alibi"):
        queries, keys = torch.arange(shape.kv_len - shape.q_len, shape.kv_len), torch.arange(shape.kv_len)
        bias: Tensor = ALiBi(shape.num_heads)(queries, keys)
        return bias.to(dtype).to(device)
    if row.case == "bias":
        # Four dimensions: torch's kernel takes its slow path for three.
        return torch.randn(1, shape.num_heads, shape.q_len, shape.kv_len, generator=generator).to(dtype).to(device)
    return None
