"""Bytes, characters, clusters and groups; cases C15, C18 and C19."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ShapeError
from regard.records import Sequence, TextOffsets, Token, between_groups, group_pieces, settle_markers
from regard.records.spans import cluster_starts

FAMILY = "👨‍👩‍👧"  # five code points: man, joiner, woman, joiner, girl

MIXED = st.lists(
    st.one_of(
        st.sampled_from(
            ["中", "👍🏽", FAMILY, "🇩🇪", "e\u0301", "\u1112\u1161\u11ab", "\r\n", "क्षि", "1️⃣", " ", "a", "ا"]
        ),
        st.characters(),
    ),
    max_size=12,
).map("".join)


def pieces(text: str, cuts: list[int]) -> Sequence:
    """Tokens that tile the bytes of a text."""
    size = len(text.encode("utf-8", "surrogatepass"))
    edges = [0, *sorted({cut % (size + 1) for cut in cuts}), size]
    return Sequence("input", text, tuple(Token("?", a, b) for a, b in pairwise(edges)))


@pytest.mark.parametrize(
    "cluster",
    [
        "中",
        "👍",
        "👍🏽",
        FAMILY,
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "e\u0301",
        "\u1112\u1161\u11ab",
        "각",
        "क्षि",
        "1️⃣",
        "\r\n",
        "🏳️‍🌈",
        "🧑🏽‍🚀",
    ],
)
def test_one_cluster(cluster):
    assert cluster_starts(f"a{cluster}b").tolist() == [0, 1, 1 + len(cluster), 2 + len(cluster)]


def test_two_flags_are_two():
    assert cluster_starts("🇩🇪🇫🇷").tolist() == [0, 2, 4]


def test_c18_byte_pieces_of_one_character():
    text = "中👍" + FAMILY + "e\u0301"
    tokens = tuple(Token("?", i, i + 1) for i in range(len(text.encode())))
    groups = group_pieces(Sequence("input", text, tokens))
    assert [len(group.pieces) for group in groups] == [3, 4, 18, 3]
    assert [text[group.start : group.end] for group in groups] == ["中", "👍", FAMILY, "e\u0301"]
    assert groups[0].pieces == (0, 1, 2)
    offsets = TextOffsets(text)
    assert offsets.utf16((groups[2].start, groups[2].end)) == (3, 11)  # eight units, as JavaScript counts
    assert [offsets.characters((i, i + 1)) for i in range(4)] == [(0, 1), (0, 1), (0, 1), (1, 2)]


def test_c18_pieces_that_all_claim_the_character():
    tokens = tuple(Token("?", 0, 3) for _ in range(3))
    assert [group.pieces for group in group_pieces(Sequence("input", "中", tokens))] == [(0, 1, 2)]


def test_c19_the_marker_gives_the_character_back():
    assert settle_markers([(0, 1), (0, 2)]) == [(0, 0), (0, 2)]
    assert settle_markers([(0, 1), (0, 1), (1, 2)]) == [(0, 1), (0, 1), (1, 2)]
    assert settle_markers([(-1, -1), (-1, -1), (0, 3)]) == [(-1, -1), (-1, -1), (0, 3)]
    tokens = (Token("▁", 0, 0), Token("中文", 0, 6))
    groups = group_pieces(Sequence("input", "中文", tokens))
    assert [(group.pieces, group.start, group.end) for group in groups] == [((0,), 0, 0), ((1,), 0, 2)]


def test_groups_with_gaps_and_specials():
    tokens = (Token("[CLS]", -1, -1, True), Token("a", 0, 1), Token("b", 2, 3), Token("[SEP]", -1, -1, True))
    groups = group_pieces(Sequence("input", "a b", tokens))
    assert [(group.pieces, group.start, group.end) for group in groups] == [
        ((0,), -1, -1), ((1,), 0, 1), ((2,), 2, 3), ((3,), -1, -1),
    ]  # fmt: skip
    assert [group.pieces for group in group_pieces(Sequence("input", "", tokens))] == [(0,), (1,), (2,), (3,)]


def test_a_piece_that_ends_within_a_cluster_joins_what_follows():
    text = "e\u0301x."
    groups = group_pieces(Sequence("input", text, (Token("e", 0, 1), Token("́x", 1, 4), Token(".", 4, 5))))
    assert [text[group.start : group.end] for group in groups] == ["e\u0301x", "."]


def test_an_empty_piece_within_a_character_belongs_to_it():
    for at in (1, 2):
        tokens = (Token("?", 0, at), Token("", at, at), Token("?", at, 3))
        assert [group.pieces for group in group_pieces(Sequence("input", "中", tokens))] == [(0, 1, 2)]
    tokens = (Token("e", 0, 1), Token("", 1, 1), Token("́", 1, 3))
    assert [group.pieces for group in group_pieces(Sequence("input", "e\u0301", tokens))] == [(0, 1, 2)]


@given(text=MIXED, cuts=st.lists(st.integers(0, 200), max_size=30))
@settings(deadline=None)
def test_groups_give_back_the_text(text, cuts):
    sequence = pieces(text, cuts)
    groups = group_pieces(sequence)
    shown = [group for group in groups if group.start >= 0]
    assert "".join(text[group.start : group.end] for group in shown) == text
    assert [piece for group in groups for piece in group.pieces] == list(range(len(sequence.tokens)))
    starts = set(cluster_starts(text).tolist())
    assert all({group.start, group.end} <= starts for group in shown if group.start < group.end)


@given(text=MIXED)
@settings(deadline=None)
def test_offsets_agree_with_python(text):
    offsets = TextOffsets(text)
    for i in range(len(text) + 1):
        before = text[:i]
        assert offsets.byte_of[i] == len(before.encode("utf-8", "surrogatepass"))
        assert offsets.utf16_of[i] == len(before.encode("utf-16-le", "surrogatepass")) // 2


def test_c15_sum_over_keys_mean_over_queries():
    weights = np.array([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    words = between_groups(weights, [[0, 1], [2]], [[0, 1], [2]])
    np.testing.assert_allclose(words, [[0.7, 0.3], [0.4, 0.6]], atol=1e-12)
    np.testing.assert_allclose(words.sum(-1), 1, atol=1e-12)


@given(
    q=st.integers(1, 6),
    k=st.integers(1, 6),
    seed=st.integers(0, 99),
    cut=st.integers(0, 5),
    dtype=st.sampled_from(["f4", "f8"]),
)
@settings(deadline=None)
def test_between_groups_keeps_the_mass(q, k, seed, cut, dtype):
    weights = np.random.default_rng(seed).random((2, q, k)).astype(dtype)
    rows = [list(range(min(cut, q - 1) + 1)), list(range(min(cut, q - 1) + 1, q))]
    rows = [row for row in rows if row]
    columns = [list(range(min(cut, k))), list(range(min(cut, k), k))]
    result = between_groups(weights, rows, columns)
    assert result.dtype == np.float64
    for b in range(2):
        for a, row in enumerate(rows):
            for c, column in enumerate(columns):
                expected = sum(float(weights[b, i, j]) for i in row for j in column) / len(row)
                assert result[b, a, c] == pytest.approx(expected, abs=1e-14)


def test_between_groups_refuses():
    weights = np.ones((2, 2))
    with pytest.raises(ShapeError, match="group 1 is empty"):
        between_groups(weights, [[0], []], [[0]])
    with pytest.raises(ShapeError, match=r"key_groups.*0 to 1.*\[2\] in group 0"):
        between_groups(weights, [[0]], [[2]])
