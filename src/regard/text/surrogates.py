"""Lone surrogates: characters that a Python string can hold and UTF-8 cannot."""

from __future__ import annotations

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
