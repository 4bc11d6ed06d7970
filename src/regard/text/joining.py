"""Putting parts of a text together as its writing does: with a space, or in Chinese and Japanese without one."""

from __future__ import annotations

from collections.abc import Iterable

import regex  # type: ignore[import-untyped]

_NO_SPACE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{East_Asian_Width=Wide}\p{East_Asian_Width=Fullwidth}]")


def joined(parts: Iterable[str]) -> str:
    """The parts as one text.

    Between two parts stands a space, unless one of them has one there, or both meet in wide characters.

    Args:
        parts: Sentences, or other parts of a text.
    """
    text = ""
    for part in parts:
        wide = text and part and _NO_SPACE.match(text[-1]) and _NO_SPACE.match(part[0])
        spaced = not text or not part or text[-1].isspace() or part[0].isspace()
        text += part if wide or spaced else f" {part}"
    return text
