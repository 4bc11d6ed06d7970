"""The mean of several states of the weights: a better model than the last of them, for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class WeightAverage:
    """A running mean of a model's parameters.

        mean ← mean + (weights − mean) / n

    Numerics:
        Kept in float32 (float64 for float64 weights).

    Source:
        Vaswani et al. 2017, section 6.1, who average the last checkpoints.
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Take in the weights of now."""
        self.count += 1
        for name, weight in model.named_parameters():
            wide = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
            if self.count == 1:
                self._mean[name] = wide.clone()
            else:
                mean = self._mean[name] = self._mean[name].to(wide.device)  # what was loaded lies on the CPU
                mean += (wide - mean) / self.count

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Let the model have the mean for its weights, and its own again afterwards."""
        own = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        _set(model, self._mean)
        try:
            yield
        finally:
            _set(model, own)

    def into(self, model: nn.Module) -> None:
        """Give the model the mean for good."""
        _set(model, self._mean)

    def save(self, path: Path) -> None:
        """Write the mean, where there is one."""
        if self.count:
            save_file({name: mean.contiguous() for name, mean in self._mean.items()}, path)

    def load(self, path: Path, *, count: int) -> None:
        """Go on from what ``save`` wrote, of so many states.

        Raises:
            OSError: there is no such file.
        """
        self.count = count
        self._mean = load_file(path) if count else {}


@torch.no_grad()
def _set(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(weights[name])
