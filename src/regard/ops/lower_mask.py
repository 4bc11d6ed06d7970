"""A mask as data: the same program the backends run, with numpy arrays, and the whole of it as one tensor."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.ops._call import QStart
from regard.ops._lower import lower
from regard.ops._validate import lower_given, make_geometry
from regard.ops.masks import Mask
from regard.records import MaskProgram


def lower_mask(
    mask: Mask, shape: tuple[int, int, int, int], *, q_start: QStart = "end", kv_start: int = 0
) -> MaskProgram | None:
    """Turn a mask into a program that numpy can evaluate and a recording can hold.

    Args:
        mask: The mask.
        shape: (batch, num_heads, q_len, kv_len) of the call it belongs to.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.

    Returns:
        The program; None for a mask with a ``Where``, which only its Python function knows.

    Raises:
        ShapeError: if a tensor of the mask does not fit the shape.

    Example:
        >>> from regard.ops import Causal, lower_mask
        >>> lower_mask(Causal(), (1, 1, 3, 3)).code
        (1,)
    """
    device = torch.device("cpu")
    geometry = make_geometry(
        "lower_mask", shape, q_start=q_start, kv_start=kv_start, dtype=torch.float32, device=device
    )
    on_cpu = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu(), mask)
    lowered = lower(on_cpu, geometry, caller="lower_mask")
    if lowered.functions:
        return None
    return MaskProgram(lowered.code, tuple(tensor.numpy().copy() for tensor in lowered.tensors))


def dense_mask(
    mask: Mask | Tensor,
    shape: tuple[int, int, int, int],
    *,
    device: torch.device | str = "cpu",
    q_start: QStart = "end",
) -> Bool[Tensor, "batch_or_1 heads_or_1 q_len kv_len"]:
    """Fill in a mask, for attention that does not come from ``attend`` (additive scores, say).

    Args:
        mask: A mask, or a bool tensor as ``attend`` takes it.
        shape: (batch, num_heads, q_len, kv_len) of the call it belongs to.
        device: Where the call computes.
        q_start: As for ``attend``.

    Returns:
        True where a query may see a key; the first two sizes are 1 where all rows or heads see the same.

    Raises:
        ShapeError, DTypeError, ConfigError: as ``attend``, if the mask does not fit.

    Cost:
        Quadratic memory in bytes: for short inputs.

    Example:
        >>> from regard.ops import Causal, dense_mask
        >>> dense_mask(Causal(), (1, 1, 2, 2))[0, 0].tolist()
        [[True, False], [True, True]]
    """
    device = torch.device(device)
    geometry = make_geometry("dense_mask", shape, q_start=q_start, kv_start=0, dtype=torch.float32, device=device)
    lowered = lower_given("dense_mask", mask, geometry, q_start)
    assert lowered is not None
    return lowered.allowed(geometry, slice(None), slice(None))
