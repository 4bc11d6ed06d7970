"""How well classes were told apart: accuracy, F1 per class and over all, and what was taken for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from jaxtyping import Int64, Shaped

from regard.errors import all_problems, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics._table import aligned
from regard.train.metrics.result import Result, Scored

Classes = Sequence[str] | Sequence[int] | Shaped[np.ndarray, " rows"]
"""Labels, or their places in ``labels``."""

_SHOWN = 12  # classes: a wider matrix is no help to the eye


@dataclass(frozen=True)
class ClassScores(Result):
    """One class.

    Args:
        label: Its name.
        precision: How many of those taken for it are of it; 0 when none was.
        recall: How many of it were found; 0 when there is none.
        f1: Of the two.
        support: How many are of it.
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Classification(Scored):
    """How well classes were told apart.

    Args:
        segments: 1 for every row that was right, 0 for every other.
        accuracy: The share that was right.
        macro_f1: Mean of F1 over all classes, also those that do not occur.
        micro_f1: F1 of all decisions together; equal to the accuracy when every row has one class.
        classes: Every class, in the order of ``labels``.
        confusion: For every gold class (rows) how often it was taken for each class (columns).
        meaningless: Why the figures say nothing, such as a test set with one class; None when they do.
    """

    accuracy: float
    macro_f1: float
    micro_f1: float
    classes: tuple[ClassScores, ...]
    confusion: tuple[tuple[int, ...], ...]
    meaningless: str | None = None

    def __str__(self) -> str:
        lines = [f"accuracy {self.accuracy:.4f}, macro F1 {self.macro_f1:.4f}, micro F1 {self.micro_f1:.4f}"]
        if self.meaningless is not None:
            lines.insert(0, f"meaningless: {self.meaningless}")
        shown = [
            (one.label, f"{one.precision:.4f}", f"{one.recall:.4f}", f"{one.f1:.4f}", str(one.support))
            for one in self.classes
        ]
        lines += ["", *aligned([("class", "precision", "recall", "F1", "support"), *shown])]
        if len(self.classes) <= _SHOWN:
            labels = [one.label for one in self.classes]
            counts = [(label, *map(str, row)) for label, row in zip(labels, self.confusion, strict=True)]
            lines += ["", *aligned([("gold \\ predicted", *labels), *counts])]
        return "\n".join(lines)

    @property
    def correct(self) -> tuple[bool, ...]:
        """Which rows were right; for ``mcnemar``."""
        return tuple(map(bool, self.segments))


def classification(predicted: Classes, gold: Classes, *, labels: Sequence[str]) -> Classification:
    """Accuracy, precision, recall and F1 of classes, and the confusion matrix, as scikit-learn defines them.

    With one class in ``gold`` every figure is perfect for a model that has learnt nothing: the result then says why it
    is ``meaningless``, first thing when printed.

    Args:
        predicted: For every row the label that was chosen, or its place in ``labels``.
        gold: For every row the right label, or its place in ``labels``.
        labels: The names of all classes, in the order of the result.

    Raises:
        ShapeError: Not as many gold labels as predicted ones.
        ConfigError: No rows, labels that are missing or there twice, or a class that is none of them.
    """
    caller = "classification"
    check_numbers(caller, predicted=predicted, gold=gold)
    problems = _problems_of(labels)
    guesses, truths = (
        _places(name, side, labels, problems) for name, side in (("predicted", predicted), ("gold", gold))
    )
    if problems:
        raise all_problems(caller, problems)
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (truths, guesses), 1)
    scores = _scores(confusion, labels)
    right = guesses == truths
    accuracy = float(right.mean())
    return Classification(
        segments=tuple(right.astype(float).tolist()),
        accuracy=accuracy,
        macro_f1=fmean(one.f1 for one in scores),
        micro_f1=accuracy,  # one class a row: every mistake is one wrongly taken and one missed
        classes=scores,
        confusion=tuple(map(tuple, confusion.tolist())),
        meaningless=_meaningless(truths, labels),
    )


def _problems_of(labels: Sequence[str]) -> list[str]:
    if not len(labels) or isinstance(labels, str):
        return [must_be("labels", "the names of the classes", "one text" if labels else "empty")]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    return [must_be("labels", "different names", f"with {', '.join(map(repr, twice))} more than once")] if twice else []


def _places(name: str, side: Classes, labels: Sequence[str], problems: list[str]) -> Int64[np.ndarray, " rows"]:
    """The place in ``labels`` of every class, or −1 and one more problem."""
    place = {label: index for index, label in enumerate(labels)}
    place_of = [
        place.get(one, -1) if isinstance(one, str) else int(one) if one < len(labels) and one == int(one) else -1
        for one in side
    ]
    unknown = {repr(one): row for row, one in reversed(list(enumerate(side))) if place_of[row] < 0}
    for value, row in reversed(unknown.items()):
        listed = ", ".join(map(repr, labels))
        problems.append(must_be(f"{name}[{row}]", f"one of {listed}, or its place from 0 to {len(labels) - 1}", value))
    return np.array(place_of, dtype=np.int64)


def _scores(confusion: Int64[np.ndarray, "gold predicted"], labels: Sequence[str]) -> tuple[ClassScores, ...]:
    hits, chosen, there = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    return tuple(
        ClassScores(label, _share(hit, taken), _share(hit, support), _share(2 * hit, taken + support), support)
        for label, hit, taken, support in zip(labels, hits.tolist(), chosen.tolist(), there.tolist(), strict=True)
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _meaningless(truths: Int64[np.ndarray, " rows"], labels: Sequence[str]) -> str | None:
    if len(labels) == 1:
        return f"there is one class only ({labels[0]!r}), so nothing can be taken for anything else"
    if (truths == truths[0]).all():
        return f"all {len(truths)} gold labels are {labels[int(truths[0])]!r}, so always answering that is perfect"
    return None
