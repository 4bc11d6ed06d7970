"""What is at work around a call: transforms, compilers and function modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function


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


def is_listened_to() -> bool:
    """Whether a ``TorchFunctionMode`` is active in this thread, to which ``attend`` shows itself as torch's own do."""
    return not torch.compiler.is_compiling() and torch._C._is_torch_function_mode_enabled()


def through_modes(function: Callable[..., Tensor], *tensors: Tensor, **options: Any) -> Tensor:
    """Call a function of ours by way of the active ``TorchFunctionMode``, which sees it and calls it."""
    output: Tensor = handle_torch_function(function, tensors, *tensors, **options)
    return output
