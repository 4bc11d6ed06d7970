"""Word alignments: gold files, links from attention, symmetrisation, and the alignment error rate.

A link is a pair (source word, target word), counted from 0; the links of a sentence pair are a set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.errors import ConfigError, FormatError, ShapeError, message, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.result import Result

Link = tuple[int, int]
Links = AbstractSet[Link]
_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


@dataclass(frozen=True)
class GoldAlignment:
    """What people linked in one sentence pair.

    Args:
        sure: Links that must be found.
        possible: Links that may be found; the sure ones are among them.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore(Result):
    """How well links agree with those of people.

    Args:
        error_rate: AER, 0 to 1; lower is better.
        precision: The share of the links that are at least possible; 1 when there are none.
        recall: The share of the sure links that were found; 1 when there are none.
    """

    error_rate: float
    precision: float
    recall: float

    def __str__(self) -> str:
        return f"AER {self.error_rate:.4f} (precision {self.precision:.4f}, recall {self.recall:.4f})"


def read_pharaoh(path: Path, *, lengths: Sequence[tuple[int, int]] | None = None) -> tuple[GoldAlignment, ...]:
    """Read a file of alignments: a sentence pair a line, ``0-0 1-1`` for sure links, ``0?1`` or ``0p1`` for possible.

    Words without a link are left out, and a pair without any is an empty line. A link that is both is sure.

    Args:
        path: The file.
        lengths: For every line how many source and target words there are, to check the links against.

    Raises:
        OSError: The file cannot be read.
        FormatError: Something is no link, a link is beyond its sentence, or there are not as many lines as lengths;
            names the file and the line.
    """
    from regard.text import read_text  # here, so that the metrics do not wait for the readers

    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if lengths is not None and len(lines) != len(lengths):
        problem = f"{path} must have a line for each of the {len(lengths)} sentence pairs, but has {len(lines)} lines."
        raise FormatError(message("read_pharaoh", problem))
    return tuple(
        _gold(line, f"{path}, line {number}", lengths[number - 1] if lengths is not None else None)
        for number, line in enumerate(lines, start=1)
    )


def alignment_error_rate(links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> AlignmentScore:
    """The alignment error rate of a corpus.

        AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),   precision = |A ∩ P| / |A|,   recall = |A ∩ S| / |S|

    with all sentence pairs counted together: A the links, S the sure ones, P the possible ones with the sure ones among
    them (they are added where they are not). Without links and without sure ones there is no error.

    Args:
        links: The links to judge, a set per sentence pair.
        sure: The links of people that must be found.
        possible: The links of people that may be found.

    Raises:
        ShapeError: Not as many sentence pairs everywhere.
        ConfigError: There are none.

    Source:
        Och and Ney 2003, "A systematic comparison of various statistical alignment models", section 4.
    """
    check_numbers("alignment_error_rate", links=links, sure=sure, possible=possible)
    found = found_sure = found_possible = all_sure = 0
    for ours, must, may in zip(links, sure, possible, strict=True):
        found += len(ours)
        all_sure += len(must)
        found_sure += len(ours & must)
        found_possible += len(ours & (must | may))
    asked = found + all_sure
    return AlignmentScore(
        error_rate=1 - (found_sure + found_possible) / asked if asked else 0.0,
        precision=found_possible / found if found else 1.0,
        recall=found_sure / all_sure if all_sure else 1.0,
    )


def intersection(forward: Links, backward: Links) -> frozenset[Link]:
    """The links that both directions have: few, and most of them right.

    Args:
        forward: Links of one direction, as (source, target).
        backward: Links of the other direction, also as (source, target).
    """
    return frozenset(forward & backward)


def grow_diag(forward: Links, backward: Links) -> frozenset[Link]:
    """The intersection, grown by neighbours that one direction has: more links, nearly as many of them right.

    A link of either direction is added when it touches one that is there, also by a corner, and one of its words has no
    link yet; again, until nothing is added. The order is that of Moses: target words one after the other, source words
    within them, then the neighbours left, below, right, above, and the corners.

    Args:
        forward: Links of one direction, as (source, target).
        backward: Links of the other direction, also as (source, target).

    Source:
        Koehn, Och and Marcu 2003; Koehn et al. 2005 ("grow-diag", without a final step).
    """
    either = forward | backward
    there = set(forward & backward)
    sources, targets = {source for source, _ in there}, {target for _, target in there}
    grown = True
    while grown:
        grown = False
        for target, source in sorted((target, source) for source, target in either):
            if (source, target) not in there:
                continue
            for down, right in _NEIGHBOURS:
                near = (source + right, target + down)
                free = near[0] not in sources or near[1] not in targets
                if near in either and near not in there and free:
                    there.add(near)
                    sources.add(near[0])
                    targets.add(near[1])
                    grown = True
    return frozenset(there)


_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Method = Literal["target", "source", "intersection", "grow_diag"]


def links_of(weights: Any, *, method: Method = "intersection") -> frozenset[Link]:
    """Links of one sentence pair from its cross-attention.

    ``"target"`` links every target word to the source word it attends to most, ``"source"`` every source word to the
    target word that attends to it most; ``"intersection"`` and ``"grow_diag"`` join the two. Of equal weights the first
    counts; a word whose weights are all zero gets no link. For the two directions of two models, take ``"target"`` of
    each, turn the pairs of the second round, and join them with ``intersection`` or ``grow_diag``.

    Args:
        weights: Weights [target words, source words], as an array or a tensor: one head, or a mean of heads. For words
            of several pieces, first ``regard.records.between_groups``.
        method: Which links.

    Returns:
        Pairs (source, target).

    Raises:
        ShapeError: The weights are no matrix.
        ConfigError: A weight is negative or not finite, or the method is unknown.
    """
    matrix = _matrix(weights)
    forward = frozenset((int(row.argmax()), target) for target, row in enumerate(matrix) if row.any())
    backward = frozenset((source, int(column.argmax())) for source, column in enumerate(matrix.T) if column.any())
    match method:
        case "target":
            return forward
        case "source":
            return backward
        case "intersection":
            return intersection(forward, backward)
        case "grow_diag":
            return grow_diag(forward, backward)
    expected = '"target", "source", "intersection" or "grow_diag"'
    raise ConfigError(message("links_of", must_be("method", expected, repr(method))))


def _matrix(weights: Any) -> np.ndarray:
    if hasattr(weights, "detach"):  # a tensor, which may need a gradient, lie on a device and be a half
        weights = weights.detach().cpu().double()
    matrix = np.asarray(weights, dtype=np.float64)
    if matrix.ndim != 2:
        problem = must_be("weights", "of shape [target words, source words]", f"of shape {tuple(matrix.shape)}")
        raise ShapeError(message("links_of", problem))
    if not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise ConfigError(message("links_of", must_be("weights", "finite and not negative", "not everywhere")))
    return matrix


def _gold(line: str, place: str, lengths: tuple[int, int] | None) -> GoldAlignment:
    """The links of one line; all that is wrong with it at once."""
    sure, possible, wrong = set[Link](), set[Link](), list[str]()
    for piece in line.split():
        found = _LINK.fullmatch(piece)
        if found is None:
            wrong.append(f"{piece!r} is no link (0-0 for a sure one, 0?0 or 0p0 for a possible one)")
            continue
        link = int(found[1]), int(found[3])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
        for side, index, length in zip(("source", "target"), link, lengths or (), strict=False):
            if index >= length:
                wrong.append(f"{piece} names {side} word {index}, counted from 0, but there are {length} words")
    if wrong:
        raise FormatError(message("read_pharaoh", f"{place}: {'; '.join(wrong)}."))
    return GoldAlignment(frozenset(sure), frozenset(possible))
