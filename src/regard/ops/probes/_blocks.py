"""Long strips a few rows at a time, so that what is computed from them stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

_ENTRIES = 1 << 17  # per block on a CPU; half a MiB of float32


def by_blocks(
    reduce: Callable[[Float[Tensor, "block n"]], Float[Tensor, "block m"]],
    values: Float[Tensor, "*rows n"],
) -> Float[Tensor, "*rows m"]:
    """Apply a reduction of the last axis to all rows, on a CPU block after block."""
    rows = values.reshape(values.shape[:-1].numel(), values.shape[-1])
    height = block_height(rows)
    if height >= rows.shape[0]:
        return torch.unflatten(reduce(rows), 0, values.shape[:-1])
    return torch.unflatten(torch.cat([reduce(block) for block in torch.split(rows, height)]), 0, values.shape[:-1])


def block_height(values: Float[Tensor, "*rows n"]) -> int:
    """How many rows are worked on at a time: as many as the cache holds, all of them where there is a GPU."""
    if values.device.type != "cpu":
        return max(1, values.shape[:-1].numel())
    return max(1, _ENTRIES // max(1, values.shape[-1]))
