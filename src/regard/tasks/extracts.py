"""A document as a model reads it that weighs sentences: whole sentences, as many as it reads at once."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard import records
from regard.hf.losses import IGNORED
from regard.text import joined, sentences, tokenize, without_lone_surrogates

NUMBERED = 16  # sentences that a model may tell by their number; the last stands for all that follow


@dataclass(frozen=True)
class Stretch:
    """Some sentences of a document, one after another.

    Args:
        row: What the model reads, by the names of its inputs.
        parts: For every token the number of its sentence, counted from ``first``; −100 for a special token.
        first: Which sentence of the document is the first.
        count: How many there are.
        sequence: What it holds, for a recording.
    """

    row: dict[str, list[int]]
    parts: list[int]
    first: int
    count: int
    sequence: records.Sequence


@dataclass(frozen=True)
class Sentences:
    """A document in sentences.

    Args:
        text: The whole of it, without lone surrogates.
        starts: First character of every sentence.
        listed: The sentences, without the white space around them.
    """

    text: str
    starts: tuple[int, ...]
    listed: tuple[str, ...]

    @classmethod
    def of(cls, given: str | Sequence[str]) -> Sentences:
        """Find the sentences of a text; or take those of a list, and the text that they are together.

        Args:
            given: A text, or its sentences.
        """
        found = sentences(without_lone_surrogates(given)[0]) if isinstance(given, str) else _clean(given)
        text = "".join(found) if isinstance(given, str) else joined(found)
        starts, listed, reached = list[int](), list[str](), 0
        for one in found:
            if words := one.strip():
                starts.append(text.index(words, reached))
                listed.append(words)
                reached = starts[-1] + len(words)
        return cls(text, tuple(starts), tuple(listed))


def stretches(tokenizer: Any, document: Sentences, *, max_tokens: int, numbered: bool) -> list[Stretch]:
    """Cut a document into stretches that a model reads at once, each with as many whole sentences as there is room for.

    A sentence that is longer than a stretch loses its end.

    Args:
        tokenizer: A fast tokenizer of transformers.
        document: The document.
        max_tokens: The longest stretch, special tokens included.
        numbered: The segment of a token is the number of its sentence in the document, for a model that has learned
            from such segments.

    Returns:
        The stretches; none for a document without sentences.
    """
    count = len(document.listed)
    if not count:
        return []
    whole = _stretch(tokenizer, document, 0, count, numbered=numbered)
    if len(whole.parts) <= max_tokens:
        return [whole]
    lengths = Counter(whole.parts)
    found, first = list[Stretch](), 0
    while first < count:
        last, length = first + 1, lengths[IGNORED] + lengths[first]
        while last < count and length + lengths[last] <= max_tokens:
            length += lengths[last]
            last += 1
        found.append(_cut(_stretch(tokenizer, document, first, last, numbered=numbered), max_tokens))
        first = last
    return found


def _stretch(tokenizer: Any, document: Sentences, first: int, last: int, *, numbered: bool) -> Stretch:
    """The sentences from ``first`` to before ``last``."""
    begin, end = document.starts[first], document.starts[last - 1] + len(document.listed[last - 1])
    text = document.text[begin:end]
    read = tokenize(tokenizer, text, name="document")
    byte_of = records.TextOffsets(text).byte_of
    starts = [int(byte_of[start - begin]) for start in document.starts[first:last]]
    # The last byte decides: a token may begin with the space that is before its sentence.
    parts = [
        IGNORED if token.special else max(0, bisect_right(starts, max(token.end - 1, token.start)) - 1)
        for token in read.sequence.tokens
    ]
    row = {name: values[0].tolist() for name, values in read.inputs().items()}
    if numbered:
        row["token_type_ids"] = [0 if part == IGNORED else min(first + part, NUMBERED - 1) for part in parts]
    return Stretch(row, parts, first, last - first, read.sequence)


def _cut(stretch: Stretch, max_tokens: int) -> Stretch:
    """A stretch without what is too long; the special tokens at its end are kept."""
    over = len(stretch.parts) - max_tokens
    if over <= 0:
        return stretch
    behind = next(number for number, part in enumerate(reversed(stretch.parts)) if part != IGNORED)
    end = len(stretch.parts) - behind
    kept = [*range(max(0, end - over)), *range(end, len(stretch.parts))]
    tokens = tuple(stretch.sequence.tokens[number] for number in kept)
    row = {name: [ids[number] for number in kept] for name, ids in stretch.row.items()}
    parts = [stretch.parts[number] for number in kept]
    return replace(stretch, row=row, parts=parts, sequence=replace(stretch.sequence, tokens=tokens))


def _clean(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(without_lone_surrogates(one)[0] for one in given)
