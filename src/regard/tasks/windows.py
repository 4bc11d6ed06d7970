"""A question and a long context as a model reads them: windows that overlap, whose tokens know their characters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from regard import records
from regard.tasks.matches import matches
from regard.text import Tokenized, tokenize, without_lone_surrogates
from regard.text.tokens import PAIR_SEPARATOR

_STRIDE = 2 / 3  # of a window's room, by default: an answer of up to a third of it stands whole in one
_QUESTION = 1 / 2  # the most of a window that a question takes


@dataclass(frozen=True, eq=False)
class Window:
    """A question and a part of its context.

    Args:
        row: What the model reads, by the names of its inputs.
        tokens: Which tokens of the whole passage these are.
        place: Where in the row its first token of the context stands.
        first: Which token of the context that is.
        starts: First character of every token of the context, counted in the whole context, white space left out.
        ends: The character after its last.
        none: The place in the row that stands for "there is no answer here".
    """

    row: dict[str, list[int]]
    tokens: tuple[int, ...]
    place: int
    first: int
    starts: Int64[np.ndarray, "tokens"]
    ends: Int64[np.ndarray, "tokens"]
    none: int

    @property
    def visible(self) -> Bool[np.ndarray, "tokens"]:
        """Which tokens have a character that is seen: an answer begins and ends with one of those."""
        seen: Bool[np.ndarray, "tokens"] = self.ends > self.starts
        return seen


@dataclass(frozen=True, eq=False)
class Passage:
    """A question and its whole context.

    Args:
        context: Without lone surrogates; characters are counted in it.
        windows: Together they hold every token of the context.
        read: All tokens of both.
        starts: As for ``Window``, of all tokens of the context.
        ends: As for ``Window``.
    """

    context: str
    windows: tuple[Window, ...]
    read: Tokenized
    starts: Int64[np.ndarray, "tokens"]
    ends: Int64[np.ndarray, "tokens"]

    def touching(self, start: int, end: int) -> range:
        """The tokens that hold these characters of the context, counted from its first."""
        found = np.flatnonzero((self.ends > self.starts) & (self.starts < end) & (self.ends > start))
        return range(int(found[0]), int(found[-1]) + 1) if len(found) else range(0)

    def sequence(self, window: Window) -> records.Sequence:
        """What a window holds, for a recording: the question, and below it this part of the context."""
        whole = self.read.sequence
        kept = [whole.tokens[number] for number in window.tokens]
        inside = kept[window.place : window.place + len(window.starts)]
        below = min(token.start for token in inside)
        text = whole.text.encode()
        question = text[: len(text) - len((PAIR_SEPARATOR + self.context).encode())] + PAIR_SEPARATOR.encode()
        shift = below - len(question)
        moved = [
            replace(token, start=token.start - shift, end=token.end - shift) if token.start >= below else token
            for token in kept
        ]
        part = question + text[below : max(token.end for token in inside)]
        return records.Sequence(whole.name, part.decode(), tuple(moved))


def read_passage(
    tokenizer: Any, question: str, context: str, *, max_tokens: int, stride: int | None = None, matched: bool = False
) -> Passage:
    """Read a question together with every part of its context.

    A question that would take more than half of a window loses its end.

    Args:
        tokenizer: A fast tokenizer of transformers.
        question: The question.
        context: The text with the answer.
        max_tokens: The longest window, special tokens and the question included.
        stride: Tokens of the context from the beginning of one window to that of the next, at most what a window has
            room for; the last is moved back, so that it is full. By default two thirds of that room.
        matched: The segment of a token of the context is 1 + the words that it shares with the question in a run
            (``matches``), for a model that has learned from such segments.

    Returns:
        The passage; without windows where the context has no tokens.
    """
    question, context = without_lone_surrogates(question)[0], without_lone_surrogates(context)[0]
    read = tokenize(tokenizer, question, pair=context)
    before, inside, after = _parts(read, len(question.encode()), max_tokens)
    starts, ends = _characters(read, inside, context)
    if matched:
        read = _matched(read, inside, matches(question, context, starts, ends))
    room = max(1, max_tokens - len(before) - len(after))
    step = min(room, max(1, int(_STRIDE * room)) if stride is None else stride)
    last = max(0, len(inside) - room)
    firsts = sorted({min(first, last) for first in range(0, last + step, step)}) if inside else []
    windows = []
    for first in firsts:
        part = slice(first, first + room)
        tokens = (*before, *inside[part], *after)
        row = _row(read, tokens)
        windows.append(Window(row, tokens, len(before), first, starts[part], ends[part], _none(read, tokens)))
    return Passage(context, tuple(windows), read, starts, ends)


def _parts(read: Tokenized, question_bytes: int, max_tokens: int) -> tuple[list[int], list[int], list[int]]:
    """The numbers of the tokens before those of the context, of the context, and after it."""
    tokens = read.sequence.tokens
    inside = [number for number, token in enumerate(tokens) if token.start > question_bytes]
    asked = [number for number, token in enumerate(tokens) if 0 <= token.start <= question_bytes]
    around = len(tokens) - len(inside) - len(asked)
    dropped = set(asked[max(0, int(_QUESTION * (max_tokens - around))) :])
    first = inside[0] if inside else len(tokens)
    before = [number for number in range(first) if number not in dropped]
    return before, inside, list(range(inside[-1] + 1, len(tokens))) if inside else []


def _characters(
    read: Tokenized, inside: list[int], context: str
) -> tuple[Int64[np.ndarray, "tokens"], Int64[np.ndarray, "tokens"]]:
    """First and last character of every token of the context, without the white space around it."""
    byte_of = records.TextOffsets(context).byte_of
    shift = len(read.sequence.text.encode()) - int(byte_of[-1])
    spans = np.array([(token.start, token.end) for token in map(read.sequence.tokens.__getitem__, inside)]) - shift
    spans = spans.reshape(-1, 2)
    starts = np.searchsorted(byte_of, spans[:, 0], side="right") - 1
    ends = np.where(spans[:, 1] > spans[:, 0], np.searchsorted(byte_of, spans[:, 1], side="left"), starts)
    blank = np.array([character.isspace() for character in context] + [False])
    while (led := (starts < ends) & blank[starts]).any():
        starts = starts + led
    while (trailed := (starts < ends) & blank[ends - 1]).any():
        ends = ends - trailed
    return starts, ends


def _matched(read: Tokenized, inside: list[int], found: Int64[np.ndarray, "tokens"]) -> Tokenized:
    segments = np.array(read.type_ids)
    segments[inside] = 1 + found
    return replace(read, type_ids=tuple(segments.tolist()))


def _row(read: Tokenized, tokens: tuple[int, ...]) -> dict[str, list[int]]:
    return {name: values[0, list(tokens)].tolist() for name, values in read.inputs().items()}


def _none(read: Tokenized, tokens: tuple[int, ...]) -> int:
    """The first special token, such as [CLS]; the first token of a tokenizer that has none."""
    return next((place for place, number in enumerate(tokens) if read.sequence.tokens[number].special), 0)
