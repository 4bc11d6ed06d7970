"""Combining attention over shards of the keys: outputs and row probes merge exactly through lse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError, message


def shares(
    lse: Sequence[Float[Tensor, "batch heads q"]],
) -> tuple[Float[Tensor, "batch heads q"], list[Float[Tensor, "batch heads q"]]]:
    """The lse of whole rows and the share of each shard in them.

        lse = log Σ exp(lse_shard),   share = exp(lse_shard − lse)

    Args:
        lse: Log denominators of disjoint shards of the keys; −inf where a shard holds nothing a query may see.

    Returns:
        The lse of the whole row, and one share per shard; shares are 0 for an empty row.

    Raises:
        ShapeError: if there are no shards or their shapes differ.
    """
    if not lse or any(part.shape != lse[0].shape for part in lse):
        listed = ", ".join(str(tuple(part.shape)) for part in lse) or "no shards"
        raise ShapeError(message("merge.shares", f"`lse` must be shards of one shape, but is {listed}."))
    total = torch.logsumexp(torch.stack(list(lse)), dim=0)
    base = total.masked_fill(total == -torch.inf, 0)
    return total, [(part - base).exp() for part in lse]


def outputs(
    parts: Sequence[Float[Tensor, "batch heads q value_dim"]], lse: Sequence[Float[Tensor, "batch heads q"]]
) -> Float[Tensor, "batch heads q value_dim"]:
    """The output over all keys from the outputs over shards of them: Σ share · output."""
    _, each = shares(lse)
    return torch.stack([part * share[..., None] for part, share in zip(parts, each, strict=True)]).sum(dim=0)
