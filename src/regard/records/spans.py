"""From pieces to what a person reads: bytes → characters → grapheme clusters, and weights between groups of pieces.

Tokens carry byte offsets, so the arithmetic is exact even where a token is one third of a character. A grapheme
cluster is what a reader takes for one character, as UAX #29 defines it and ``regex`` implements it: a family emoji is
one, of up to seven code points.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import regex  # type: ignore[import-untyped]
from jaxtyping import Float, Float64, Int, Int64

from regard.errors import ShapeError, message, must_be
from regard.records.recording import Sequence, Token

Span = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Pieces that are read as one: they share at least one visible character.

    Args:
        pieces: Numbers of the tokens, one after another.
        start: First character (code point) of the clusters they touch; −1 where they have no text.
        end: The character after the last.
    """

    pieces: tuple[int, ...]
    start: int
    end: int


class TextOffsets:
    """Offsets into one text in every unit in use: bytes (UTF-8), characters (code points), UTF-16 units, clusters.

        offsets = TextOffsets("a中")
        offsets.characters((1, 2))     # bytes 1 to 2 lie within character 1: (1, 2)

    Cost:
        24 bytes per character.
    """

    def __init__(self, text: str) -> None:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        widths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
        self.byte_of: Int64[np.ndarray, "characters_and_end"] = _running(widths)
        self.utf16_of: Int64[np.ndarray, "characters_and_end"] = _running(1 + (codes >= 0x10000).astype(np.int64))
        self.cluster_starts: Int64[np.ndarray, "clusters_and_end"] = cluster_starts(text)

    def characters(self, span: Span) -> Span:
        """The characters that a span of bytes touches; an empty span lies before the character that holds it."""
        start, end = span
        first = int(np.searchsorted(self.byte_of, start, side="right")) - 1
        return first, first if end <= start else int(np.searchsorted(self.byte_of, end, side="left"))

    def clusters(self, span: Span) -> Span:
        """The characters of every grapheme cluster that a span of characters touches."""
        start, end = span
        first = int(np.searchsorted(self.cluster_starts, start, side="right")) - 1
        last = int(np.searchsorted(self.cluster_starts, max(end, start), side="left"))
        return int(self.cluster_starts[first]), int(self.cluster_starts[last])

    def utf16(self, span: Span) -> Span:
        """A span of characters in UTF-16 units, which is how JavaScript counts."""
        return int(self.utf16_of[span[0]]), int(self.utf16_of[span[1]])


def cluster_starts(text: str) -> Int64[np.ndarray, "clusters_and_end"]:
    """First character of every grapheme cluster, and the length of the text."""
    starts = [match.start() for match in regex.finditer(r"\X", text)]
    return np.array([*starts, len(text)], dtype=np.int64)


def group_pieces(sequence: Sequence, offsets: TextOffsets | None = None) -> tuple[Group, ...]:
    """Put neighbouring tokens together that share a visible character.

    Three byte-level pieces of 中 become one group; so do an "e" and the accent that follows it. Where tokens cover the
    text without gaps, the texts of the groups, one after another, are the text.

    Args:
        sequence: Tokens with byte offsets.
        offsets: The offsets of its text, where they are at hand already.

    Returns:
        Groups in order; every token is in exactly one. Tokens without text, and tokens of width 0 that lie between
        characters (the marker before a word), are groups of their own.
    """
    if not sequence.text:
        return tuple(Group((number,), -1, -1) for number in range(len(sequence.tokens)))
    offsets = offsets or TextOffsets(sequence.text)
    groups: list[Group] = []
    for number, token in enumerate(sequence.tokens):
        start, end = _cluster_span(token, offsets)
        before = groups[-1] if groups else None
        if before is not None and start >= 0 and before.start < end and start < before.end:
            pieces = (*before.pieces, number)
            groups[-1] = Group(pieces, min(before.start, start), max(before.end, end))
        else:
            groups.append(Group((number,), start, end))
    return tuple(groups)


def _cluster_span(token: Token, offsets: TextOffsets) -> Span:
    """The characters of the clusters a token touches: (-1, -1) without text, empty at a width of 0 between clusters."""
    if token.start < 0:
        return -1, -1
    start, end = offsets.characters((token.start, token.end))
    if start == end:
        within = offsets.clusters((start, start))
        inside_character = int(offsets.byte_of[start]) < token.start
        return (
            offsets.clusters((start, start + 1)) if inside_character or within[0] < start < within[1] else (start, end)
        )
    return offsets.clusters((start, end))


def settle_markers(spans: Items[Span]) -> list[Span]:
    """Take from a marker the character that belongs to the word after it.

    Tokenizers that write a space as a marker may report marker (0, 1) and word (0, 2) where the text has no space:
    the marker claims the word's first character. A span that begins where the next, longer one begins gets width 0.
    Equal spans stay: they are pieces of one character.
    """
    settled = list(spans)
    for at, (span, after) in enumerate(pairwise(spans)):
        if span[0] == after[0] and span[1] < after[1] and span[0] >= 0:
            settled[at] = (span[0], span[0])
    return settled


def between_groups(
    weights: Float[np.ndarray, "*batch q k"],
    query_groups: Items[Items[int]],
    key_groups: Items[Items[int]],
) -> Float64[np.ndarray, "*batch query_groups key_groups"]:
    """Attention between groups of pieces: the sum over key pieces, the mean over query pieces.

        W[a, b] = mean over i in a of (sum over j in b of w[i, j])

    Summing over keys keeps every row a distribution; a mean over both would not.

    Args:
        weights: Attention weights.
        query_groups: For each group, which rows belong to it; none may be empty.
        key_groups: For each group, which columns belong to it.

    Returns:
        One row per query group, one column per key group, in float64.

    Raises:
        ShapeError: A group is empty, or names a row or column that is not there.
    """
    for axis, groups in ((-2, query_groups), (-1, key_groups)):
        _check_groups(
            "query_groups" if axis == -2 else "key_groups", groups, weights.shape[axis], may_be_empty=axis == -1
        )
    wide = weights.astype(np.float64)
    columns = [wide[..., _index(group)].sum(-1) for group in key_groups]
    by_key = np.stack(columns, -1) if columns else np.zeros((*wide.shape[:-1], 0))
    rows = [by_key[..., _index(group), :].mean(-2) for group in query_groups]
    return np.stack(rows, -2) if rows else np.zeros((*by_key.shape[:-2], 0, by_key.shape[-1]))


def _check_groups(argument: str, groups: Items[Items[int]], length: int, *, may_be_empty: bool) -> None:
    for number, group in enumerate(groups):
        if not may_be_empty and not len(group):
            raise ShapeError(
                message("between_groups", f"`{argument}` must hold pieces in every group, but group {number} is empty.")
            )
        if any(not 0 <= piece < length for piece in group):
            expected = f"numbers from 0 to {length - 1} in every group"
            raise ShapeError(message("between_groups", must_be(argument, expected, f"{list(group)} in group {number}")))


def _index(group: Items[int]) -> Int[np.ndarray, "pieces"]:
    return np.asarray(group, dtype=np.intp)


def _running(widths: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n_and_end"]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(widths, dtype=np.int64)])
