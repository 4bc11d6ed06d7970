"""Positions in a text: code points, which tokenizers count, and UTF-8 bytes, which recordings store."""

from __future__ import annotations

import numpy as np

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def without_lone_surrogates(text: str) -> tuple[str, int]:
    """Make a text that UTF-8 can hold: halves of a surrogate pair that stand alone become U+FFFD.

    Python strings may hold lone surrogates (bytes of the command line that are not UTF-8, JSON escapes cut in half).
    No tokenizer, file or browser can hold them, so they are replaced and counted: the caller says so. A high half
    followed by its low half is one character and becomes it.

    Args:
        text: Any Python string.

    Returns:
        The text, and how many characters were replaced.
    """
    if not any(map(_is_surrogate, text)):
        return text, 0
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    characters = [REPLACEMENT if _is_surrogate(character) else character for character in paired]
    return "".join(characters), sum(map(_is_surrogate, paired))


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


class ByteOffsets:
    """Byte offset of every code point of one text.

        offsets = ByteOffsets("a中")
        offsets.span(1, 2)      # (1, 4)

    Args:
        text: A text without lone surrogates.

    **Cost**: eight bytes per code point.
    """

    def __init__(self, text: str) -> None:
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        width = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(width)])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The bytes of the code points [start, end)."""
        return int(self._starts[start]), int(self._starts[end])

    @property
    def total(self) -> int:
        """Length of the text in bytes."""
        return int(self._starts[-1])
