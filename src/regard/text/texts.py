"""Texts without anything to them, to learn language from: a whole file, its lines, a column, dialogs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regard.errors import ConfigError, message, must_be
from regard.text._columns import MISSING, Chosen, Layout, Role, plain, values_of
from regard.text._formats import format_of, is_document_start
from regard.text._gathering import BLANK, Gathering
from regard.text._lines import TextFile
from regard.text._rows import Row, Rows
from regard.text.examples import Examples, Place
from regard.text.options import ReadOptions
from regard.text.pairs import FilePath

TURN = "{role}: {content}\n"

_ROLES = (Role("text", ("text", "content", "document", "article", "body", "sentence", "poem", "文本", "内容", "正文")),)
_DIALOG = Role("messages", ("messages", "conversations", "conversation", "dialog", "dialogue", "turns"), needed=False)
_SPEAKERS, _CONTENTS = ("role", "from", "speaker"), ("content", "value", "text")


def read_texts(
    path: FilePath, *, lines: bool = False, turn: str = TURN, options: ReadOptions | None = None
) -> Examples[str]:
    r"""Read texts: a plain file as one long text or line by line, a column of a table, a field of JSON, dialogs.

    A dialog (``{"messages": [{"role": …, "content": …}, …]}``, or ``conversations`` of ``from`` and ``value``) becomes
    one text: ``turn`` for every message, one after another. A file of one token per line with tags (CoNLL) gives its
    sentences, tokens joined by a space.

    Args:
        path: The file.
        lines: Whether each line of a plain file is a text of its own; blank ones are none.
        turn: How a message of a dialog is written: ``{role}`` and ``{content}`` stand for what it holds.
        options: How the file is written. Roles of ``columns``: ``text``, ``messages``.

    Returns:
        The texts. A whole file is kept character for character; others lose spaces around them.

    Raises:
        OSError: The file cannot be read.
        ConfigError: ``turn`` does not say where the content goes.
        FormatError: The file does not hold texts.

    Example:
        >>> import tempfile, pathlib
        >>> from regard.text import read_texts
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "poem.txt"
        >>> _ = path.write_text("床前明月光，\n疑是地上霜。\n", encoding="utf-8")
        >>> len(read_texts(path)), list(read_texts(path, lines=True))
        (1, ['床前明月光，', '疑是地上霜。'])
    """
    gathering = Gathering[str]("read_texts", "texts", options or ReadOptions())
    if "{content}" not in turn:
        raise ConfigError(message(gathering.caller, must_be("turn", "a text with {content} in it", repr(turn))))
    file = TextFile(Path(path), options=gathering.options, caller=gathering.caller)
    kind = format_of(file, gathering.options)
    if kind in ("text", "fasttext"):
        gathering.note(file.note)
        for place, text in _plain(file, lines=lines):
            _add(text, place, gathering, exact=not lines)
    elif kind == "conll":
        _read_sentences(file, gathering)
    else:
        _read_rows(file, turn, gathering)
    return gathering.finished([Path(path)])


def _plain(file: TextFile, *, lines: bool) -> Iterator[tuple[Place, str]]:
    name = str(file.path)
    if not lines:
        yield Place(name, 1), file.text()
        return
    for number, line in file.lines():
        yield Place(name, number), line


def _add(text: str, place: Place, gathering: Gathering[str], *, exact: bool = False) -> None:
    if not text.strip():
        gathering.skip(BLANK, place)
        return
    found = gathering.exact(text, "text", place) if exact else gathering.text(text, "text", place)
    if found is not None:
        gathering.add(found, place)


def _read_rows(file: TextFile, turn: str, gathering: Gathering[str]) -> None:
    rows = Rows(file.path, gathering, file=file)
    names = {plain(name) for name in rows.names}
    named = gathering.options.columns
    dialogs = "messages" in named or (not rows.is_table and "text" not in named and names & set(_DIALOG.aliases))
    roles = (Role("text", (), needed=False), Role("messages", _DIALOG.aliases)) if dialogs else (*_ROLES, _DIALOG)
    if dialogs:
        gathering.note(f"a dialog is written as {turn!r} for each message")
    for place, (text, messages) in values_of(rows, Layout(roles, _guess), gathering):
        value = _dialog(messages, turn, place, gathering) if dialogs else text
        if value is not None and value is not MISSING:
            found = gathering.exact(value, "text", place) if dialogs else gathering.text(value, "text", place)
            if found is not None:
                gathering.add(found, place)


def _guess(rows: Rows, first: Sequence[Row]) -> Chosen:
    return {"text": 0} if rows.is_table and len(rows.names) == 1 else {}


def _dialog(messages: object, turn: str, place: Place, gathering: Gathering[str]) -> str | None:
    """The messages as one text; None, and the row is skipped, where one cannot be written."""
    if not isinstance(messages, list) or not messages:
        gathering.skip("messages[] is no list of messages", place)
        return None
    written = []
    for entry in messages:
        if not isinstance(entry, Mapping):
            gathering.skip("messages[] is no list of objects", place)
            return None
        speaker = next((entry[key] for key in _SPEAKERS if isinstance(entry.get(key), str)), None)
        content = _content(next((entry[key] for key in _CONTENTS if key in entry), None))
        if speaker is None or content is None or not content.strip():
            what = "role" if speaker is None else "content"
            gathering.skip(
                f"messages[] without {what}" if content is None or speaker is None else f"empty messages[].{what}",
                place,
            )
            return None
        parts = turn.split("{content}")
        written.append(content.join(part.replace("{role}", str(speaker)) for part in parts))
    return "".join(written)


def _content(value: object) -> str | None:
    """The text of a message, which may come in parts."""
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        return "".join(str(part) for part in parts) if all(isinstance(part, str) for part in parts) else None
    return value if isinstance(value, str) else None


def _read_sentences(file: TextFile, gathering: Gathering[str]) -> None:
    """One token per line, sentences apart by blank lines."""
    gathering.note(file.note)
    named = gathering.options.columns.get("text")
    sentence, start = list[list[str]](), 1
    for number, line in file.lines():
        if line.strip() and not line.startswith("#") and not is_document_start(line):
            start = start if sentence else number
            sentence.append(line.split())
        elif sentence and not line.strip():
            _add(" ".join(_tokens(sentence, named)), Place(str(file.path), start), gathering)
            sentence = []
    if sentence:
        _add(" ".join(_tokens(sentence, named)), Place(str(file.path), start), gathering)
    gathering.note("one token per line (CoNLL): the tokens of each sentence are joined by spaces, tags are not used")


def _tokens(sentence: Sequence[Sequence[str]], named: str | None) -> list[str]:
    """The tokens of a sentence: the first column, or the second where the first one counts."""
    counted = all(row[0].isdecimal() for row in sentence) and len(sentence[0]) > 2
    column = int(named) - 1 if named is not None and named.isdecimal() else int(counted)
    return [row[column] for row in sentence if column < len(row)]
