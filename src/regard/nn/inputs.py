"""What a module is given, refused in its own words before anything is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import DTypeError, ShapeError, message, must_be
from regard.ops import Mask


def check_sequence(caller: str, name: str, given: object, width: int, weight: object) -> None:
    """Refuse what is no [batch, length, width] in the dtype of the weights that it meets.

    Raises:
        ShapeError, DTypeError: as said.
    """
    check_floats(caller, name, given, weight)
    assert isinstance(given, Tensor)
    if given.dim() != 3 or given.shape[2] != width:
        problem = must_be(name, f"of shape [batch, length, {width}]", f"of shape {tuple(given.shape)}")
        hint = f"a single sequence is {name}[None]" if given.dim() == 2 else None
        raise ShapeError(message(caller, problem, hint=hint))


def check_floats(caller: str, name: str, given: object, weight: object) -> None:
    """Refuse what is no tensor, or of another dtype than the weights, where autocast would not bring them together.

    Raises:
        DTypeError: as said.
    """
    if not isinstance(given, Tensor):
        hint = "a mask is given as mask=" if isinstance(given, Mask) else None
        raise DTypeError(message(caller, must_be(name, "a tensor", f"a {type(given).__name__}"), hint=hint))
    # a quantised map, with weights of integers or none to see, has dtypes of its own
    if not isinstance(weight, Tensor) or given.dtype == weight.dtype or not weight.is_floating_point():
        return
    if given.is_floating_point() and torch.is_autocast_enabled(given.device.type):
        return
    problem = must_be(name, f"of the dtype of the weights ({weight.dtype})", f"of {given.dtype}")
    raise DTypeError(message(caller, problem, hint=f"{name}.to({weight.dtype}) is"))


def check_keep(caller: str, name: str, keep: object, shape: tuple[int, ...], *, hint: str | None = None) -> Tensor:
    """Refuse what is no bool tensor of this shape.

    Args:
        caller: For messages.
        name: Of the argument.
        keep: What was given.
        shape: What it must have.
        hint: What to know about the shape.

    Raises:
        ShapeError, DTypeError: as said.
    """
    if not isinstance(keep, Tensor):
        raise DTypeError(message(caller, must_be(name, "bool (True = a real token)", f"a {type(keep).__name__}")))
    if keep.dtype != torch.bool:
        problem = must_be(name, "bool (True = a real token)", keep.dtype)
        raise DTypeError(message(caller, problem, hint=f"{name} != 0 makes it bool"))
    if tuple(keep.shape) != shape:
        problem = must_be(name, f"of shape {shape}", f"of shape {tuple(keep.shape)}")
        raise ShapeError(message(caller, problem, hint=hint))
    return keep
