"""What is counted as a word: runs of letters and digits, and every character of scripts written without spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import regex  # type: ignore[import-untyped]

UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
"""A character of a script that puts no spaces between words, as a pattern of ``regex``."""

_WORD = regex.compile(rf"{UNSPACED}\p{{M}}*|(?:(?!{UNSPACED})[\p{{L}}\p{{M}}\p{{N}}])+")
_HAN = regex.compile(r"\p{Han}")


def words_of(text: str) -> list[str]:
    """The words of a text, lower-cased: runs of letters and digits; single characters of Chinese and the like.

    Everything else (spaces, punctuation, signs) only separates. Full-width letters and digits count as the ordinary
    ones (NFKC). For English this is what the package ``rouge-score`` does; unlike there, letters with accents and other
    alphabets are letters.

    >>> words_of("Don't panic: 注意力 is all，ＯＫ？")
    ['don', 't', 'panic', '注', '意', '力', 'is', 'all', 'ok']

    Args:
        text: Any text.
    """
    return list(_WORD.findall(unicodedata.normalize("NFKC", text).lower()))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand, as it is written: (start, end) in code points.

    Args:
        text: Any text.
    """
    return [found.span() for found in _WORD.finditer(text)]


def mostly_han(texts: Iterable[str]) -> bool:
    """Whether more than half of the words of some texts are Chinese characters.

    A Latin word counts once, however long it is: a Chinese text stays Chinese with many names of functions in it.

    Args:
        texts: Taken together.
    """
    han = all_words = 0
    for text in texts:
        words = words_of(text)
        all_words += len(words)
        han += sum(_HAN.match(word) is not None for word in words)
    return 2 * han > all_words
