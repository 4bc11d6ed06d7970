"""An explanation as a person reads it in the terminal: what a prediction depends on, and how far to trust that."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from regard.cli._summary import visible
from regard.records import Explanation

_WORDS = 5
_WORD_CELLS = 16
_MEASURES = {  # which way is better, and where a control that was drawn stands
    "comprehensiveness": "comprehensiveness ↑",
    "sufficiency": "sufficiency ↓",
    "deletion_auc": "deletion AUC ↓",
    "infidelity": "infidelity ↓",
    "leave_one_out": "leave-one-out ↑",
}


def explanation_lines(found: Explanation) -> list[str]:
    """Two tables: the strongest words of each explanation, and the measures of all beside controls."""
    words = [
        (name, ", ".join(f"{_short(word)} {score:+.3g}" for word, score in found.strongest(name, _WORDS)))
        for name in found.scores
    ]
    measured = [("", *_MEASURES.values())]
    for name, measures in found.measures.items():
        shown = f"{name} (control)" if name in found.controls else name
        measured.append((shown, *(_number(measures[measure]) for measure in _MEASURES)))
    return [
        f"{visible(found.prediction)}: {found.value:.3f}",
        "",
        "The words it depends on most, by",
        *_aligned(words),
        "",
        f"How far to trust that: {found.removal}.",
        *_aligned(measured),
        "",
        "comprehensiveness: what is lost without the words named first; sufficiency: what is lost with them alone;",
        "leave-one-out: agreement with what each word's absence costs (-1 to 1). An explanation that does no better",
        "than random says nothing.",
    ]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _short(word: str) -> str:
    shown = visible(word)
    return shown if cell_len(shown) <= _WORD_CELLS else set_cell_size(shown, _WORD_CELLS - 1).rstrip() + "…"
