"""Long texts with their summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.text._columns import Chosen, Layout, Role, values_of
from regard.text._gathering import Gathering
from regard.text._rows import Row, Rows
from regard.text.examples import Examples, Place
from regard.text.joining import joined
from regard.text.options import ReadOptions
from regard.text.pairs import FilePath

_ROLES = (
    Role(
        "text",
        ("text", "document", "article", "source", "abstract", "content", "body", "dialogue", "正文", "原文", "摘要"),
    ),
    Role(
        "summary", ("summary", "summaries", "highlights", "target", "tldr", "headline", "title", "标题", "总结", "概要")
    ),
)


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what it is to be shortened to.

    Args:
        text: The text.
        summaries: Its summaries, one or several.
        sentences: Its sentences, where the file holds them apart; else nothing.
    """

    text: str
    summaries: tuple[str, ...]
    sentences: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """What a model is given."""
        return (self.text,)


def read_documents(path: FilePath, *, options: ReadOptions | None = None) -> Examples[Document]:
    """Read texts with summaries: from JSON Lines, JSON, TSV or CSV.

    Either side may be a text or, in JSON, a list: of the sentences of the text (which are joined), of several
    summaries. A table of two columns without names is read as text, summary.

    Args:
        path: The file.
        options: How it is written. Roles of ``columns``: ``text``, ``summary``.

    Returns:
        The texts. Those that are empty, or without a summary, are skipped and counted.

    Raises:
        OSError: The file cannot be read.
        FormatError: It does not hold texts with summaries.

    Example:
        >>> import json, tempfile, pathlib
        >>> from regard.text import read_documents
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "papers.jsonl"
        >>> row = {"source": ["We look.", "We see."], "target": ["Looking helps."]}
        >>> _ = path.write_text(json.dumps(row), encoding="utf-8")
        >>> read_documents(path)[0]
        Document(text='We look. We see.', summaries=('Looking helps.',), sentences=('We look.', 'We see.'))
    """
    gathering = Gathering[Document]("read_documents", "documents", options or ReadOptions())
    rows = Rows(Path(path), gathering)
    if rows.format not in ("tsv", "csv", "jsonl", "json"):
        problem = f"a table or JSON of texts with summaries, but is read as {rows.format!r}."
        raise rows.file.fail(problem, hint="ReadOptions(delimiter=…, format=…) says how to read it.")
    for place, (text, summary) in values_of(rows, Layout(_ROLES, _guess), gathering):
        sentences = _texts(text, "text", place, gathering)
        summaries = _texts(summary, "summary", place, gathering) if sentences else ()
        if sentences and summaries:
            apart = sentences if isinstance(text, list) else ()
            gathering.add(Document(joined(sentences), summaries, apart), place)
    return gathering.finished([Path(path)])


def _texts(value: object, role: str, place: Place, gathering: Gathering[Document]) -> tuple[str, ...]:
    """A text or the texts of a list; nothing, and the row is skipped, where there is none."""
    if not isinstance(value, list):
        text = gathering.text(value, role, place)
        return () if text is None else (text,)
    written = [part for part in value if not (isinstance(part, str) and not part.strip())]
    if not written:
        gathering.skip(f"empty {role}", place)
        return ()
    texts = []
    for part in written:
        text = gathering.text(part, role, place)
        if text is None:
            return ()
        texts.append(text)
    return tuple(texts)


def _guess(rows: Rows, first: Sequence[Row]) -> Chosen:
    return {"text": 0, "summary": 1} if rows.is_table and len(rows.names) == 2 else {}
