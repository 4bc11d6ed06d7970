"""A mask as data that can be stored: the same program the backends run, with numpy arrays."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from regard.ops._call import QStart
from regard.ops._lower import lower
from regard.ops._validate import make_geometry
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
