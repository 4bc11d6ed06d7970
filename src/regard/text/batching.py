"""Batches of examples of like length: little padding, a new order every epoch, the same number of batches in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from regard.errors import all_problems, must_be

_EXACT = 16  # up to this length every length is a bucket of its own


class LengthBuckets:
    """Index lists of examples whose lengths are alike.

    Lengths are rounded up to buckets (at most an eighth more), examples are ordered by bucket and, within one, at
    random; that order is cut wherever a batch would hold more than ``batch_tokens`` tokens, padding included, and the
    batches are shuffled. The cuts depend on the buckets alone, so every epoch has the same number of batches, and
    training can stop and go on at any of them.

    Args:
        lengths: For each example the lengths of its sequences, such as (source, target) or (text,).
        batch_tokens: The most tokens of a batch, padding included, all sequences together. An example longer than that
            is a batch of its own.
        batch_rows: The most examples of a batch; None for no limit.
        seed: Decides every order, together with the epoch.
        rank: Which of ``world_size`` processes this is: it gets every ``world_size``-th batch. Where the last round is
            not full, the first batches come again, so that all processes have as many.
        world_size: How many processes share the batches.

    Raises:
        ConfigError: with every problem.

    Cost:
        An epoch is sorted once: n log n for n examples.

    Example:
        >>> from regard.text import LengthBuckets
        >>> batches = LengthBuckets([(3,), (9,), (3,), (8,)], batch_tokens=18, seed=0)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        lengths: Sequence[Sequence[int]],
        *,
        batch_tokens: int,
        batch_rows: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        problems = []
        if not lengths:
            problems.append(must_be("lengths", "those of at least one example", "empty"))
        if batch_tokens < 1:
            problems.append(must_be("batch_tokens", "at least 1", batch_tokens))
        if batch_rows is not None and batch_rows < 1:
            problems.append(must_be("batch_rows", "at least 1, or None", batch_rows))
        if not 0 <= rank < world_size:
            problems.append(must_be("rank", f"between 0 and world_size - 1 ({world_size - 1})", rank))
        if problems:
            raise all_problems("LengthBuckets", problems)
        self.epoch = 0
        self._seed = seed
        self._rank, self._world_size = rank, world_size
        buckets = np.array([[bucket_of(length) for length in row] for row in lengths])
        self._ranks = _order_of(buckets)
        self._cuts = _cuts(buckets[np.argsort(self._ranks, kind="stable")], batch_tokens, batch_rows)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """How many batches an epoch has, for this process."""
        return -(-(len(self._cuts) - 1) // self._world_size)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch, for this process."""
        draw = np.random.default_rng([self._seed, self.epoch])
        order = np.lexsort((draw.random(len(self._ranks)), self._ranks))
        batches = draw.permutation(len(self._cuts) - 1)
        for turn in range(len(self)):
            chosen = batches[(turn * self._world_size + self._rank) % len(batches)]
            yield order[self._cuts[chosen] : self._cuts[chosen + 1]].tolist()


def bucket_of(length: int) -> int:
    """The length rounded up to its bucket: at most an eighth longer, and exact up to 16."""
    step = 1 if length <= _EXACT else 1 << (length.bit_length() - 4)
    return -(-length // step) * step


def _order_of(buckets: np.ndarray) -> np.ndarray:
    """The place of every example's buckets among all: last column first, the others back and forth within it.

    Back and forth, so that neighbours across a step of the last column are alike in the others.
    """
    distinct, inverse = np.unique(buckets[:, ::-1], axis=0, return_inverse=True)
    rows = [tuple(row) for row in distinct.tolist()]
    order: list[tuple[int, ...]] = []
    for turn, (_, group) in enumerate(groupby(rows, key=lambda row: row[0])):
        order += list(group)[:: -1 if turn % 2 else 1]
    place = {row: number for number, row in enumerate(order)}
    return np.array([place[row] for row in rows])[inverse.reshape(-1)]


def _cuts(buckets: np.ndarray, batch_tokens: int, batch_rows: int | None) -> list[int]:
    """Where the ordered examples are cut: before every example that would make a batch too large."""
    cuts, start, widest = [0], 0, np.zeros(buckets.shape[1], dtype=int)
    for index, row in enumerate(buckets):
        wider, rows = np.maximum(widest, row), index - start + 1
        if rows > 1 and (rows * int(wider.sum()) > batch_tokens or (batch_rows is not None and rows > batch_rows)):
            cuts.append(index)
            start, wider = index, row
        widest = wider
    return [*cuts, len(buckets)]
