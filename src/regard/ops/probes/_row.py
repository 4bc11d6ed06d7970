"""Probes that have one value per query: what they share, so that each is only its formula."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._base import Kind, Probe, State
from regard.ops.probes._fused import Answer
from regard.ops.probes._gather import nothing_seen, over_tensors, same_batch, take_batch


class RowProbe(Probe):
    """A probe whose value is a statement about each query by itself.

    A subclass gives ``define`` for any strip; the values of strips, and of calls, follow each other along the queries.
    ``merge`` is right as it stands for values that are linear in the weights (masses, means) and is to be replaced for
    all others.
    """

    kind: ClassVar[Kind] = "row"

    @abstractmethod
    def define(self, strip: Strip) -> Any:
        """The values of these rows: tensors of shape [batch, heads, rows, …]."""

    def rows(self, strip: Strip) -> Any:
        """The same as ``define``, by a faster way if there is one."""
        return self.define(strip)

    def begin(self) -> State:
        """An empty state that puts the rows after each other."""
        return RowState(type(self).__name__, self.rows, self.answered)

    def answered(self, answer: Answer) -> Any:
        """The value of all rows of a call from the answer to the probe's question."""
        return answer.values

    def merge(
        self,
        values: Sequence[Any],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> Any:
        """Σ share · value over the shards; see ``Probe.merge``."""
        return weighted_sum(values, shares)


def weighted_sum(values: Sequence[Tensor], shares: Sequence[Float[Tensor, "batch heads q"]]) -> Tensor:
    """Σ share · value, for values with any axes behind the queries."""
    parts = [scaled(value, share) for value, share in zip(values, shares, strict=True)]
    return torch.stack(parts).sum(0)


def scaled(value: Tensor, share: Float[Tensor, "batch heads q"]) -> Tensor:
    """Share · value; what is 0 in a shard stays 0 in a NaN row, as masked weights do."""
    share = share[(...,) + (None,) * (value.ndim - 3)]
    return torch.where(value == 0, 0, share * value)


def _as_answered(answer: Answer) -> Any:  # has a name, so that a state can be pickled
    return answer.values


class RowState(State):
    """The rows seen so far, one piece per strip, joined when they are asked for.

    Args:
        name: Of the probe, for errors.
        rows: Value of the rows of one strip; must share no memory with the strip.
        answered: Value of the rows of one call, from the answer to the probe's question; as it is if None.
    """

    def __init__(
        self, name: str, rows: Callable[[Strip], Any], answered: Callable[[Answer], Any] | None = None
    ) -> None:
        self._name = name
        self._rows = rows
        self._answered = answered or _as_answered
        self._pieces: list[Any] = []
        self._batch: int | None = None

    @torch.no_grad()
    def update(self, strip: Strip) -> None:
        """Append the values of these rows."""
        self._append(strip.geometry, self._rows(strip))

    def absorb(self, answer: Answer) -> None:
        """Append the values of a call."""
        self._append(answer.geometry, self._answered(answer))

    def _append(self, geometry: Geometry, piece: Any) -> None:
        if self._batch is not None:
            same_batch(self._name, self._batch, geometry)
        self._batch = geometry.batch
        self._pieces.append(piece)

    def value(self) -> Any:
        """All rows, in order of time."""
        if not self._pieces:
            raise nothing_seen(self._name)
        joined = over_tensors(lambda *pieces: torch.cat(pieces, dim=2), *self._pieces)
        self._pieces = [joined]
        return over_tensors(torch.clone, joined)

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order."""
        self._pieces = [over_tensors(lambda piece: take_batch(piece, index), piece) for piece in self._pieces]
        self._batch = len(index) if self._pieces else None
