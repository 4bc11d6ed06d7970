"""What a trainer reads: examples as numbers, how they become a batch, and where each came from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class TrainData(Dataset[Row]):
    """Examples as a model reads them.

    Args:
        rows: For each example its ids and labels, by name.
        lengths: For each example the lengths of its sequences, by which batches are made.
        collate: Makes a batch of rows: tensors, by the names of the model's arguments and the objective's targets.
        places: Where each example came from, such as ``train.tsv, line 12``.
    """

    rows: Sequence[Row]
    lengths: Sequence[tuple[int, ...]]
    collate: Collate
    places: Sequence[str] = ()

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        """One example, with its number."""
        return {**self.rows[index], ROWS: index}

    def batch_of(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch, with the numbers of its examples."""
        numbers = torch.tensor([row[ROWS] for row in rows])
        return {**self.collate(rows), ROWS: numbers}

    def named(self, numbers: Sequence[int]) -> str:
        """Where examples came from, in words."""
        shown = [self.places[number] if self.places else f"example {number}" for number in numbers[:_NAMED]]
        more = len(numbers) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")

    def fingerprint(self) -> str:
        """SHA-256 of all rows: the same data gives the same."""
        digest = hashlib.sha256()
        for row in self.rows:
            for name in sorted(row):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(row[name]).tobytes())
        return digest.hexdigest()


class Batches(DataLoader[Row]):
    """A loader of length-bucketed batches that a trainer can set to an epoch.

    Args:
        data: The examples.
        sampler: Which are together.
    """

    def __init__(self, data: TrainData, sampler: LengthBuckets) -> None:
        # Its own generator: an epoch that begins draws nothing from the one that dropout uses.
        generator = torch.Generator().manual_seed(0)
        super().__init__(data, batch_sampler=sampler, collate_fn=data.batch_of, generator=generator)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        sampler: Any = self.batch_sampler
        sampler.set_epoch(epoch)


def padded(rows: Sequence[Sequence[int]], *, fill: int) -> Tensor:
    """Rows of ids as one tensor [rows, longest], filled up at the end."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), longest), fill, dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return torch.from_numpy(table)
