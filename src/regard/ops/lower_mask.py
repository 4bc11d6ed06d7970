"""A mask written out: as a program that can be stored, or as a tensor of every query and key."""

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
    q_start: QStart = "end",
    kv_start: int = 0,
    device: torch.device | str = "cpu",
) -> Bool[Tensor, "batch num_heads q_len kv_len"]:
    """Which key every query may see, written out: quadratic memory, for short inputs.

    Args:
        mask: A mask, or a bool tensor as ``attend`` takes it.
        shape: (batch, num_heads, q_len, kv_len) of the call it belongs to.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.
        device: Where the tensors of the mask are.

    Returns:
        True = may attend; a view that repeats what is the same for every row or head.

    Raises:
        ShapeError, DTypeError: as ``attend`` for its ``mask``.

    Example:
        >>> from regard.ops import Causal, dense_mask
        >>> dense_mask(Causal(), (1, 1, 2, 2))[0, 0].tolist()
        [[True, False], [True, True]]
    """
    geometry = make_geometry(
        "dense_mask", shape, q_start=q_start, kv_start=kv_start, dtype=torch.float32, device=torch.device(device)
    )
    return lower_given("dense_mask", mask, geometry, q_start).allowed(geometry, slice(None), slice(None)).expand(shape)
