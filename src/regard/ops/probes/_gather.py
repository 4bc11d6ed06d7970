"""What states share: putting rows after each other, growing along the keys, and following the beams."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.ops._strip import Geometry


def over_tensors(fn: Callable[..., Tensor], *values: Any) -> Any:
    """Apply ``fn`` to values that are tensors, or field by field to values that are dataclasses of tensors."""
    first = values[0]
    if isinstance(first, Tensor):
        return fn(*values)
    fields = [field.name for field in dataclasses.fields(first)]
    return type(first)(**{name: fn(*(getattr(value, name) for value in values)) for name in fields})


def nothing_seen(caller: str) -> ConfigError:
    """The error for a value that is asked for before any call was observed."""
    return ConfigError(message(caller, "nothing was observed yet.", hint="call observe() or measure() first."))


def same_batch(caller: str, gathered: int, geometry: Geometry) -> None:
    """A later call must have the batch rows of the earlier ones."""
    if gathered != geometry.batch:
        problem = must_be("batch", f"{gathered}, as in the calls before", geometry.batch)
        raise ShapeError(message(caller, problem, hint="call select() when batch rows move, vanish or appear."))


class KeyRange:
    """The absolute key positions seen so far: from the lowest ``kv_start`` to the highest key of any call."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.stop = 0

    @property
    def length(self) -> int:
        """Number of positions in the range."""
        return 0 if self.start is None else self.stop - self.start

    def widen(self, geometry: Geometry, *buffers: Tensor) -> tuple[Tensor, ...]:
        """Take in the keys of a call; returns the buffers padded with zeros along their last axis to match."""
        if self.start is None:
            self.start = self.stop = geometry.kv_start
        before = max(0, self.start - geometry.kv_start)
        after = max(0, geometry.kv_end - self.stop)
        self.start, self.stop = self.start - before, self.stop + after
        if not before and not after:
            return buffers
        return tuple(functional.pad(buffer, (before, after)) for buffer in buffers)

    def columns(self, position: int, count: int) -> slice:
        """Where ``count`` keys from an absolute position on lie in a buffer."""
        assert self.start is not None
        return slice(position - self.start, position - self.start + count)


def expand_positions(positions: Int[Tensor, "batch_or_1 r"], batch: int) -> Int[Tensor, "batch r"]:
    """One row of positions per batch row."""
    return positions if positions.shape[0] == batch else positions.expand(batch, -1)


def take_batch(tensor: Tensor, index: Int[Tensor, "new_batch"]) -> Tensor:
    """The chosen batch rows, in order."""
    return torch.index_select(tensor, 0, index.to(tensor.device))
