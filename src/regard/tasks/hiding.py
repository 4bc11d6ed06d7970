"""Words that are hidden from a model while it learns, so that it does without those it never saw."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from regard.train.data import Collate, Row, RowData


class HidingData(RowData):
    """Examples of which some words are unknown: others in every epoch.

    In the first epoch, which is that of validations, all words are there; in later ones the seed, the epoch and the
    number of the example draw which are hidden. So a training that goes on after a stop sees what it would have seen.

    Args:
        rows: As for ``RowData``, with ``input_ids``.
        lengths: As for ``TrainData``.
        collate: As for ``TrainData``.
        places: As for ``TrainData``.
        share: Of the words that are hidden.
        unknown: The id that stands for them.
        kept: Ids that are never hidden.
        seed: Decides which.

    Source:
        Iyyer et al. 2015, "Deep unordered composition rivals syntactic methods", section 3: "word dropout".
    """

    def __init__(
        self,
        rows: Sequence[Row],
        lengths: Sequence[tuple[int, ...]],
        collate: Collate,
        places: Sequence[str] = (),
        *,
        share: float,
        unknown: int,
        kept: Sequence[int],
        seed: int,
    ) -> None:
        super().__init__(rows, lengths, collate, places)
        self._share, self._unknown, self._kept, self._seed = share, unknown, kept, seed

    def row(self, index: int, epoch: int) -> Row:
        """An example as it is in an epoch."""
        row = self.rows[index]
        if epoch == 0:
            return row
        ids = np.array(row["input_ids"])
        hidden = np.random.default_rng([self._seed, epoch, index]).random(len(ids)) < self._share
        hidden &= ~np.isin(ids, self._kept)
        return {**row, "input_ids": np.where(hidden, self._unknown, ids).tolist()}

    def fingerprint(self) -> str:
        """Of the examples, and of how words are hidden."""
        how = f"{super().fingerprint()} {self._share} {self._unknown} {self._kept} {self._seed}"
        return hashlib.sha256(how.encode()).hexdigest()
