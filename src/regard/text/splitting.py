"""Examples that are held out, and whether any of them was seen in training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from regard.errors import all_problems, must_be
from regard.text._gathering import identity
from regard.text.examples import Examples, Place
from regard.text.pairs import TextPair

T = TypeVar("T")


def split(
    examples: Examples[T],
    *,
    share: float | None = None,
    count: int | None = None,
    seed: int = 0,
    group: Sequence[Hashable] | Callable[[T], Hashable] | None = None,
) -> tuple[Examples[T], Examples[T]]:
    """Hold some examples out: the same ones for the same seed, on every machine.

    Both parts keep the order of the file. Examples of a group stay together, so the part that is held out may be
    smaller than asked for (never empty); give ``linked(pairs)`` as ``group`` and no sentence is on both sides.

    Args:
        examples: What was read.
        share: The share to hold out, between 0 and 1; this or ``count``.
        count: How many to hold out.
        seed: Which ones.
        group: What group each example is in: one value per example, or a function of it. None: each on its own.

    Returns:
        (those to train on, those held out).

    Raises:
        ConfigError: with every problem; also where the examples, or their groups, are too few to be split.

    Example:
        >>> from regard.text import Examples, Place, split
        >>> texts = Examples(tuple("abcdefgh"), tuple(Place("a.txt", i) for i in range(1, 9)))
        >>> train, held_out = split(texts, share=0.25, seed=1)
        >>> len(train), len(held_out)
        (6, 2)
    """
    keys = _groups(examples, group)
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    _refuse(examples, members, share, count, len(keys))
    wanted = count if count is not None else max(1, min(len(keys) - 1, round(len(keys) * (share or 0))))
    order = sorted(members.values(), key=lambda indices: _drawn(seed, indices[0]))
    held = set[int]()
    for indices in order:
        if len(held) + len(indices) <= wanted:
            held.update(indices)
    if not held:
        smallest = min(order, key=len)
        held = set(smallest)
    kept = [index for index in range(len(keys)) if index not in held]
    return examples.select(kept), examples.select(sorted(held))


def linked(pairs: Sequence[TextPair]) -> tuple[int, ...]:
    """Number the groups of pairs that share a sentence, on either side, directly or through others.

    Args:
        pairs: The pairs. Sentences are compared after stripping and NFC.

    Returns:
        For every pair its group: the number of the first pair in it.
    """
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[tuple[int, object], int] = {}
    for index, pair in enumerate(pairs):
        for side, text in enumerate((pair.source, pair.target)):
            one, other = root(first.setdefault((side, identity(text)), index)), root(index)
            parent[max(one, other)] = min(one, other)
    return tuple(root(index) for index in range(len(pairs)))


@dataclass(frozen=True)
class Overlap:
    """Which test examples ask what a training example asks.

    Args:
        indices: Those, by their number in the test examples.
        places: Where they stand.
        of: How many test examples there are.
    """

    indices: tuple[int, ...]
    places: tuple[Place, ...]
    of: int

    @property
    def share(self) -> float:
        """Their share of the test examples."""
        return len(self.indices) / self.of if self.of else 0.0

    def report(self) -> str:
        """One line for a person."""
        where = f" (first: {self.places[0]})" if self.places else ""
        return f"{len(self.indices):,} of {self.of:,} test examples ({self.share:.1%}) are also trained on{where}"


def overlap(train: Examples[T], test: Examples[T]) -> Overlap:
    """Count the test examples whose input is trained on, whatever their label or translation.

    Texts are compared after stripping and NFC. ``test.without(overlap(train, test).indices)`` leaves them out.

    Args:
        train: What is trained on.
        test: What is to be measured on.
    """
    seen = {same_input(example) for example in train}
    indices = tuple(index for index, example in enumerate(test) if same_input(example) in seen)
    return Overlap(indices, tuple(test.places[index] for index in indices), len(test))


def same_input(example: object) -> Hashable:
    """What examples have in common that ask the same, whatever their answers: a ``group`` for ``split``.

    Args:
        example: A text, or an example that a reader of this package made. Texts are compared after stripping and NFC.
    """
    return identity(getattr(example, "given", example))


def _groups(examples: Examples[T], group: Sequence[Hashable] | Callable[[T], Hashable] | None) -> Sequence[Hashable]:
    if group is None:
        return range(len(examples))
    return [group(example) for example in examples] if callable(group) else group


def _refuse(
    examples: Examples[T], members: dict[Hashable, list[int]], share: float | None, count: int | None, groups: int
) -> None:
    problems = []
    if (share is None) == (count is None):
        problems.append("`share` or `count` must be given, and not both.")
    if share is not None and not 0 < share < 1:
        problems.append(must_be("share", "between 0 and 1", share))
    if groups != len(examples):
        problems.append(must_be("group", f"one value for each of {len(examples):,} examples", f"{groups:,} values"))
    if len(examples) < 2:
        problems.append(must_be("examples", "at least 2 to be split", len(examples)))
    elif len(members) < 2:
        problems.append(must_be("group", "at least 2 different groups", "the same for all examples"))
    elif count is not None and not 0 < count < len(examples):
        problems.append(
            must_be("count", f"between 1 and {len(examples) - 1:,}, so that both parts hold something", count)
        )
    if problems:
        raise all_problems("split", problems)


def _drawn(seed: int, index: int) -> bytes:
    """A number that looks drawn and is the same everywhere."""
    return hashlib.sha256(f"{seed} {index}".encode()).digest()
