"""The levels at which a text is read: characters, words, sentences, each with the tokens that hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import regex  # type: ignore[import-untyped]

from regard import records
from regard.errors import ConfigError, message, must_be
from regard.text.segments import sentences, split_words

Level = Literal["character", "word", "sentence", "text"]


@dataclass(frozen=True)
class TextSpan:
    """A stretch of a text.

    Args:
        text: What it says, with the white space that stands before or after it: all spans joined are the text.
        tokens: The tokens that hold it, for the arithmetic of ``SpanMass`` and ``between_groups``; none where the
            tokenizer dropped it.
    """

    text: str
    tokens: range

    @property
    def label(self) -> str:
        """What it says, without white space around it."""
        return self.text.strip()


_CUT: dict[Level, Callable[[str], Iterable[str]]] = {
    "character": lambda text: regex.findall(r"\X", text),
    "word": split_words,
    "sentence": sentences,
    "text": lambda text: [text],
}


def spans_of(sequence: records.Sequence, level: Level = "word") -> tuple[TextSpan, ...]:
    """A text as stretches of one level.

    A token belongs to the stretch that it holds bytes of. Where it holds bytes of two (two short words, the middle of
    中 between two pieces), the two are one stretch; so tokens are never counted twice and never split. White space
    stands before a word; where a token holds it with the end of the word before, it goes by the token. White space that
    no token holds goes to the stretch behind it, or before it at the end; other text that no token holds (the model did
    not read it) is a stretch without tokens.

    Args:
        sequence: A text and its tokens, with the bytes they came from. Special tokens belong to no stretch.
        level: "character" (what a reader takes for one: a grapheme cluster), "word" (``split_words``: in Chinese one
            character), "sentence" (``sentences``), or "text" for all of it.

    Returns:
        Stretches in order; joined, they are the text.

    Raises:
        ConfigError: There is no such level.

    Example:
        >>> from regard.records import Sequence, Token
        >>> from regard.text import spans_of
        >>> tokens = (Token("[CLS]", -1, -1, special=True), Token("the", 0, 3), Token("bank", 4, 8))
        >>> for span in spans_of(Sequence("input", "the bank", tokens)):
        ...     print(span.label, span.tokens.start, span.tokens.stop)
        the 1 2
        bank 2 3
    """
    if level not in _CUT:
        expected = ", ".join(f'"{name}"' for name in _CUT)
        raise ConfigError(message("spans_of", must_be("level", f"one of {expected}", repr(level))))
    holding = _Holding(sequence)
    found: list[TextSpan] = []
    waiting, end = "", 0
    for piece in _CUT[level](sequence.text):
        begin, end = end, end + len(piece.encode("utf-8", "surrogatepass"))
        inner = begin + len(piece[: len(piece) - len(piece.lstrip())].encode("utf-8", "surrogatepass"))
        tokens, taken = holding.between(begin, end), found[-1].tokens.stop if found else 0
        if tokens and tokens.start < taken and (inner == end or holding.between(inner, end).start >= taken):
            tokens = range(taken, max(tokens.stop, taken))  # all that the two have in common is white space
        waiting += piece
        if not tokens and not piece.strip():
            continue
        if tokens and found and tokens.start < found[-1].tokens.stop:
            found[-1] = TextSpan(found[-1].text + waiting, range(found[-1].tokens.start, tokens.stop))
        else:
            found.append(TextSpan(waiting, tokens))
        waiting = ""
    if waiting and found:
        found[-1] = TextSpan(found[-1].text + waiting, found[-1].tokens)
    elif waiting:
        found.append(TextSpan(waiting, range(0)))
    return tuple(found)


def find_span(sequence: records.Sequence, wanted: str) -> TextSpan:
    """The stretch of a text that says just this: a document, a question, an instruction.

    Args:
        sequence: A text and its tokens.
        wanted: What it says; it must be in the text once.

    Raises:
        ConfigError: It is not in the text, or more than once, or no token holds it.
    """
    times = sequence.text.count(wanted) if wanted else 0
    if times != 1:
        shown = wanted if len(wanted) <= _SHOWN else f"{wanted[:_SHOWN]}…"
        expected = "in the text exactly once"
        raise ConfigError(message("find_span", must_be("wanted", expected, f"{times} times in it: {shown!r}")))
    before = sequence.text[: sequence.text.index(wanted)]
    begin = len(before.encode("utf-8", "surrogatepass"))
    tokens = _Holding(sequence).between(begin, begin + len(wanted.encode("utf-8", "surrogatepass")))
    if not tokens:
        raise ConfigError(
            message("find_span", f"no token holds {wanted[:_SHOWN]!r}: it was cut off, or is white space.")
        )
    return TextSpan(wanted, tokens)


_SHOWN = 60


class _Holding:
    """Which tokens hold which bytes."""

    def __init__(self, sequence: records.Sequence) -> None:
        known = [number for number, token in enumerate(sequence.tokens) if token.start >= 0]
        self._numbers = np.array(known, dtype=np.int64)
        self._starts = np.array([sequence.tokens[number].start for number in known], dtype=np.int64)
        self._ends = np.array([sequence.tokens[number].end for number in known], dtype=np.int64)
        # ends that never fall, so that both can be searched: a token within another ends before it
        self._reached = np.maximum.accumulate(self._ends) if known else self._ends

    def between(self, begin: int, end: int) -> range:
        """The tokens that hold some of these bytes, from the first to the last."""
        first = int(np.searchsorted(self._reached, begin, side="right"))
        last = int(np.searchsorted(self._starts, end, side="left"))
        inside = [at for at in range(first, last) if self._ends[at] > begin]
        return range(int(self._numbers[inside[0]]), int(self._numbers[inside[-1]]) + 1) if inside else range(0)


def token_ranges(spans: Sequence[TextSpan]) -> list[tuple[int, int]]:
    """Spans as pairs (start, stop) of tokens, as ``SpanMass`` takes them.

    Args:
        spans: Stretches of a text.
    """
    return [(span.tokens.start, span.tokens.stop) for span in spans]
