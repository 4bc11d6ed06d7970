"""Whether the values of a tensor may be looked at: not under a transform or a compiler, nor where it costs a wait."""

from __future__ import annotations

import torch
from torch import Tensor


def in_transform() -> bool:
    """Whether a functorch transform (vmap, grad, jvp, …) is active, under which values cannot be looked at."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def in_vmap() -> bool:
    """Whether some active transform is vmap, whose tensors are of no use once it has ended."""
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels)


def is_free_to_look_at(tensor: Tensor) -> bool:
    """Whether a check of the tensor's values costs no more than reading them: eager mode, CPU, no transform."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not in_transform()
