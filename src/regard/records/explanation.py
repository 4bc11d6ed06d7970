"""What a prediction depends on, part by part, and how far each way of saying so may be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Explanations of one prediction, beside what taking parts away does to it.

    Args:
        prediction: What is explained, such as ``"probability of positive"``.
        value: The number it is when everything is there.
        removal: What becomes of a part that is taken away.
        parts: The parts in their order, such as the words of a text.
        scores: For each explanation one number for each part; the larger, the more the prediction is said to rest on
            it. Numbers of different explanations are not to be compared.
        measures: For each explanation, and for each control beside them, its measures by name
            (``regard.lens.Faithfulness``); None where one is not defined.
    """

    prediction: str
    value: float
    removal: str
    parts: tuple[str, ...]
    scores: Mapping[str, tuple[float, ...]]
    measures: Mapping[str, Mapping[str, float | None]]

    @property
    def controls(self) -> tuple[str, ...]:
        """What has measures and is no explanation: what the explanations are to be held against."""
        return tuple(name for name in self.measures if name not in self.scores)

    def strongest(self, name: str, count: int) -> list[tuple[str, float]]:
        """The parts that an explanation says matter most, with their scores, the largest first."""
        order = sorted(range(len(self.parts)), key=lambda part: -self.scores[name][part])
        return [(self.parts[part], self.scores[name][part]) for part in order[:count]]

    def problems(self) -> Iterator[str]:
        """What contradicts something else in it, as sentences."""
        for name, scores in self.scores.items():
            if len(scores) != len(self.parts):
                yield f"scores of {name!r} must be {len(self.parts)}, one for each part, but are {len(scores)}"
            if not all(map(math.isfinite, scores)):
                yield f"scores of {name!r} must be finite, but some are not"
            if name not in self.measures:
                yield f"measures must hold those of every explanation, but lack {name!r}"
