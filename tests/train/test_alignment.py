"""Word alignments: Pharaoh files (case F15), links from attention, symmetrisation, and AER by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, FormatError, ShapeError
from regard.train.metrics import alignment_error_rate, grow_diag, intersection, links_of, read_pharaoh

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)


@pytest.fixture
def written(tmp_path):
    def write(text: str):
        path = tmp_path / "gold.talp"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_f15_gaps_many_to_one_and_empty_lines(written):
    gold = read_pharaoh(written("0-0 2-1\n0-0 0-1 1-1\n\n"), lengths=[(3, 2), (2, 2), (4, 0)])
    assert [pair.sure for pair in gold] == [{(0, 0), (2, 1)}, {(0, 0), (0, 1), (1, 1)}, frozenset()]
    assert all(pair.sure == pair.possible for pair in gold)


def test_f15_possible_links(written):
    (gold,) = read_pharaoh(written("0-0 1?1 2p3 2-2 2?2"))
    assert gold.sure == {(0, 0), (2, 2)}
    assert gold.possible == {(0, 0), (1, 1), (2, 3), (2, 2)}


@pytest.mark.parametrize("text", ["0-0\r\n\r\n1-1\r\n", "\ufeff0-0\n\n1-1", "0-0 \n \n\t1-1\n"])
def test_f15_line_ends_marks_and_spaces(written, text):
    assert [pair.sure for pair in read_pharaoh(written(text))] == [{(0, 0)}, set(), {(1, 1)}]


def test_f15_a_file_without_lines(written):
    assert read_pharaoh(written("")) == ()


def test_f15_a_link_beyond_its_sentence_names_file_and_line(written):
    path = written("0-0\n3-1 0-2\n")
    with pytest.raises(FormatError) as raised:
        read_pharaoh(path, lengths=[(1, 1), (3, 2)])
    assert str(raised.value) == (
        f"read_pharaoh(): {path}, line 2: 3-1 names source word 3, counted from 0, but there are 3 words; "
        "0-2 names target word 2, counted from 0, but there are 2 words."
    )
    with pytest.raises(FormatError, match="line 1: 0-0 names source word 0, counted from 0, but there are 0 words"):
        read_pharaoh(path, lengths=[(0, 1), (4, 3)])


@pytest.mark.parametrize("piece", ["0", "0-", "a-b", "-1-0", "0--1", "0-0-0", "0x0", "0–0", "٣-٤", "1.0-1"])
def test_f15_what_is_no_link_is_named(written, piece):
    path = written(f"0-0\n1-1 {piece}\n")
    with pytest.raises(FormatError) as raised:
        read_pharaoh(path)
    assert str(raised.value) == (
        f"read_pharaoh(): {path}, line 2: {piece!r} is no link (0-0 for a sure one, 0?0 or 0p0 for a possible one)."
    )


def test_f15_lines_and_sentence_pairs_must_be_as_many(written):
    path = written("0-0\n\n")
    with pytest.raises(FormatError) as raised:
        read_pharaoh(path, lengths=[(1, 1)] * 3)
    assert str(raised.value) == (
        f"read_pharaoh(): {path} must have a line for each of the 3 sentence pairs, but has 2 lines."
    )


def test_aer_by_hand():
    # |A| = 5, |S| = 3, A ∩ S = {(0,0), (1,1)}, A ∩ P = those and (2,3): AER = 1 − (2 + 3) / (5 + 3)
    score = alignment_error_rate(
        [{(0, 0), (1, 1)}, {(2, 3), (5, 5), (6, 6)}], [{(0, 0), (1, 1)}, {(0, 0)}], [set(), {(2, 3), (7, 7)}]
    )
    assert score.error_rate == pytest.approx(1 - 5 / 8)
    assert (score.precision, score.recall) == (3 / 5, 2 / 3)
    assert str(score) == "AER 0.3750 (precision 0.6000, recall 0.6667)"
    assert score.as_dict() == {"error_rate": 0.375, "precision": 0.6, "recall": 2 / 3}


def test_aer_counts_the_corpus_and_not_the_mean_of_its_sentences():
    score = alignment_error_rate(
        [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}], [{(1, 1)}, {(0, 0), (1, 1), (2, 2)}], [set()] * 2
    )
    assert score.error_rate == pytest.approx(1 - 6 / 8)


@given(LINKS, LINKS)
def test_sure_links_alone_and_with_any_of_the_possible_ones_are_perfect(sure, possible):
    for links in (sure, sure | possible):
        score = alignment_error_rate([links], [sure], [possible])
        assert (score.error_rate, score.precision, score.recall) == (0, 1, 1)


@given(LINKS, LINKS)
def test_where_all_are_sure_aer_is_one_less_f1(links, sure):
    score = alignment_error_rate([links], [sure], [sure])
    if links & sure:
        harmonic = 2 * score.precision * score.recall / (score.precision + score.recall)
        assert score.error_rate == pytest.approx(1 - harmonic)
    else:
        assert score.error_rate == (1 if links or sure else 0)


def test_aer_of_unequal_numbers_names_both():
    with pytest.raises(ShapeError, match=r"`possible` must be as many as `links` \(1\), but is 2\.$"):
        alignment_error_rate([{(0, 0)}], [{(0, 0)}], [set(), set()])
    with pytest.raises(ConfigError, match="`links` must be at least one, but is empty"):
        alignment_error_rate([], [], [])


def test_growing_by_hand():
    # In common (0,0) and (3,3). (1,0) touches (0,0) and is the first link of source 1. Of the neighbours of (3,3) come
    # (3,2), the first of target 2, and (2,3), the first of source 2; of the corner (2,2) both words then have links.
    # (0,3) touches nothing.
    forward = {(0, 0), (3, 3), (1, 0), (0, 3), (3, 2)}
    backward = {(0, 0), (3, 3), (2, 2), (2, 3)}
    assert intersection(forward, backward) == {(0, 0), (3, 3)}
    assert grow_diag(forward, backward) == {(0, 0), (3, 3), (1, 0), (3, 2), (2, 3)}
    assert grow_diag(forward - {(3, 2)}, backward) == {(0, 0), (3, 3), (1, 0), (2, 3), (2, 2)}


def by_pseudocode(forward, backward, size=6):
    """GROW-DIAG of Koehn et al. 2005, word for word, over the whole grid."""
    neighbouring = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
    alignment = forward & backward
    while True:
        before = len(alignment)
        for e in range(size):
            for f in range(size):
                if (f, e) in alignment:
                    for de, df in neighbouring:
                        e_new, f_new = e + de, f + df
                        e_aligned = any(target == e_new for _, target in alignment)
                        f_aligned = any(source == f_new for source, _ in alignment)
                        if (not e_aligned or not f_aligned) and (f_new, e_new) in forward | backward:
                            alignment = alignment | {(f_new, e_new)}
        if len(alignment) == before:
            return alignment


@given(LINKS, LINKS)
def test_growing_is_that_of_the_paper(forward, backward):
    assert grow_diag(forward, backward) == by_pseudocode(forward, backward)


@given(LINKS, LINKS)
def test_growing_stays_between_the_intersection_and_the_union(forward, backward):
    grown = grow_diag(forward, backward)
    assert intersection(forward, backward) <= grown <= forward | backward
    assert grow_diag(forward, forward) == forward


WEIGHTS = [[0.1, 0.7, 0.2], [0.3, 0.4, 0.3], [0.4, 0.0, 0.6], [0.0, 0.0, 0.0]]  # [target, source]


@pytest.mark.parametrize(
    ("method", "links"),
    [
        ("target", {(1, 0), (1, 1), (2, 2)}),
        ("source", {(0, 2), (1, 0), (2, 2)}),
        ("intersection", {(1, 0), (2, 2)}),
        ("grow_diag", {(1, 0), (2, 2), (1, 1), (0, 2)}),
    ],
)
def test_links_of_weights(method, links):
    assert links_of(WEIGHTS, method=method) == links


def test_of_equal_weights_the_first_counts():
    assert links_of([[0.5, 0.5], [0.5, 0.5]], method="target") == {(0, 0), (0, 1)}
    assert links_of([[0.5, 0.5], [0.5, 0.5]], method="source") == {(0, 0), (1, 0)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_with_a_gradient_is_an_array(dtype):
    weights = torch.tensor(WEIGHTS, dtype=dtype, requires_grad=True)
    assert links_of(weights) == links_of(np.array(WEIGHTS)) == {(1, 0), (2, 2)}


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3)])
def test_no_words_no_links(shape):
    assert links_of(np.zeros(shape)) == frozenset()


def test_weights_of_many_heads_are_refused():
    with pytest.raises(ShapeError) as raised:
        links_of(np.zeros((4, 2, 3)))
    assert str(raised.value) == (
        "links_of(): `weights` must be of shape [target words, source words], but is of shape (4, 2, 3)."
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_what_is_no_weight_is_refused(value):
    with pytest.raises(
        ConfigError, match=r"^links_of\(\): `weights` must be finite and not negative, but is not every"
    ):
        links_of([[value, 0.5]])


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_method_names_the_known_ones():
    with pytest.raises(ConfigError) as raised:
        links_of(WEIGHTS, method="union")
    assert str(raised.value) == (
        'links_of(): `method` must be "target", "source", "intersection" or "grow_diag", but is \'union\'.'
    )
