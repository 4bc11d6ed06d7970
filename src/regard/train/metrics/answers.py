"""Exact match and F1 of extracted answers, as the scripts of SQuAD and of CMRC 2018 count them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import regex  # type: ignore[import-untyped]

from regard.errors import ConfigError, all_problems, message, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.result import Result, Scored
from regard.train.metrics.words import UNSPACED, mostly_han

Scheme = Literal["squad", "cmrc"]


@dataclass(frozen=True)
class AnswerScores(Result):
    """Scores of a part of the questions.

    Args:
        count: How many questions.
        exact_match: The share answered exactly, 0 to 1.
        f1: Mean over the questions, 0 to 1.
    """

    count: int
    exact_match: float
    f1: float

    def __str__(self) -> str:
        return f"exact match {self.exact_match:.4f}, F1 {self.f1:.4f} ({self.count} questions)"


@dataclass(frozen=True)
class Answers(Scored):
    """Scores of answers.

    Args:
        segments: F1 of every question, 0 to 1.
        exact: Which questions were answered exactly; for ``mcnemar``.
        exact_match: The share of them, 0 to 1.
        f1: Mean over the questions, 0 to 1.
        answerable: The part of the questions with an answer; None when there are none.
        unanswerable: The part without; None when there are none. Both figures are the share left unanswered.
        scheme: How answers were compared.
    """

    exact: tuple[bool, ...]
    exact_match: float
    f1: float
    answerable: AnswerScores | None
    unanswerable: AnswerScores | None
    scheme: Scheme

    def __str__(self) -> str:
        whole = AnswerScores(len(self.segments), self.exact_match, self.f1)
        lines = [f"{whole}, compared as {self.scheme.upper()}"]
        if self.unanswerable is not None:
            parts = {"with an answer": self.answerable, "without an answer": self.unanswerable}
            lines += [f"  {name:<17}  {part}" for name, part in parts.items() if part is not None]
        return "\n".join(lines)


def exact_match_and_f1(
    predictions: Sequence[str],
    golds: Sequence[Sequence[str]],
    *,
    scheme: Literal["auto", "squad", "cmrc"] = "auto",
) -> Answers:
    """Exact match and F1 of answers; of several right ones the best counts.

    ``"squad"``: lower-cased, without ASCII punctuation and the words a, an, the; F1 of the words in common, in any
    order. ``"cmrc"``: lower-cased, without punctuation, cut into Chinese characters, Latin words and numbers; F1 of the
    longest run that both have in common. Both give the figures of the official scripts, with one exception: CMRC's
    keeps spaces in an exact match, and brackets, commas and the like of ASCII as words; here they do not count, as
    their Chinese counterparts do not.

    A question without an answer has no gold answers, or only empty ones; it is answered by an empty text, or one of
    nothing but punctuation, and then both figures are 1, else 0 (SQuAD 2.0).

    Args:
        predictions: The answers that were given; empty for "there is none".
        golds: For every question the right answers.
        scheme: ``"auto"`` is ``"cmrc"`` when the golds are mostly Chinese characters, else ``"squad"``; the result says
            which.

    Raises:
        ShapeError: Not as many golds as predictions.
        ConfigError: No questions, one text where a list of right answers belongs, or an unknown scheme.

    Source:
        Rajpurkar et al. 2016, 2018; Cui et al. 2019.
    """
    caller = "exact_match_and_f1"
    check_numbers(caller, predictions=predictions, golds=golds)
    problems = [
        must_be(f"golds[{index}]", "a list of texts", "one text")
        for index, texts in enumerate(golds)
        if isinstance(texts, str)
    ]
    if problems:
        raise all_problems(caller, problems)
    chosen = _scheme(caller, golds, scheme)
    scored = [_best(prediction, texts, chosen) for prediction, texts in zip(predictions, golds, strict=True)]
    return Answers(
        segments=tuple(one.f1 for one in scored),
        exact=tuple(one.exact for one in scored),
        exact_match=fmean(one.exact for one in scored),
        f1=fmean(one.f1 for one in scored),
        answerable=_part([one for one in scored if one.answerable]),
        unanswerable=_part([one for one in scored if not one.answerable]),
        scheme=chosen,
    )


@dataclass(frozen=True)
class _One:
    """One question: whether it has an answer, and how well it was answered."""

    answerable: bool
    exact: bool
    f1: float


def _scheme(caller: str, golds: Sequence[Sequence[str]], scheme: str) -> Scheme:
    if scheme == "auto":
        return "cmrc" if mostly_han(text for texts in golds for text in texts) else "squad"
    for known in _SCHEMES:
        if scheme == known:
            return known
    raise ConfigError(message(caller, must_be("scheme", '"auto", "squad" or "cmrc"', repr(scheme))))


def _best(prediction: str, golds: Sequence[str], scheme: Scheme) -> _One:
    cut, common = _SCHEMES[scheme]
    given = cut(prediction)
    right = [words for text in golds if (words := cut(text))]
    if not right or not given:
        same = not right and not given
        return _One(bool(right), same, float(same))
    f1 = max(2 * common(given, words) / (len(given) + len(words)) for words in right)
    return _One(True, given in right, f1)


def _part(scored: Sequence[_One]) -> AnswerScores | None:
    if not scored:
        return None
    return AnswerScores(len(scored), fmean(one.exact for one in scored), fmean(one.f1 for one in scored))


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def _squad_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _words_in_common(first: list[str], second: list[str]) -> int:
    return (Counter(first) & Counter(second)).total()


# As in CMRC's script, words grow together where these stood: R-S-R is one word.
_DROPPED = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》…·、「」（）－～『』")

# Signs that say something (per cent, currencies, degrees) are words of their own; other signs separate.
_PIECE = regex.compile(
    rf"{UNSPACED}\p{{M}}*|\d+(?:[.,]\d+)+|(?:(?!{UNSPACED})[\p{{L}}\p{{M}}\p{{N}}])+|[%‰#&@\p{{Sc}}\p{{So}}]"
)


def _cmrc_pieces(text: str) -> list[str]:
    return list(_PIECE.findall(text.lower().translate(_DROPPED)))


def _longest_run(first: list[str], second: list[str]) -> int:
    """Length of the longest run of words that both hold."""
    longest, above = 0, [0] * (len(second) + 1)
    for word in first:
        here = [0] * (len(second) + 1)
        for index, other in enumerate(second):
            if word == other:
                here[index + 1] = above[index] + 1
        longest, above = max(longest, *here), here
    return longest


_SCHEMES: dict[Scheme, tuple[Callable[[str], list[str]], Callable[[list[str], list[str]], int]]] = {
    "squad": (_squad_words, _words_in_common),
    "cmrc": (_cmrc_pieces, _longest_run),
}
