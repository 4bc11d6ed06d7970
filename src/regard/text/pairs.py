"""Pairs of a text and its translation, from one table or from two files whose lines belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from os import PathLike
from pathlib import Path

from regard.errors import FormatError, message
from regard.text._columns import Chosen, Layout, Role, plain, values_of
from regard.text._gathering import BLANK, Gathering
from regard.text._lines import TextFile
from regard.text._rows import Row, Rows
from regard.text.examples import Examples, Place
from regard.text.options import ReadOptions

_LANGUAGE = re.compile(
    r"(?:ar|bg|bn|ca|cs|da|de|el|en|es|et|fa|fi|fr|gu|he|hi|hr|hu|id|it|ja|kk|ko|lt|lv|mr|ms|nb|nl|pl|pt|ro|ru|sk|sl|sr"
    r"|sv|sw|ta|te|th|tr|uk|ur|vi|zh)(?:[_-][a-z]{2,4})?"
    r"|english|chinese|mandarin|german|french|spanish|italian|portuguese|russian|japanese|korean|arabic|dutch|turkish"
    r"|英文|英语|中文|汉语|德语|法语|日语|韩语|俄语|西班牙语"
)
_ROLES = (
    Role("source", ("source", "src", "source_text", "input", "input_text", "原文", "源语言")),
    Role("target", ("target", "tgt", "trg", "target_text", "output", "output_text", "translation", "译文", "目标语言")),
)
_NESTED = "translation"
_BESIDE = ("id", "idx", "index", "no", "nr", "number", "score", "domain", "split", "corpus", "编号", "序号")
_ODD = {"\r": "a lone carriage return", "\x0b": "a vertical tab", "\x0c": "a form feed", "\x85": "U+0085"}
_ODD |= {character: f"U+{ord(character):04X}" for character in "\x1c\x1d\x1e\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class TextPair:
    """A text and what it is to become.

    Args:
        source: The text that is read.
        target: The text that is to be written.
    """

    source: str
    target: str

    @property
    def given(self) -> tuple[str, ...]:
        """What a model is given."""
        return (self.source,)


FilePath = str | PathLike[str]


def read_pairs(path: FilePath | tuple[FilePath, FilePath], *, options: ReadOptions | None = None) -> Examples[TextPair]:
    r"""Read pairs of texts: from a TSV, CSV, JSON or JSON Lines file, or from two files, line by line.

    A table without a header is read as source, target, and columns that are not used. In JSON, ``{"source": …,
    "target": …}``, ``{"en": …, "zh": …}`` and ``{"translation": {"en": …, "zh": …}}`` are known.

    Args:
        path: The file, or (source file, target file).
        options: How it is written. Roles of ``columns``: ``source``, ``target``.

    Returns:
        The pairs. Those with an empty side are skipped and counted; several targets of one source are kept.

    Raises:
        OSError: A file cannot be read.
        FormatError: It does not hold pairs, or the two files have not as many lines.

    Example:
        >>> import tempfile, pathlib
        >>> from regard.text import read_pairs
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.tsv"
        >>> _ = path.write_text("Hello!\t你好！\n", encoding="utf-8")
        >>> read_pairs(path)[0]
        TextPair(source='Hello!', target='你好！')
    """
    gathering = Gathering[TextPair]("read_pairs", "pairs", options or ReadOptions())
    paths = [Path(part) for part in path] if isinstance(path, tuple) else [Path(path)]
    found = _rows(paths[0], gathering) if len(paths) == 1 else _aligned(paths, gathering)
    for place, source, target in found:
        first = gathering.text(source, "source", place)
        second = gathering.text(target, "target", place) if first is not None else None
        if first is not None and second is not None:
            gathering.add(TextPair(first, second), place)
    return gathering.finished(paths)


def _rows(path: Path, gathering: Gathering[TextPair]) -> Iterator[tuple[Place, object, object]]:
    rows = Rows(path, gathering)
    if rows.format not in ("tsv", "csv", "jsonl", "json"):
        problem = f"a table of pairs (TSV, CSV, JSON), but is read as {rows.format!r}."
        raise rows.file.fail(problem, hint="give two files, (source, target), or ReadOptions(delimiter=…, format=…).")
    for place, (source, target) in values_of(rows, Layout(_ROLES, _guess, _are_languages), gathering):
        yield place, source, target


def _guess(rows: Rows, first: Sequence[Row]) -> Chosen:
    """Two columns that are named like languages, else the first two; in JSON what stands beneath ``translation``."""
    if rows.is_table:
        places = _languages(rows.names) if _are_languages(rows.names) else range(len(rows.names))
        return dict(zip(("source", "target"), places[:2], strict=True)) if len(places) > 1 else {}
    for row in first:
        inner = row.get(_NESTED) if isinstance(row, Mapping) else None
        if isinstance(inner, dict) and len(inner) > 1:
            return dict(zip(("source", "target"), ((_NESTED, key) for key in inner), strict=False))
    languages = [name for name in rows.names if _LANGUAGE.fullmatch(plain(name))]
    return dict(zip(("source", "target"), ((name,) for name in languages), strict=False))


def _are_languages(names: Sequence[str]) -> bool:
    """Whether a first line names two languages, first of all or beside numbers; "Hi" is a text, "hi" a language."""
    places = _languages(names)[:2]
    pair = [names[place] for place in places]
    short = all(len(name) > 3 or name == name.lower() or "-" in name or "_" in name for name in pair)
    beside = all(plain(name) in _BESIDE for place, name in enumerate(names) if place not in places)
    return short and len({plain(name) for name in pair}) == 2 and (places == [0, 1] or beside)


def _languages(names: Sequence[str]) -> list[int]:
    """Which columns are named like a language."""
    found = [place for place, name in enumerate(names) if _LANGUAGE.fullmatch(plain(name))]
    if len(found) > 2:  # "id" is Indonesian, and beside two other languages a number
        return [place for place in found if plain(names[place]) != "id"]
    return found


def _aligned(paths: Sequence[Path], gathering: Gathering[TextPair]) -> Iterator[tuple[Place, object, object]]:
    """Lines of two files, side by side.

    Raises:
        FormatError: One has more lines; says where they may have gone apart.
    """
    files = [TextFile(path, options=gathering.options, caller=gathering.caller) for path in paths]
    for file in files:
        gathering.note(file.note)
    odd, counts = "", [0, 0]
    for source, target in zip_longest(files[0].lines(), files[1].lines()):
        sides = (source, target)
        counts = [count if side is None else side[0] for count, side in zip(counts, sides, strict=True)]
        texts = [None if side is None else side[1] for side in sides]
        odd = odd or _oddness(paths, max(counts), texts)
        if source is not None and target is not None and not (source[1].strip() or target[1].strip()):
            gathering.skip(BLANK, Place(str(paths[0]), source[0]))
        elif source is not None and target is not None:
            yield Place(str(paths[0]), source[0]), source[1], target[1]
    if counts[0] != counts[1]:
        held = f"{paths[0]} has {counts[0]:,} and {paths[1]} has {counts[1]:,}"
        problem = f"`path` must be two files of as many lines, but {held}."
        hint = odd or "no line is blank or holds an odd line end: compare the ends of the files."
        raise FormatError(message(gathering.caller, problem, hint=hint))


def _oddness(paths: Sequence[Path], number: int, texts: Sequence[str | None]) -> str:
    """What is suspicious about a line of two files: blank on one side, or a character that some take for a line end."""
    for path, text, other in zip(paths, texts, reversed(texts), strict=True):
        if text is None:
            continue
        if not text.strip() and (other is None or other.strip()):
            where = f"line {number:,} first: it is blank in {path.name}"
            return f"look at {where}{', and the other file ends before it' if other is None else ' only'}."
        found = next((character for character in _ODD if character in text), None)
        if found is not None:
            return f"look at line {number:,} of {path.name} first: it holds {_ODD[found]}, which is no line end."
    return ""
