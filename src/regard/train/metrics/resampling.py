"""How sure a figure is: intervals and comparisons by drawing the segments again, and McNemar's test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float64, Real, Shaped

from regard.errors import ConfigError, ShapeError, all_problems, message, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.result import Result


@dataclass(frozen=True)
class Statistic:
    """A score of a whole corpus that depends on its segments through a sum of numbers of each.

    So is corpus BLEU: matches and lengths are added up over the segments, then the score is computed once. Drawing
    segments again must draw these numbers, not scores of sentences.

    Args:
        rows: The numbers of each segment.
        score: The corpus's score from the sum of the rows.
    """

    rows: Real[np.ndarray, "segments numbers"]
    score: Callable[[Float64[np.ndarray, " numbers"]], float]

    def value(self) -> float:
        """The score of all segments, each taken once."""
        return self.score(self.rows.sum(axis=0, dtype=np.float64))


Scores = Sequence[float | int] | Shaped[np.ndarray, " segments"] | Statistic
"""One number per segment, whose mean is the score of the whole; or a ``Statistic``."""


@dataclass(frozen=True)
class Interval(Result):
    """Where a figure would lie if the test had been made of other segments of the same kind.

    Args:
        value: The figure, on the segments as they are.
        low: Lower end.
        high: Upper end.
        mean: Of the figure over the draws.
        confidence: The share of the draws between the ends.
        samples: How many draws.
    """

    value: float
    low: float
    high: float
    mean: float
    confidence: float
    samples: int

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.confidence:.0%}, {self.samples} samples)"


@dataclass(frozen=True)
class Difference(Interval):
    """How much better the first of two systems is on the same segments; negative when it is worse.

    Args:
        value: Score of the first less that of the second, on the segments as they are.
        low: Lower end.
        high: Upper end.
        mean: Of the difference over the draws.
        confidence: The share of the draws between the ends.
        samples: How many draws.
        p_value: How often a difference at least as large, either way, would be drawn if there were none.
    """

    p_value: float

    def __str__(self) -> str:
        ends = f"[{self.low:+.4g}, {self.high:+.4g}] ({self.confidence:.0%}, {self.samples} samples)"
        return f"{self.value:+.4g} {ends}, p = {self.p_value:.4f}"


@dataclass(frozen=True)
class McNemar(Result):
    """Two systems' right and wrong answers to the same questions, compared.

    Args:
        only_first: How many questions the first alone got right.
        only_second: How many the second alone got right.
        p_value: How often two equally good systems would differ at least as unevenly.
    """

    only_first: int
    only_second: int
    p_value: float

    def __str__(self) -> str:
        return f"only the first right {self.only_first}, only the second {self.only_second}, p = {self.p_value:.4f}"


def bootstrap(scores: Scores, *, samples: int = 1000, confidence: float = 0.95, seed: int) -> Interval:
    """The interval of a score: segments are drawn with replacement, as many as there are, again and again.

    Args:
        scores: One number per segment, whose mean is the score; or the ``statistic`` of a result such as ``bleu``'s,
            for scores that are no means of sentences' scores.
        samples: How many draws.
        confidence: The share of the draws that lies within the interval.
        seed: Decides the draws.

    Raises:
        ConfigError: No segments, a number that is not finite, or options out of range.

    Numerics:
        The same seed gives the same interval. The ends are percentiles, linearly interpolated. From fewer than some
        dozens of segments an interval comes out too narrow.

    Cost:
        Time samples · segments, memory segments.

    Source:
        Efron 1979; for translation Koehn 2004, "Statistical significance tests for machine translation evaluation".
    """
    one = _statistic("bootstrap", "scores", scores)
    _check_options("bootstrap", samples=samples, confidence=confidence)
    drawn = np.array([one.score(counts @ one.rows) for counts in _draws(len(one.rows), samples, seed)])
    low, high = _ends(drawn, confidence)
    return Interval(one.value(), low, high, float(drawn.mean()), confidence, samples)


def paired_bootstrap(
    first: Scores, second: Scores, *, samples: int = 1000, confidence: float = 0.95, seed: int
) -> Difference:
    """Whether one of two systems is better: both are scored on the same drawn segments, again and again.

    The p-value is two-sided: the share of the draws whose difference is at least as far from the mean of the
    differences as the real one is from zero, with one added above and below.

    Args:
        first: One number per segment, or a ``Statistic``.
        second: The same of the other system, for the same segments in the same order.
        samples: How many draws.
        confidence: The share of the draws that lies within the interval.
        seed: Decides the draws.

    Raises:
        ShapeError: Not as many segments on both sides.
        ConfigError: No segments, a number that is not finite, or options out of range.

    Source:
        Koehn 2004; the p-value by shifting, as Noreen 1989. Riezler and Maxwell 2005 and sacreBLEU take the absolute
        value before they subtract the mean, which counts one tail: their p-values are about half as large.
    """
    caller = "paired_bootstrap"
    one, other = _statistic(caller, "first", first), _statistic(caller, "second", second)
    if len(one.rows) != len(other.rows):
        problem = must_be("second", f"of as many segments as `first` ({len(one.rows)})", f"of {len(other.rows)}")
        raise ShapeError(message(caller, problem))
    _check_options(caller, samples=samples, confidence=confidence)
    drawn = np.array(
        [
            one.score(counts @ one.rows) - other.score(counts @ other.rows)
            for counts in _draws(len(one.rows), samples, seed)
        ]
    )
    value, mean = one.value() - other.value(), float(drawn.mean())
    as_large = int((np.abs(drawn - mean) >= abs(value)).sum())
    low, high = _ends(drawn, confidence)
    return Difference(value, low, high, mean, confidence, samples, (as_large + 1) / (samples + 1))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Whether one of two systems is right more often, from the questions on which they differ.

        p = min(1, 2 · P[Binomial(n, ½) ≤ min(only_first, only_second)]),   n = only_first + only_second

    Args:
        first: For every question, whether the first system was right.
        second: The same of the second system.

    Raises:
        ShapeError: Not as many questions on both sides.
        ConfigError: No questions.

    Source:
        McNemar 1947; the exact form, which holds for any number of questions.
    """
    check_numbers("mcnemar", first=first, second=second)
    only_first = sum(bool(a) and not b for a, b in zip(first, second, strict=True))
    only_second = sum(bool(b) and not a for a, b in zip(first, second, strict=True))
    number = only_first + only_second
    term, tail = 1, 0
    for k in range(min(only_first, only_second) + 1):
        tail += term
        term = term * (number - k) // (k + 1)
    return McNemar(only_first, only_second, min(1.0, tail / (1 << number) * 2))


def _draws(segments: int, samples: int, seed: int) -> Iterator[Float64[np.ndarray, " segments"]]:
    """How often each segment is in a draw, one draw after the other."""
    generator = np.random.default_rng(seed)
    for _ in range(samples):
        drawn = generator.integers(segments, size=segments)
        yield np.bincount(drawn, minlength=segments).astype(np.float64)


def _ends(drawn: Float64[np.ndarray, " samples"], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _statistic(caller: str, name: str, scores: Scores) -> Statistic:
    """Numbers of segments as the statistic that is their mean."""
    if isinstance(scores, Statistic):
        rows, score = scores.rows, scores.score
    else:
        rows = np.asarray(scores, dtype=np.float64).reshape(-1, 1)
        score = partial(_mean, number=len(rows))
    if not len(rows):
        raise ConfigError(message(caller, must_be(name, "of at least one segment", "empty")))
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        problem = must_be(name, "finite numbers", f"not at segment {int(finite.argmin())}")
        raise ConfigError(message(caller, problem))
    return Statistic(rows, score)


def _mean(total: Float64[np.ndarray, "1"], *, number: int) -> float:
    return float(total[0]) / number


def _check_options(caller: str, *, samples: int, confidence: float) -> None:
    problems = []
    if samples < 1:
        problems.append(must_be("samples", "at least 1", samples))
    if not 0 < confidence < 1:
        problems.append(must_be("confidence", "between 0 and 1", confidence))
    if problems:
        raise all_problems(caller, problems)
