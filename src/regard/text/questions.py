"""Questions about a text whose answers stand in it: SQuAD files, and one question per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

from regard.text._columns import MISSING, Layout, Role, values_of
from regard.text._gathering import Count, Gathering, kind_of
from regard.text._rows import Row, Rows
from regard.text._values import Number
from regard.text.examples import Examples, Place
from regard.text.joining import joined
from regard.text.options import ReadOptions
from regard.text.pairs import FilePath

_ROLES = (
    Role(
        "context", ("context", "passage", "paragraph", "story", "document", "text", "article", "文章", "段落", "上下文")
    ),
    Role("question", ("question", "query", "问题")),
    Role("answers", ("answers", "answer", "答案"), needed=False),
    Role("start", ("answer_start", "answer_starts", "start"), needed=False),
    Role("support", ("support", "supporting_facts"), needed=False),
    Role("id", ("id", "qid", "question_id", "编号"), needed=False),
)
_TEXTS, _STARTS = ("text", "answer", "span"), ("answer_start", "answer_starts", "start")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer where it stands.

    Args:
        text: The answer.
        start: Its first character in the context, counted in code points from 0.
    """

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text.

    Args:
        context: The text.
        question: The question.
        answers: Its answers in the text; none, where the text has no answer.
        id: Its name in the file, or the number of its row.
    """

    context: str
    question: str
    answers: tuple[Answer, ...] = ()
    id: str = field(default="", compare=False)

    @property
    def given(self) -> tuple[str, ...]:
        """What a model is given."""
        return (self.context, self.question)


def read_questions(path: FilePath, *, options: ReadOptions | None = None) -> Examples[Question]:
    """Read questions whose answers stand in a text: SQuAD files (versions 1 and 2), JSON Lines, tables.

    Answers may be ``[{"text": …, "answer_start": …}]``, ``[[text, start]]``, ``{"text": […], "answer_start": […]}``, a
    text or a list of texts. Where a place is missing or wrong, the answer is looked for: the occurrence nearest to the
    place, else the first one that is a word of its own, else the first. A list of sentences as context is joined;
    ``support``, the numbers (from 0) of those that hold the answer, says where to look first.

    Args:
        path: The file.
        options: How it is written. Roles of ``columns``: ``context``, ``question``, ``answers``, ``start``,
            ``support``, ``id``.

    Returns:
        The questions. Those without an answer in the file have none; those whose answers do not stand in the context
        are skipped and counted.

    Raises:
        OSError: The file cannot be read.
        FormatError: It does not hold questions.

    Example:
        >>> import json, tempfile, pathlib
        >>> from regard.text import read_questions
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "questions.jsonl"
        >>> row = {"context": "银行在河边。", "question": "银行在哪里？", "answer": "河边"}
        >>> _ = path.write_text(json.dumps(row), encoding="utf-8")
        >>> read_questions(path)[0].answers
        (Answer(text='河边', start=3),)
    """
    gathering = Gathering[Question]("read_questions", "questions", options or ReadOptions())
    rows = Rows(Path(path), gathering)
    if rows.format not in ("tsv", "csv", "jsonl", "json"):
        raise rows.file.fail(f"SQuAD, JSON Lines or a table of questions, but is read as {rows.format!r}.")
    found = _nested(rows, gathering) if _is_squad(rows) else values_of(rows, Layout(_ROLES, _no_guess), gathering)
    places = _Places()
    for place, values in found:
        question = _question(values, place, gathering, places)
        if question is not None:
            gathering.add(question, place)
    places.say(gathering)
    return gathering.finished([Path(path)])


class _Places:
    """How places of answers were found."""

    def __init__(self) -> None:
        self.moved, self.several, self.lost = Count(), Count(), Count()

    def say(self, gathering: Gathering[Question]) -> None:
        """What a person should know of it."""
        if self.moved.number:
            many = "answers did not stand where the file says, and were found nearby"
            gathering.note(self.moved.said("answer did not stand where the file says, and was found nearby", many))
        if self.several.number:
            many = "answers without a place occur several times: the first is taken"
            gathering.note(self.several.said("answer without a place occurs several times: the first is taken", many))
        if self.lost.number:
            many = "answers do not stand in their contexts; others of the same questions do"
            gathering.note(self.lost.said("answer does not stand in its context; others of the question do", many))


def _question(
    values: Sequence[object], place: Place, gathering: Gathering[Question], places: _Places
) -> Question | None:
    """One question, or None where it is skipped."""
    context, question, written, start, support, name = values
    looked_at = 0
    if isinstance(context, list) and all(isinstance(part, str) for part in context):
        looked_at = _start_of(context, support)
        context = joined(context)
    text = gathering.exact(context, "context", place)
    asked = gathering.text(question, "question", place) if text is not None else None
    if text is None or asked is None:
        return None
    answers = _written_answers(written, start)
    if answers is not None and gathering.options.unescape_html:  # as the context was, which moved what is behind it
        plain = [(unescape(answer), at) for answer, at in answers]
        answers = plain if text == context else [(answer, None) for answer, _ in plain]
    if answers is None:
        gathering.skip(f"answers are {kind_of(written)} of an unknown form", place)
        return None
    found = [
        answer for answer in (_placed(text, *each, looked_at, place, places) for each in answers) if answer is not None
    ]
    if answers and not found:
        gathering.skip("answer that does not stand in the context", place)
        return None
    if len(found) < len(answers):
        places.lost.add(place, len(answers) - len(found))
    shown = str(name) if isinstance(name, str) else str(len(gathering))
    return Question(text, asked, tuple(dict.fromkeys(found)), shown)


def _written_answers(written: object, start: object) -> list[tuple[str, int | None]] | None:
    """Texts of answers and the places the file gives; None for a form that is not known."""
    if written in (MISSING, None) or written == "":
        return []
    if isinstance(written, Mapping):
        texts = next((written[key] for key in _TEXTS if key in written), None)
        start = next((written[key] for key in _STARTS if key in written), None)
        written = texts
    entries = written if isinstance(written, list) else [written]
    starts = start if isinstance(start, list) else [start] * len(entries)
    found: list[tuple[str, int | None]] = []
    for index, entry in enumerate(entries):
        text, at = entry, starts[index] if index < len(starts) else None
        if isinstance(entry, Mapping):
            text = next((entry[key] for key in _TEXTS if key in entry), None)
            at = next((entry[key] for key in _STARTS if key in entry), None)
        elif isinstance(entry, list) and len(entry) == 2:
            text, at = entry
        if not isinstance(text, str):
            return None
        if text.strip():
            number, led = _number(at), len(text) - len(text.lstrip())
            found.append((text.strip(), None if number is None else number + led))
    return found


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else None


def _start_of(sentences: Sequence[str], support: object) -> int:
    """Where the last sentence that supports an answer begins in the joined text; 0 where none is named."""
    named = [int(number) for number in support if isinstance(number, Number)] if isinstance(support, list) else []
    inside = [number for number in named if number < len(sentences)]
    return len(joined(sentences[: max(inside) + 1])) - len(sentences[max(inside)]) if inside else 0


def _placed(context: str, text: str, start: int | None, looked_at: int, place: Place, places: _Places) -> Answer | None:
    """The answer where it stands; None where it does not.

    Args:
        context: The text.
        text: The answer.
        start: Where the file says it stands.
        looked_at: From where on it is looked for first, when the file does not say where it stands.
        place: Where the question stands.
        places: Where what was found out is counted.
    """
    if start is not None and context.startswith(text, start):
        return Answer(text, start)
    found = _occurrences(context, text)
    if not found:
        return None
    if start is not None:
        places.moved.add(place)
        return Answer(text, min(found, key=lambda at: (abs(at - start), at)))
    words = [at for at in found if _is_word(context, at, at + len(text))] or found
    behind = [at for at in words if at >= looked_at] or words
    if len(words) > 1 and not looked_at:
        places.several.add(place)
    return Answer(text, behind[0])


def _occurrences(context: str, text: str) -> list[int]:
    found, at = list[int](), context.find(text)
    while at >= 0:
        found.append(at)
        at = context.find(text, at + 1)
    return found


def _is_word(context: str, start: int, end: int) -> bool:
    """Whether no letter or digit of an alphabet goes on at either end; writing without spaces has no such ends."""
    sides = ((context[start - 1 : start], context[start]), (context[end : end + 1], context[end - 1]))
    return not any(_joins(outside) and _joins(inside) for outside, inside in sides)


def _joins(character: str) -> bool:
    return character.isalnum() and character < "\u0e00"  # from Thai on, most writing has no spaces


def _is_squad(rows: Rows) -> bool:
    return any(isinstance(row, Mapping) and "paragraphs" in row for _, row in rows.peeked[:1])


def _nested(rows: Rows, gathering: Gathering[Question]) -> Iterator[tuple[Place, list[object]]]:
    """The questions of SQuAD articles: article, paragraphs, questions."""
    for place, article in rows:
        paragraphs = article.get("paragraphs") if isinstance(article, Mapping) else None
        for number, paragraph in enumerate(_objects(paragraphs, "paragraphs", place, gathering)):
            inner = _inside(place, f"paragraphs[{number}]")
            for index, asked in enumerate(_objects(paragraph.get("qas"), "qas", inner, gathering)):
                none = asked.get("is_impossible") is True
                answers = [] if none else asked.get("answers", MISSING)
                known = [paragraph.get("context"), asked.get("question"), answers, MISSING, MISSING, asked.get("id")]
                yield _inside(inner, f"qas[{index}]"), known


def _objects(value: object, name: str, place: Place, gathering: Gathering[Question]) -> list[Mapping[str, object]]:
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return value
    gathering.skip(f"no list of {name}", place)
    return []


def _inside(place: Place, within: str) -> Place:
    return place._replace(within=f"{place.within}.{within}" if place.within else within)


def _no_guess(rows: Rows, first: Sequence[Row]) -> dict[str, int]:
    return {}
