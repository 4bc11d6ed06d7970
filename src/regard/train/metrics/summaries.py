"""ROUGE-1, ROUGE-2 and ROUGE-L, for alphabets and for Chinese."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from regard.train.metrics._segments import References, with_references
from regard.train.metrics.result import Result, Scored
from regard.train.metrics.words import words_of


@dataclass(frozen=True)
class Overlap(Scored):
    """One kind of ROUGE.

    Args:
        segments: F1 of every segment, 0 to 1.
        precision: Mean over the segments: how much of what was written is in the reference.
        recall: Mean over the segments: how much of the reference was written.
        f1: Mean over the segments.
    """

    precision: float
    recall: float
    f1: float

    def __str__(self) -> str:
        return f"F1 {self.f1:.4f} (precision {self.precision:.4f}, recall {self.recall:.4f})"


@dataclass(frozen=True)
class Rouge(Result):
    """The three kinds of ROUGE that are reported.

    Args:
        rouge1: Of words.
        rouge2: Of pairs of neighbours.
        rouge_l: Of the longest common subsequence.
    """

    rouge1: Overlap
    rouge2: Overlap
    rouge_l: Overlap

    def __str__(self) -> str:
        kinds = {"ROUGE-1": self.rouge1, "ROUGE-2": self.rouge2, "ROUGE-L": self.rouge_l}
        return "\n".join(f"{name}  {overlap}" for name, overlap in kinds.items())


def rouge(hypotheses: Sequence[str], references: References) -> Rouge:
    """ROUGE of summaries: the words, pairs of words and longest subsequence they share with the references.

        precision = shared / written,   recall = shared / in the reference,   F1 = 2·p·r / (p + r)

    Words are runs of letters and digits, lower-cased, without stemming; in Chinese every character is one
    (``words_of``). For English text the figures are those of the package ``rouge-score`` (``rougeL``: the whole summary
    is one sequence). That package reads a–z and 0–9 only, and gives 0 to any Chinese summary. A summary without words
    scores 0, and so does any against a reference without words.

    Args:
        hypotheses: The summaries that were written.
        references: For every summary one reference or several: the one with the best F1 counts, for each kind.

    Raises:
        ShapeError: Not as many references as summaries.
        ConfigError: Nothing to compare, or a segment without a reference.

    Cost:
        ROUGE-L takes time words² / 64 per pair of texts.

    Source:
        Lin 2004, "ROUGE: a package for automatic evaluation of summaries".
    """
    listed = with_references("rouge", hypotheses, references)
    written = [words_of(text) for text in hypotheses]
    wanted = [[words_of(text) for text in texts] for texts in listed]
    kinds: tuple[_Kind, ...] = (_words, _pairs, _subsequence)
    return Rouge(*(_overlap(kind, written, wanted) for kind in kinds))


_Shares = tuple[float, float, float]
_Kind = Callable[[list[str], list[str]], _Shares]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    Cost:
        One bit per word of ``first`` in whole-number arithmetic: time len(first) · len(second) / 64.

    Source:
        Hyyrö 2004, "Bit-parallel LCS-length computation revisited".
    """
    places: dict[str, int] = {}
    for index, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << index
    every = (1 << len(first)) - 1
    unused = every  # a 0 bit is a place where the longest subsequence so far grows by one
    for word in second:
        found = unused & places.get(word, 0)
        unused = ((unused + found) | (unused - found)) & every
    return len(first) - unused.bit_count()


def _overlap(kind: _Kind, written: list[list[str]], wanted: list[list[list[str]]]) -> Overlap:
    best = [
        max((kind(text, reference) for reference in references), key=lambda shares: shares[2])
        for text, references in zip(written, wanted, strict=True)
    ]
    precision, recall, f1 = (tuple(column) for column in zip(*best, strict=True))
    return Overlap(f1, fmean(precision), fmean(recall), fmean(f1))


def _words(written: list[str], wanted: list[str]) -> _Shares:
    return _shares((Counter(written) & Counter(wanted)).total(), len(written), len(wanted))


def _pairs(written: list[str], wanted: list[str]) -> _Shares:
    ours, theirs = Counter(pairwise(written)), Counter(pairwise(wanted))
    return _shares((ours & theirs).total(), ours.total(), theirs.total())


def _subsequence(written: list[str], wanted: list[str]) -> _Shares:
    return _shares(common_length(written, wanted), len(written), len(wanted))


def _shares(common: int, written: int, wanted: int) -> _Shares:
    if not common:
        return 0.0, 0.0, 0.0
    return common / written, common / wanted, 2 * common / (written + wanted)
