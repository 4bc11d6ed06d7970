"""The summary a person reads in the terminal: one row per attention layer, by position."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from regard.records import Call, Recording
from regard.view import HeadSummary, LayerSummary, Pair, summary

_LEFT = ("layer", "entropy", "on first")
# From roomy to narrow, the last two columns: their headings, how many pairs, how many heads.
_COLUMNS = (
    ("strongest pairs (position: token → position: token)", "most focused heads", 2, 3),
    ("strongest pair", "most focused heads", 1, 2),
    ("strongest pair", "most focused head", 1, 1),
    ("strongest pair", "", 1, 0),
)
_TOKEN_CELLS = 14


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the page be written for a person who wants only the first lines (regard look … | head)."""
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process


def print_summary(recording: Recording, console: Console | None = None) -> None:
    """Print what the recording says in a few numbers; plain text when the output is not a terminal.

    On a terminal that is too narrow for the whole table, fewer pairs and heads are shown.
    """
    console = console or _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(_title(recording), style="bold")
    for number, line in enumerate(_table(recording, console.width if console.is_terminal else None)):
        console.print(line, style="dim" if number == 0 else None)
    console.print(
        "entropy: mean in nats, 0 = one key takes all. on first: share on the first token. Pairs: mean over heads, "
        "special tokens left out. Heads: number (mean entropy).",
        style="dim",
        soft_wrap=not console.is_terminal,
    )
    for line in _not_seen(recording):
        console.print(line)


def _table(recording: Recording, room: int | None) -> list[str]:
    """Aligned lines, the heading first: the roomiest form that fits, else the narrowest."""
    lines: list[str] = []
    labels = _labels(recording.calls)
    for pair_heading, head_heading, pairs, heads in _COLUMNS:
        rows: list[tuple[str, ...]] = [(*_LEFT, pair_heading, head_heading)]
        rows += (
            _row(recording, call, label, pairs, heads) for call, label in zip(recording.calls, labels, strict=True)
        )
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]
        if room is None or max(map(cell_len, lines)) <= room:
            break
    return lines


def _title(recording: Recording) -> str:
    sequences = recording.sequences[0] if recording.sequences else ()
    lengths = " → ".join(f"{len(sequence.tokens)} tokens" for sequence in sequences)
    heads = sorted({call.num_heads for call in recording.calls})
    shape = f"{len(recording.calls)} attention layers × {'/'.join(map(str, heads))} heads" if heads else "no attention"
    return " · ".join(part for part in (visible(recording.model.name), lengths, shape) if part)


def _labels(calls: Sequence[Call]) -> list[str]:
    """Layer numbers where they tell the calls apart, else names."""
    numbers = [call.layer for call in calls]
    if None not in numbers and len(set(numbers)) == len(numbers):
        return [str(number) for number in numbers]
    return [call.name for call in calls]


def _row(recording: Recording, call: Call, label: str, pairs: int, heads: int) -> tuple[str, ...]:
    alone = summary(dataclasses.replace(recording, calls=(call,)), pairs=pairs, heads=max(heads, 1))
    (layer,) = alone.layers
    return (
        label,
        _number(layer, "entropy"),
        _number(layer, "first"),
        ", ".join(map(_pair, alone.pairs)) or "–",
        (", ".join(map(_head, alone.focused)) or "–") if heads else "",
    )


def _number(layer: LayerSummary, name: str) -> str:
    value = getattr(layer, name)
    return "–" if value is None else f"{value:.2f}"


def _pair(pair: Pair) -> str:
    query = f"{pair.query}: {_short(pair.query_text)}"
    return f"{query} → {pair.key}: {_short(pair.key_text)} {pair.weight:.2f}"


def _head(head: HeadSummary) -> str:
    return f"{head.head} ({head.entropy:.2f})"


def _short(text: str) -> str:
    shown = visible(text)
    return shown if cell_len(shown) <= _TOKEN_CELLS else set_cell_size(shown, _TOKEN_CELLS - 1).rstrip() + "…"


def visible(text: str) -> str:
    """Text that cannot steer a terminal: everything that is not printable is written as an escape."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _not_seen(recording: Recording) -> list[str]:
    """What the watch could not see, in one line each."""
    return [
        f"{one.status}: {one.name} ({one.reason})" if one.reason else f"{one.status}: {one.name}"
        for one in recording.coverage
        if one.status != "seen"
    ]
