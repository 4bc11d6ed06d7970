"""Biases as values: what is added to the scores by a rule instead of a tensor of the scores' size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.errors import DTypeError, ShapeError, message, must_be
from regard.ops._strip import Geometry

BLOCKING = -3.38e38
"""A bias at or below this blocks. It lies above the lowest float32 and bfloat16, which people write for −inf."""


def blocks(bias: Tensor) -> Bool[Tensor, "..."]:
    """Where a bias blocks: −inf, anything ≤ −3.38e38, or the lowest value of its own dtype."""
    threshold = max(BLOCKING, torch.finfo(bias.dtype).min)
    return bias <= threshold


@dataclass(frozen=True, eq=False)
class ALiBi:
    """Attention with linear biases: adds −slope_h · |query position − key position| to the scores of head h.

    Args:
        slopes: [num_heads], any floating dtype; ``regard.nn.alibi_slopes(num_heads)`` gives the usual ones.

    Raises:
        DTypeError: ``slopes`` is no floating tensor, or is learned, which needs a dense bias.
        ShapeError: It has not exactly one axis.

    Cost:
        The native backend adds it in registers; others make the dense bias, quadratic in memory.

    Source:
        Press et al. 2021, arXiv:2108.12409.
    """

    slopes: Float[Tensor, "num_heads"]

    def __post_init__(self) -> None:
        slopes = self.slopes
        if not isinstance(slopes, Tensor) or not slopes.dtype.is_floating_point:
            found = str(slopes.dtype) if isinstance(slopes, Tensor) else f"a {type(slopes).__name__}"
            raise DTypeError(message("ALiBi", must_be("slopes", "a floating tensor [num_heads]", found)))
        if slopes.dim() != 1:
            raise ShapeError(message("ALiBi", must_be("slopes", "of shape [num_heads]", f"{tuple(slopes.shape)}")))
        if slopes.requires_grad:
            hint = "for learned slopes pass the dense bias: bias=-slopes[:, None, None] * distance"
            raise DTypeError(message("ALiBi", must_be("slopes", "without gradient", "learned"), hint=hint))

    def dense(self, geometry: Geometry) -> Float[Tensor, "batch_or_1 num_heads q_len kv_len"]:
        """The same as a tensor, in the dtype of the statistics."""
        keys = torch.arange(geometry.kv_start, geometry.kv_end, device=geometry.device)
        distance = (geometry.q_positions[:, None, :, None] - keys).abs().to(geometry.dtype)
        return -self.slopes.to(geometry.dtype)[:, None, None] * distance


pytree.register_pytree_node(ALiBi, lambda bias: ([bias.slopes], None), lambda leaves, _: ALiBi(*leaves))
