"""Rows of columns: lines cut at a delimiter, with or without quotes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

_LONGEST = 1 << 24  # characters of a row in quotes; beyond it the quote was never meant to be open
_GUESSED = (",", ";", "\t", "|")


class Malformed(str):
    """Why a row cannot be read."""


class TableRow(NamedTuple):
    """One row: number of its first line, its fields or what is wrong with it, and how many lines it takes."""

    line: int
    fields: list[str] | Malformed
    lines: int = 1


def table_rows(lines: Iterable[tuple[int, str]], *, delimiter: str, quoted: bool) -> Iterator[TableRow]:
    """Cut lines at the delimiter; a line without anything in it is one empty field.

    In quotes (the first character of a field is ``"``), delimiters and line ends belong to the field and ``""`` is one
    quote. A quote that is never closed costs its own line only: reading goes on behind it.

    Args:
        lines: Numbered lines.
        delimiter: One or several characters.
        quoted: Whether quotes mean anything.
    """
    waiting = _Waiting(lines)
    for number, line in waiting:
        if not quoted or '"' not in line:
            yield TableRow(number, line.split(delimiter))
            continue
        waiting.taken = []
        fields = _quoted(line, waiting, delimiter)
        taken = len(waiting.taken)
        if isinstance(fields, Malformed):
            waiting.put_back()
        yield TableRow(number, fields, 1 if isinstance(fields, Malformed) else 1 + taken)


def guessed_delimiter(sample: Iterable[str]) -> str:
    """What the first lines of a CSV file agree on: the sign that cuts each into as many fields, more than one."""
    rows = [line for line in sample if line]
    for delimiter in _GUESSED:
        cut = table_rows(enumerate(rows), delimiter=delimiter, quoted=True)
        # A quote that the sample does not close: what follows it are no rows.
        whole = takewhile(lambda row: not isinstance(row.fields, Malformed), cut)
        numbers = {len(row.fields) for row in whole}
        if len(numbers) == 1 and numbers != {1}:
            return delimiter
    return _GUESSED[0]


class _Waiting:
    """Lines, of which those that a row took can be put back."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self._lines = iter(lines)
        self._again: deque[tuple[int, str]] = deque()
        self.taken: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self

    def __next__(self) -> tuple[int, str]:
        return self._again.popleft() if self._again else next(self._lines)

    def take(self) -> str | None:
        """The next line, as a part of the present row."""
        found = next(self, None)
        if found is None:
            return None
        self.taken.append(found)
        return found[1]

    def put_back(self) -> None:
        """Let the lines that the present row took be read again."""
        self._again.extendleft(reversed(self.taken))
        self.taken = []


def _quoted(line: str, waiting: _Waiting, delimiter: str) -> list[str] | Malformed:
    """The fields of a row that begins with ``line`` and may go on over further lines."""
    fields, at = list[str](), 0
    while True:
        if line.startswith('"', at):
            found = _in_quotes(line, at + 1, waiting)
            if isinstance(found, Malformed):
                return found
            value, line, at = found
            behind = len(line) - len(line[at:].lstrip(" "))
            at = behind if line.startswith(delimiter, behind) or behind == len(line) else at
            if at < len(line) and not line.startswith(delimiter, at):
                return Malformed("text behind a closing quote")
        else:
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            value, at = line[at:end], end
        fields.append(value)
        if at == len(line):
            return fields
        at += len(delimiter)


def _in_quotes(line: str, start: int, waiting: _Waiting) -> tuple[str, str, int] | Malformed:
    """A field in quotes: its value, the line it ends on, and the place behind its closing quote."""
    parts, at, length = list[str](), start, 0
    while True:
        end = line.find('"', at)
        if end < 0:
            parts.append(line[start:])
            length += len(parts[-1])
            more = waiting.take() if length <= _LONGEST else None
            if more is None:
                return Malformed("quote that is never closed")
            parts.append("\n")
            line, start, at = more, 0, 0
        elif line.startswith('""', end):
            at = end + 2
        else:
            parts.append(line[start:end])
            return "".join(parts).replace('""', '"'), line, end + 1
