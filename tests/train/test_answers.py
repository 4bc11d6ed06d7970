"""Answers are compared as the scripts of SQuAD and CMRC 2018 compare them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, ShapeError
from regard.train.metrics import exact_match_and_f1

ANSWERS = st.lists(st.sampled_from(["river", "Bank", "3.5", "河", "边", "猫", "of"]), min_size=1, max_size=5).map(
    " ".join
)


def one(prediction, *golds, scheme="auto"):
    scored = exact_match_and_f1([prediction], [list(golds)], scheme=scheme)
    return scored.exact_match, scored.f1


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "f1"),
    [
        ("the Norman", "Norman!", 1, 1),
        ("An answer, A question", "answer question", 1, 1),
        ("theatre", "atre", 0, 0),  # "the" is an article only as a word
        ("Saint Bernadette Soubirous", "Bernadette", 0, 2 * (1 / 3) / (4 / 3)),
        ("bank river", "river bank", 0, 1),  # a bag of words
        ("the the cat cat", "cat", 0, 2 / 3),  # a word counts as often as the gold has it
        ("10–12", "1012", 0, 0),  # only ASCII punctuation is dropped
        ("10-12", "1012", 1, 1),
        ("Die Straße", "die straße", 1, 1),
    ],
)
def test_english_is_squads(prediction, gold, exact, f1):
    assert one(prediction, gold) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "f1"),
    [
        ("《战国无双3》", "战国无双3", 1, 1),
        ("光荣和ω-force", "光荣和ω-force。", 1, 1),
        ("在河边的银行", "河边的银行", 0, 10 / 11),
        ("银行在河边", "河边银行", 0, 2 * 2 / 9),  # the longest run in common has two characters, not four in a bag
        ("R-S-R", "RSR", 1, 1),  # the hyphen goes, and the letters grow together, as in CMRC's script
        ("1990年", "1990", 0, 2 / 3),  # a number is one word
        ("3.5米", "35米", 0, 1 / 2),  # the point of a number stays
        ("80%", "80", 0, 2 / 3),  # per cent is a word
        ("(上海)", "上海", 1, 1),
        ("马约门广场 。", "马约门广场", 1, 1),
    ],
)
def test_chinese_is_cmrcs(prediction, gold, exact, f1):
    assert one(prediction, gold, scheme="cmrc") == (exact, pytest.approx(f1))


def test_the_best_of_several_answers_counts():
    assert one("in the year 1990", "1990", "year 1990", "of 1990") == (0, pytest.approx(4 / 5))
    assert one("河边", "银行", "河边") == (1, 1)


@pytest.mark.parametrize("scheme", ["squad", "cmrc"])
@pytest.mark.parametrize("prediction", ["", "  ", "-", "***"])
@pytest.mark.parametrize("golds", [[], [""], ["", "  "], ["-"]])
def test_no_answer_where_there_is_none_is_right(scheme, prediction, golds):
    assert one(prediction, *golds, scheme=scheme) == (1, 1)


@pytest.mark.parametrize("scheme", ["squad", "cmrc"])
def test_no_answer_and_an_answer_are_never_alike(scheme):
    assert one("something", scheme=scheme) == (0, 0)
    assert one("", "something", scheme=scheme) == (0, 0)
    assert one("", "something", "", scheme=scheme) == (0, 0), "an empty gold beside a real one does not count"


def test_the_parts_with_and_without_an_answer():
    scored = exact_match_and_f1(["cat", "dog", "", "bird"], [["cat"], ["big dog"], [], []])
    assert (scored.exact_match, scored.f1) == (0.5, pytest.approx((1 + 2 / 3 + 1) / 4))
    assert scored.answerable is not None
    assert scored.unanswerable is not None
    assert (scored.answerable.count, scored.answerable.exact_match) == (2, 0.5)
    assert scored.answerable.f1 == pytest.approx(5 / 6)
    assert (scored.unanswerable.count, scored.unanswerable.exact_match, scored.unanswerable.f1) == (2, 0.5, 0.5)
    assert scored.exact == (True, False, True, False)
    assert scored.worst(1) == (3,)


def test_the_golds_decide_about_the_scheme():
    assert exact_match_and_f1(["cat"], [["猫"]]).scheme == "cmrc"
    assert exact_match_and_f1(["猫"], [["cat"]]).scheme == "squad"
    assert exact_match_and_f1(["1990年", "猫"], [["1990"], ["一只猫"]]).segments == pytest.approx((2 / 3, 1 / 2))


@pytest.mark.parametrize("scheme", ["squad", "cmrc"])
@given(st.lists(ANSWERS, min_size=1, max_size=5))
def test_an_answer_against_itself_is_perfect(scheme, answers):
    scored = exact_match_and_f1(answers, [["another one", answer] for answer in answers], scheme=scheme)
    assert (scored.exact_match, scored.f1) == (1, 1)
    assert scored.unanswerable is None


@pytest.mark.parametrize("scheme", ["squad", "cmrc"])
@given(st.lists(st.tuples(ANSWERS, ANSWERS), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_questions_changes_nothing(scheme, pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    first, second = (
        exact_match_and_f1([a for a, _ in rows], [[b] for _, b in rows], scheme=scheme) for rows in (pairs, shuffled)
    )
    assert first.f1 == pytest.approx(second.f1, abs=1e-15)
    assert first.exact_match == second.exact_match


def test_results_can_be_written_and_read():
    scored = exact_match_and_f1(["cat", ""], [["a cat"], []])
    written = json.loads(json.dumps(scored.as_dict()))
    assert written["scheme"] == "squad"
    assert written["answerable"] == {"count": 1, "exact_match": 1.0, "f1": 1.0}
    assert str(scored).splitlines() == [
        "exact match 1.0000, F1 1.0000 (2 questions), compared as SQUAD",
        "  with an answer     exact match 1.0000, F1 1.0000 (1 questions)",
        "  without an answer  exact match 1.0000, F1 1.0000 (1 questions)",
    ]
    assert exact_match_and_f1(["cat"], [["cat"]]).as_dict()["unanswerable"] is None


def test_unequal_numbers_name_both():
    with pytest.raises(ShapeError) as raised:
        exact_match_and_f1(["a", "b"], [["a"]])
    assert str(raised.value) == "exact_match_and_f1(): `golds` must be as many as `predictions` (2), but is 1."


def test_a_text_instead_of_a_list_of_answers_is_refused():
    with pytest.raises(ConfigError, match=r"`golds\[1\]` must be a list of texts, but is one text\."):
        exact_match_and_f1(["a", "b"], [["a"], "bcd"])


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(ConfigError) as raised:
        exact_match_and_f1(["a"], [["a"]], scheme="zh")
    assert str(raised.value) == 'exact_match_and_f1(): `scheme` must be "auto", "squad" or "cmrc", but is \'zh\'.'


def test_no_questions():
    with pytest.raises(ConfigError, match="`predictions` must be at least one, but is empty"):
        exact_match_and_f1([], [])
