"""The rows of a file, whatever its format, and where each stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from regard.errors import FormatError
from regard.text._formats import format_of
from regard.text._gathering import BLANK, Gathering
from regard.text._lines import TextFile
from regard.text._tables import Malformed, TableRow, guessed_delimiter, table_rows
from regard.text._values import line_values, text_values
from regard.text.examples import Place

Row = Sequence[str] | Mapping[str, object]

_PEEKED = 1000
_LONG = 131_072  # beyond this many characters, a row in quotes that runs over lines is likely an open quote
_QUOTE = '"'
_SHOWN = 40
_WRAPPERS = ("data", "rows", "examples", "records", "items", "samples", "train", "validation", "dev", "test")
_PARTS = ("messages", "conversations", "conversation", "dialog", "dialogue", "turns", "paragraphs", "qas")


class Rows:
    """The rows of a file that holds a table or JSON: malformed ones are skipped.

    Args:
        path: The file.
        gathering: Where rows are skipped and notes are said.
        file: The file, where it is open already.

    Attributes:
        file: The file.
        format: What it is.
        peeked: Its first rows, which come again when it is iterated.
    """

    def __init__(self, path: Path, gathering: Gathering[Any], *, file: TextFile | None = None) -> None:
        self._gathering = gathering
        self.file = file or TextFile(path, options=gathering.options, caller=gathering.caller)
        self.format = format_of(self.file, gathering.options)
        gathering.note(self.file.note)
        self._count, self._enclosed, self._doubled = 0, 0, 0
        self._stream: Iterator[tuple[Place, Row]] = iter(())
        if self.is_table:
            self._stream = self._table()
        elif self.format in ("jsonl", "json"):
            self._stream = self._json()
        self.peeked = list(islice(self._stream, _PEEKED))

    def __iter__(self) -> Iterator[tuple[Place, Row]]:
        yield from chain(self.peeked, self._stream)
        if self._doubled or 2 * self._enclosed > self._count:
            number = max(self._doubled, self._enclosed)
            what = "row holds a field" if number == 1 else "rows hold fields"
            self._gathering.note(f"{number:,} {what} in double quotes, which are kept: quoted=True drops them")

    @property
    def is_table(self) -> bool:
        """Whether rows are lists of fields, not objects."""
        return self.format in ("tsv", "csv")

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of the first row of a table, or the keys of the first objects."""
        if self.is_table:
            return tuple(self.peeked[0][1]) if self.peeked else ()
        return tuple(dict.fromkeys(key for _, row in self.peeked for key in row))

    def lacking(self, what: str) -> FormatError:
        """Build the error for a column that is not there; names those that are."""
        if self.is_table:
            listed = ", ".join(f"{number} {_cut(name)!r}" for number, name in enumerate(self.names, start=1))
            present = f"has these on line {self.peeked[0][0].line}: {listed}"
        else:
            present = f"has these fields: {', '.join(self.names)}"
        hint = "ReadOptions(columns={…}) says which column (its name, or its number from 1) is what."
        return self.file.fail(f"a file with {what}, but {present}.", hint=hint)

    def _table(self) -> Iterator[tuple[Place, Row]]:
        name, quoted = str(self.file.path), self._gathering.options.quoted
        quoted = self.format == "csv" if quoted is None else quoted
        for row in table_rows(self.file.lines(), delimiter=self._delimiter(), quoted=quoted):
            place = Place(name, row.line)
            if isinstance(row.fields, Malformed):
                self._gathering.skip(str(row.fields), place)
            elif len(row.fields) == 1 and not row.fields[0].strip():
                self._gathering.skip(BLANK, place)
            else:
                self._mark(row, row.fields, quoted=quoted)
                yield place, row.fields

    def _delimiter(self) -> str:
        named = self._gathering.options.delimiter
        if named is not None or self.format == "tsv":
            return named or "\t"
        found = guessed_delimiter(self.file.sample())
        if found != ",":
            self._gathering.note(f"columns are cut at {found!r}")
        return found

    def _mark(self, row: TableRow, fields: Sequence[str], *, quoted: bool) -> None:
        """Notice quotes that look wrong: kept where they enclose a field, open where a row is very long."""
        self._count += 1
        if not quoted:
            enclosed = [field[1:-1] for field in fields if field[:1] == _QUOTE == field[-1:] and len(field) > 1]
            self._enclosed += bool(enclosed)
            self._doubled += any('""' in field and _QUOTE not in field.replace('""', "") for field in enclosed)
        elif row.lines > 1 and sum(map(len, fields)) > _LONG:
            size = f"{sum(map(len, fields)):,} characters over {row.lines:,} lines"
            self._gathering.note(f"the row on line {row.line:,} has {size}: unbalanced quote?")

    def _json(self) -> Iterator[tuple[Place, Row]]:
        values = line_values(self.file.lines()) if self.format == "jsonl" else _unwrapped(self.file.text())
        for line, within, value in values:
            place = Place(str(self.file.path), line, within)
            if value is None and self.format == "jsonl":
                self._gathering.skip(BLANK, place)
            elif isinstance(value, Malformed):
                self._gathering.skip(str(value), place)
            elif isinstance(value, dict):
                yield place, value
            else:
                self._gathering.skip("not a JSON object", place)


def _unwrapped(text: str) -> Iterator[tuple[int, str, object]]:
    """The values of a text: line, place within it and value; where all of it is one object around rows, those."""
    values = text_values(text)
    first = next(values, None)
    second = next(values, None)
    key = _wrapping(first[1]) if first is not None and second is None else None
    if first is not None and key is not None:
        rows = cast("Mapping[str, Sequence[object]]", first[1])[key]
        yield from ((first[0], f"{key}[{index}]", row) for index, row in enumerate(rows))
        return
    for line, value in chain(filter(None, (first, second)), values):
        yield line, "", value


def _wrapping(value: object) -> str | None:
    """The field of an object that holds rows: named as such, or the only one."""
    if not isinstance(value, dict):
        return None
    lists = [key for key, inner in value.items() if isinstance(inner, list) and inner]
    named = [key for key in lists if key in _WRAPPERS or (len(value) == 1 and key not in _PARTS)]
    return named[0] if len(named) == 1 and all(isinstance(row, dict) for row in value[named[0]]) else None


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
