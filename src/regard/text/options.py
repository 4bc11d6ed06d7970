"""How a person's file is written: what every reader takes as ``options``, and what is stored beside a model."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from regard.errors import all_problems, must_be

Format = Literal["auto", "tsv", "csv", "jsonl", "json", "text", "fasttext", "conll"]


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read. The defaults read most files; what they found out is said in ``Examples.notes``.

    ``dataclasses.asdict`` gives what JSON can hold, and ``ReadOptions(**that)`` gives the options back.

    Args:
        encoding: Name of the encoding. None: UTF-8, or UTF-16 and UTF-32 with a byte order mark. Other encodings must
            be named: they are never guessed.
        format: What the file is. "auto": told by its name and its first lines.
        delimiter: What stands between columns: one or several characters, such as ``_!_``. None: a tab in a TSV file,
            a comma (or semicolon, tab, bar: whatever the first lines agree on) in a CSV file.
        header: Whether line 1 holds the names of the columns. None: told by whether it holds names that are known.
        columns: Where things are: from a role ("text", "label", "source", …) to the name of a column, its number from
            1, or a path of fields in JSON ("translation.en").
        quoted: Whether a field may stand in double quotes and then hold delimiters and line ends. None: in CSV only.
        unescape_html: Turn ``&amp;`` into ``&``, once. If not asked for, such texts are counted and left alone.
        drop_duplicates: Leave out rows that are equal to an earlier one (after stripping and NFC). If not asked for,
            they are counted and kept.
        max_bad_share: The share of rows that may be malformed or empty; they are skipped and listed. Above it, reading
            is an error: so many bad rows mean that the file is another than was thought.

    Raises:
        ConfigError: with every problem.
    """

    encoding: str | None = None
    format: Format = "auto"
    delimiter: str | None = None
    header: bool | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    quoted: bool | None = None
    unescape_html: bool = False
    drop_duplicates: bool = False
    max_bad_share: float = 0.5

    def __post_init__(self) -> None:
        problems = []
        if self.encoding is not None and not (isinstance(self.encoding, str) and is_encoding(self.encoding)):
            problems.append(must_be("encoding", "an encoding of text that Python knows", repr(self.encoding)))
        if self.format not in get_args(Format):
            problems.append(must_be("format", f"one of {', '.join(get_args(Format))}", repr(self.format)))
        if self.delimiter is not None and (not self.delimiter or set(self.delimiter) & set('"\r\n')):
            problems.append(must_be("delimiter", "characters without quotes and line ends", repr(self.delimiter)))
        problems += [
            must_be(f"columns[{role!r}]", "the name of a column, or its number from 1, as a string", repr(column))
            for role, column in self.columns.items()
            if not isinstance(column, str) or column in ("", "0")
        ]
        if not 0 <= self.max_bad_share <= 1:
            problems.append(must_be("max_bad_share", "between 0 and 1", self.max_bad_share))
        if problems:
            raise all_problems("ReadOptions", problems)


def is_encoding(name: str) -> bool:
    """Whether Python can decode text by an encoding of this name."""
    try:
        return bool("a".encode(name)) and codecs.lookup(name).incrementaldecoder is not None
    except (LookupError, ValueError):
        return False
