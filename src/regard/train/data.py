"""What a trainer reads: examples as numbers, how they become a batch, and where each came from."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regard.text import LengthBuckets

ROWS = "rows"  # which examples a batch is made of, so that an error can name them
_NAMED = 8

Row = Mapping[str, Any]
Collate = Callable[[Sequence[Row]], dict[str, Tensor]]


class TrainData(ABC):
    """Examples as a model reads them.

    Args:
        collate: Makes a batch of rows: tensors, by the names of the model's arguments and the objective's targets.
        lengths: For each example the lengths of its sequences, by which batches are made.
        places: Where each example came from, such as ``train.tsv, line 12``.
    """

    def __init__(self, collate: Collate, lengths: Sequence[tuple[int, ...]], places: Sequence[str] = ()) -> None:
        self.collate = collate
        self.lengths = lengths
        self.places = places

    def __len__(self) -> int:
        """How many there are."""
        return len(self.lengths)

    @abstractmethod
    def row(self, index: int, epoch: int) -> Row:
        """One example as it is read in an epoch."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of all there is to learn from: the same data gives the same."""

    def batch_of(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch of rows that know their numbers."""
        numbers = torch.tensor([row[ROWS] for row in rows])
        return {**self.collate([{name: row[name] for name in row if name != ROWS} for row in rows]), ROWS: numbers}

    def named(self, numbers: Sequence[int]) -> str:
        """Where examples came from, in words."""
        shown = [self.places[number] if self.places else f"example {number}" for number in numbers[:_NAMED]]
        more = len(numbers) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")


class RowData(TrainData):
    """Examples that are the same in every epoch.

    Args:
        rows: For each example its ids and labels, by name.
        lengths: As for ``TrainData``.
        collate: As for ``TrainData``.
        places: As for ``TrainData``.
    """

    def __init__(
        self, rows: Sequence[Row], lengths: Sequence[tuple[int, ...]], collate: Collate, places: Sequence[str] = ()
    ) -> None:
        super().__init__(collate, lengths, places)
        self.rows = rows

    def row(self, index: int, epoch: int) -> Row:
        """The example."""
        return self.rows[index]

    def fingerprint(self) -> str:
        """Of all names and numbers."""
        digest = hashlib.sha256()
        for row in self.rows:
            for name in sorted(row):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(row[name]).tobytes())
        return digest.hexdigest()


class WindowData(TrainData):
    """Windows of one long text, for models that continue it.

    Every epoch after the first cuts it at other places, so that no token always begins a window. In the first, which
    is that of validations, every token but the first is a target exactly once.

    Args:
        ids: The text.
        context: How long a window is.
        collate: Makes a batch of rows with ``input_ids`` and ``labels``, what comes next at each place.
        seed: Decides the cuts.
    """

    def __init__(self, ids: np.ndarray, *, context: int, collate: Collate, seed: int = 0) -> None:
        starts = range(0, max(len(ids) - 1, 0), context)
        super().__init__(collate, [(min(context, len(ids) - 1 - start),) for start in starts])
        self._ids = ids
        self._context = context
        self._seed = seed

    def row(self, index: int, epoch: int) -> Row:
        """A window, and the token after each of its tokens."""
        length = self.lengths[index][0]
        shift = 0 if epoch == 0 else int(np.random.default_rng([self._seed, epoch]).integers(self._context))
        start = min(index * self._context + shift, len(self._ids) - 1 - length)
        return {"input_ids": self._ids[start : start + length], "labels": self._ids[start + 1 : start + length + 1]}

    def fingerprint(self) -> str:
        """Of the text and the length of its windows."""
        return hashlib.sha256(np.ascontiguousarray(self._ids).tobytes() + str(self._context).encode()).hexdigest()


class Batches(DataLoader[Row]):
    """A loader of length-bucketed batches that a trainer can set to an epoch.

    Args:
        data: The examples.
        sampler: Which are together.
    """

    def __init__(self, data: TrainData, sampler: LengthBuckets) -> None:
        # Its own generator: an epoch that begins draws nothing from the one that dropout uses.
        generator = torch.Generator().manual_seed(0)
        rows = _RowsOfEpoch(data, sampler)
        super().__init__(rows, batch_sampler=sampler, collate_fn=data.batch_of, generator=generator)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        sampler: Any = self.batch_sampler
        sampler.set_epoch(epoch)


class _RowsOfEpoch(Dataset[Row]):
    """The rows of the epoch that the sampler is set to, each with its number."""

    def __init__(self, data: TrainData, sampler: LengthBuckets) -> None:
        self._data = data
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Row:
        return {**self._data.row(index, self._sampler.epoch), ROWS: index}


def padded(rows: Sequence[Sequence[int] | np.ndarray], *, fill: int) -> Tensor:
    """Rows of ids as one tensor [rows, longest], filled up at the end."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), longest), fill, dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return torch.from_numpy(table)
