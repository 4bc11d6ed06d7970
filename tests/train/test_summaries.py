"""ROUGE is that of the published package for English, and works for Chinese."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, ShapeError
from regard.train.metrics import rouge
from regard.train.metrics.summaries import common_length

WORDS = st.lists(st.sampled_from(["the", "Cat", "sat", "猫", "坐", "3", "straße"]), min_size=2, max_size=9).map(
    " ".join
)

# Precision, recall and F1 of rouge1, rouge2 and rougeL, as rouge-score 0.1.2 gives them (use_stemmer=False).
PUBLISHED = [
    (
        "The cat was found under the bed.",
        ["The cat was under the bed."],
        [(6 / 7, 1, 12 / 13), (4 / 6, 4 / 5, 8 / 11), (6 / 7, 1, 12 / 13)],
    ),
    (  # Lin 2004, section 3: the two have the same words and pairs as "police killed the gunman", and differ in order
        "police kill the gunman",
        ["police killed the gunman"],
        [(3 / 4,) * 3, (1 / 3,) * 3, (3 / 4,) * 3],
    ),
    ("the gunman kill police", ["police killed the gunman"], [(3 / 4,) * 3, (1 / 3,) * 3, (1 / 2,) * 3]),
    (
        "The 3.5-metre tree fell; it didn't hit anyone_here!",
        ["A tree of 3.5 metres fell, and didn't hit anyone.", "Nobody was hit when the tree fell."],
        [(2 / 3,) * 3, (4 / 11,) * 3, (7 / 12,) * 3],
    ),
    ("", ["something"], [(0, 0, 0)] * 3),
    ("!!!", ["something else"], [(0, 0, 0)] * 3),
]


@pytest.mark.parametrize(("hypothesis", "references", "expected"), PUBLISHED)
def test_english_is_that_of_the_published_package(hypothesis, references, expected):
    ours = rouge([hypothesis], [references])
    for kind, numbers in zip((ours.rouge1, ours.rouge2, ours.rouge_l), expected, strict=True):
        assert (kind.precision, kind.recall, kind.f1) == pytest.approx(numbers)
        assert kind.segments == (kind.f1,)


def test_chinese_is_counted_by_character():
    # 注意力 机制 很 有用 / 注意力 很 有用: 6 of 8 and 6 of 6 characters; pairs 注意 意力 有用, and 很有
    ours = rouge(["注意力机制很有用"], ["注意力很有用。"])
    assert (ours.rouge1.precision, ours.rouge1.recall) == (6 / 8, 1)
    assert (ours.rouge2.precision, ours.rouge2.recall) == (4 / 7, 4 / 5)
    assert (ours.rouge_l.precision, ours.rouge_l.recall) == (6 / 8, 1)


def test_chinese_with_latin_words_and_full_width_letters():
    ours = rouge(["用ＰｙＴｏｒｃｈ训练"], ["用 PyTorch 训练模型"])
    assert (ours.rouge1.precision, ours.rouge1.recall) == (1, 4 / 6)


def test_letters_with_accents_are_letters():
    assert rouge(["über"], ["ber"]).rouge1.f1 == 0
    assert rouge(["Привет, мир"], ["привет мир"]).rouge2.f1 == 1


def test_the_best_reference_counts_for_each_kind():
    ours = rouge(["a b c d"], [["d c b a x", "a b"]])
    assert ours.rouge1.f1 == pytest.approx(8 / 9), "the first has all the words"
    assert ours.rouge2.f1 == pytest.approx(2 / 4), "the second has a pair"
    assert ours.rouge_l.f1 == pytest.approx(4 / 6)


def test_the_best_reference_is_that_of_the_best_f1():
    long, short = "a b c d e f g h i j k l", "a b c"
    ours = rouge(["a b c d"], [[long, short]]).rouge1
    assert (ours.precision, ours.recall, ours.f1) == (3 / 4, 1, pytest.approx(6 / 7))


def test_a_corpus_is_the_mean_of_its_segments():
    ours = rouge(["a b", "x y", ""], ["a b", "x z", "q"])
    assert ours.rouge1.segments == (1, 0.5, 0)
    assert ours.rouge1.f1 == pytest.approx(0.5)
    assert ours.rouge1.worst(2) == (2, 1)


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_a_text_against_itself_is_perfect(texts):
    ours = rouge(texts, texts)
    assert {ours.rouge1.f1, ours.rouge2.f1, ours.rouge_l.f1} == {1}


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_segments_changes_nothing(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    one, other = (rouge([a for a, _ in rows], [b for _, b in rows]) for rows in (pairs, shuffled))
    for kind in ("rouge1", "rouge2", "rouge_l"):
        assert getattr(one, kind).f1 == pytest.approx(getattr(other, kind).f1, abs=1e-15)


@given(WORDS, WORDS)
def test_exchanging_the_sides_exchanges_precision_and_recall(first, second):
    one, other = rouge([first], [second]), rouge([second], [first])
    for kind in ("rouge1", "rouge2", "rouge_l"):
        assert getattr(one, kind).precision == getattr(other, kind).recall


def by_table(first, second):
    """Length of the longest common subsequence, by the textbook's table."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.text("abc", max_size=90), st.text("abcd", max_size=90))
def test_the_longest_common_subsequence_is_the_textbooks(first, second):
    assert common_length(list(first), list(second)) == by_table(first, second)


def test_results_can_be_written_and_read():
    ours = rouge(["the cat sat"], ["the cat"])
    written = json.loads(json.dumps(ours.as_dict()))
    assert written["rouge_l"] == {"segments": [0.8], "precision": 2 / 3, "recall": 1.0, "f1": 0.8}
    assert str(ours).splitlines()[2] == "ROUGE-L  F1 0.8000 (precision 0.6667, recall 1.0000)"


def test_unequal_numbers_name_both():
    with pytest.raises(ShapeError, match=r"^rouge\(\): `references` must be as many as `hypotheses` \(1\), but is 2\."):
        rouge(["a"], ["a", "b"])


def test_a_segment_needs_a_reference():
    with pytest.raises(ConfigError, match=r"^rouge\(\): `references\[0\]` must be at least one text, but is empty\.$"):
        rouge(["a"], [[]])
