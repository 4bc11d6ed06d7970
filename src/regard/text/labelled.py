"""Texts with a label each: from tables, fastText files, one file per label, or one folder per label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from regard.errors import FormatError, all_problems, message, must_be
from regard.text._columns import MISSING, Chosen, Layout, Role, values_of
from regard.text._folders import files_of, folders_of, label_folders
from regard.text._formats import LABEL_PREFIX, format_of, stem_of, suffix_of
from regard.text._gathering import BLANK, Gathering
from regard.text._lines import TextFile
from regard.text._rows import Row, Rows
from regard.text.examples import Examples, Place
from regard.text.options import ReadOptions
from regard.text.pairs import FilePath

_FIRST_OF_TWO = ("sentence1", "text1", "text_a", "question1", "premise", "sentence_a", "句子1", "前提")
_SECOND_OF_TWO = ("sentence2", "text2", "text_b", "question2", "hypothesis", "sentence_b", "pair", "句子2", "假设")
_ROLES = (
    Role(
        "text",
        (
            *(
                "text",
                "sentence",
                "review",
                "review_text",
                "content",
                "comment",
                "tweet",
                "utterance",
                "message",
                "body",
            ),
            *_FIRST_OF_TWO,
            *("question", "query", "document", "headline", "title", "文本", "内容", "句子", "评论", "正文", "标题"),
        ),
    ),
    Role(
        "label",
        (
            *(
                "label",
                "labels",
                "class",
                "sentiment",
                "category",
                "polarity",
                "gold_label",
                "intent",
                "emotion",
                "topic",
            ),
            *("is_duplicate", "target", "rating", "stars", "score", "标签", "类别", "情感", "分类"),
        ),
    ),
    Role("pair", _SECOND_OF_TWO, needed=False),
)
_LEADING = re.compile(rf"\s*((?:{LABEL_PREFIX}[^\s,]+[\s,]*)+)(.*)", flags=re.DOTALL)
_TRAILING = re.compile(rf"(.*?)\s*((?:{LABEL_PREFIX}[^\s,]+[\s,]*)+)", flags=re.DOTALL)
_ONE_LABEL = re.compile(rf"{LABEL_PREFIX}([^\s,]+)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or two, and the class it is in.

    Args:
        text: The text.
        label: The label, as it is written.
        pair: The second text, for tasks about two (paraphrase, inference).
    """

    text: str
    label: str
    pair: str | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """What a model is given."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


def read_labelled(
    path: FilePath | Sequence[FilePath], *, scores: bool = False, options: ReadOptions | None = None
) -> Examples[Labelled]:
    r"""Read texts with labels.

    - TSV, CSV, JSON, JSON Lines: columns by name (``text``, ``sentence``, ``review``, … ``label``, ``sentiment``, …;
      ``sentence1`` and ``sentence2`` are a pair), or two columns without names, of which the one with fewer different
      values is the label.
    - fastText: ``__label__name text``.
    - Several plain text files, one text per line: the label is the file's name (``pos.txt``, ``neg.txt``), or its end
      where only that differs (``reviews.pos``, ``reviews.neg``).
    - A folder: of such files, or with a folder per label, each file of it one text.

    Labels are texts as they are written, without spaces around them: ``01`` is not ``1``, and ``NA`` is a label.

    Args:
        path: A file, several files or a folder.
        scores: Take labels that are measurements, such as 2.4; else a file of those is refused.
        options: How the files are written. Roles of ``columns``: ``text``, ``label``, ``pair``.

    Returns:
        The texts. Those that are empty, or have no label or several, are skipped and counted.

    Raises:
        OSError: A file cannot be read.
        FormatError: It does not hold texts with labels.

    Example:
        >>> import tempfile, pathlib
        >>> from regard.text import read_labelled
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "reviews.csv"
        >>> _ = path.write_text('label,review\n好,"很好看，推荐"\nbad,"Too long, and dull"\n', encoding="utf-8")
        >>> read_labelled(path)[1]
        Labelled(text='Too long, and dull', label='bad', pair=None)
    """
    given = [Path(path)] if isinstance(path, (str, PathLike)) else [Path(p) for p in path]
    gathering = Gathering[Labelled]("read_labelled", "labelled texts", options or ReadOptions())
    if not given:
        raise all_problems(gathering.caller, [must_be("path", "at least one file", "empty")])
    folders = [folder for folder in given if folder.is_dir()]
    if folders and len(given) == 1 and folders_of(given[0]):
        _read_tree(given[0], gathering)
    else:
        files = [file for each in given for file in (files_of(each) if each.is_dir() else [each])]
        _read_files(files, gathering)
    found = gathering.finished(given)
    if not scores:
        _refuse_measurements(found, gathering.caller)
    return _with_odd_labels(found)


def _read_files(files: Sequence[Path], gathering: Gathering[Labelled]) -> None:
    opened = [TextFile(file, options=gathering.options, caller=gathering.caller) for file in files]
    formats = [format_of(file, gathering.options) for file in opened]
    plain = [file for file, kind in zip(opened, formats, strict=True) if kind == "text"]
    if plain and (len(files) == 1 or len(plain) < len(files)):
        hint = "give one file per label, or ReadOptions(delimiter=…, format=…)."
        raise plain[0].fail("a file of texts with labels, but is plain text without any.", hint=hint)
    labels = _labels_of_names(files) if plain else [""] * len(files)
    readers: dict[str, Callable[[TextFile, Gathering[Labelled]], None]] = {"fasttext": _read_fasttext, "conll": _refuse}
    for file, kind, label in zip(opened, formats, labels, strict=True):
        if kind == "text":
            _read_lines(file, label, gathering)
        else:
            readers.get(kind, _read_rows)(file, gathering)
    if plain:
        gathering.note(f"the label is the name of the file: {', '.join(dict.fromkeys(labels))}")


def _read_rows(file: TextFile, gathering: Gathering[Labelled]) -> None:
    rows = Rows(file.path, gathering, file=file)
    for place, (text, label, pair) in values_of(rows, Layout(_ROLES, _guess), gathering):
        _add(text, label, pair, place, gathering)


def _add(text: object, label: object, pair: object, place: Place, gathering: Gathering[Labelled]) -> None:
    first = gathering.text(text, "text", place)
    name = gathering.label(label, place) if first is not None else None
    second = gathering.text(pair, "pair", place) if name is not None and pair is not MISSING else None
    if first is not None and name is not None and (second is not None or pair is MISSING):
        gathering.add(Labelled(first, name, second), place)


def _guess(rows: Rows, first: Sequence[Row]) -> Chosen:
    """Of two columns, the label is the one with fewer different values; where that is even, the shorter one."""
    if not rows.is_table or len(rows.names) != 2:
        return {}
    columns = [[row[i] for row in first if isinstance(row, Sequence) and len(row) == 2] for i in range(2)]
    weights = [(len(set(column)), sum(map(len, column))) for column in columns]
    label = 0 if weights[0] < weights[1] else 1
    return {"text": 1 - label, "label": label}


def _read_fasttext(file: TextFile, gathering: Gathering[Labelled]) -> None:
    gathering.note(file.note)
    for number, line in file.lines():
        place = Place(str(file.path), number)
        if not line.strip():
            gathering.skip(BLANK, place)
            continue
        leading, trailing = _LEADING.fullmatch(line), _TRAILING.fullmatch(line)
        written, text = leading.groups() if leading else reversed(trailing.groups()) if trailing else ("", line)
        labels = _ONE_LABEL.findall(written) + _ONE_LABEL.findall(text)
        if len(labels) == 1 and written:
            _add(text, labels[0], MISSING, place, gathering)
        else:
            gathering.skip("several labels (one is supported)" if len(labels) > 1 else "no label", place)


def _refuse(file: TextFile, gathering: Gathering[Labelled]) -> None:
    problem = "a file of texts with labels, but holds one token with its tag per line (CoNLL)."
    raise file.fail(
        problem, hint=f"{gathering.caller} reads one label per text; read_texts reads the sentences of such a file."
    )


def _read_lines(file: TextFile, label: str, gathering: Gathering[Labelled]) -> None:
    gathering.note(file.note)
    for number, line in file.lines():
        place = Place(str(file.path), number)
        if line.strip():
            _add(line, label, MISSING, place, gathering)
        else:
            gathering.skip(BLANK, place)


def _read_tree(folder: Path, gathering: Gathering[Labelled]) -> None:
    inner = label_folders(folder, gathering)
    for child in inner:
        for path in files_of(child):
            file = TextFile(path, options=gathering.options, caller=gathering.caller)
            gathering.note(file.note)
            _add(file.text(), child.name, MISSING, Place(str(path), 1), gathering)
    gathering.note(f"the label is the name of the folder: {', '.join(child.name for child in inner)}")


def _labels_of_names(files: Sequence[Path]) -> list[str]:
    """The names without their ends; the ends, where the names are all alike (``reviews.pos``, ``reviews.neg``)."""
    stems = [stem_of(file) for file in files]
    return [suffix_of(file).removeprefix(".") for file in files] if len(set(stems)) == 1 < len(files) else stems


def _refuse_measurements(found: Examples[Labelled], caller: str) -> None:
    """Refuse numbers of which some are no whole ones: those are no classes."""
    labels = {example.label for example in found}
    if not all(_NUMBER.fullmatch(label) for label in labels):
        return
    place, label = next(
        (
            (place, example.label)
            for place, example in zip(found.places, found, strict=True)
            if float(example.label) % 1
        ),
        (None, ""),
    )
    if place is not None:
        problem = f"{place}: `label` must be a class, but is a measurement: {label}."
        raise FormatError(
            message(caller, problem, hint="scores=True takes them; name another column if this is not it.")
        )


def _with_odd_labels(found: Examples[Labelled]) -> Examples[Labelled]:
    """Say which labels look wrong: the name of a column that was read as a label, and one label only."""
    counts = Counter(example.label for example in found)
    notes = []
    if len(counts) == 1:
        notes.append(f"every label is {next(iter(counts))!r}: there is nothing to tell apart")
    first = found[0].label
    if len(counts) > 2 and counts[first] == 1 and found.places[0].line == 1 and len(found) > 3 * len(counts):
        notes.append(f"the label {first!r} is on line 1 only: a header? header=True skips it")
    return Examples(found.items, found.places, found.skipped, (*found.notes, *notes), found.noun)
