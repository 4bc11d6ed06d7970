"""Tokens that came as strings."""

from __future__ import annotations

from collections.abc import Sequence as Many

from regard.records import Sequence, Token


def spelled(tokens: Many[str], name: str = "input") -> Sequence:
    """Tokens without a text: the text is the tokens with spaces between; half of a surrogate pair stays as it is."""
    # the two halves of one character, as JSON escapes leave them, become that character
    tokens = [token.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") for token in tokens]
    found, place = [], 0
    for token in tokens:
        size = len(token.encode("utf-8", "surrogatepass"))
        found.append(Token(token, place, place + size))
        place += size + 1
    return Sequence(name, " ".join(tokens), tuple(found))
