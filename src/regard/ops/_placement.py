"""Whether a tensor holds values that attention can read: dense, and on the device of the query."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ConfigError, UnsupportedError, message, must_be


def check_dense(caller: str, name: str, tensor: Tensor) -> None:
    """Refuse sparse, nested and other layouts, which have no strides.

    Raises:
        UnsupportedError: It is not dense.
    """
    if tensor.layout != torch.strided or tensor.is_nested:
        layout = "nested" if tensor.layout == torch.strided else str(tensor.layout).removeprefix("torch.")
        problem = must_be(name, "a dense tensor", f"of the layout {layout}")
        raise UnsupportedError(message(caller, problem, hint=f"{name}.to_dense(), or pad what is nested"))


def check_values(caller: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor without values.

    Raises:
        UnsupportedError: It is on the meta device.
    """
    if tensor.device.type == "meta":
        problem = must_be(name, "on a device that holds values", "on meta")
        raise UnsupportedError(message(caller, problem))


def check_device(caller: str, name: str, tensor: Tensor, device: torch.device) -> None:
    """Refuse a tensor that is not where the query is.

    Raises:
        ConfigError: It is on another device.
    """
    if tensor.device != device:
        problem = must_be(name, f"on the device of `query` ({device})", f"on {tensor.device}")
        raise ConfigError(message(caller, problem, hint=f"{name}.to({str(device)!r})"))
