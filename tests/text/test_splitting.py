from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError
from regard.text import Examples, Labelled, Place, TextPair, linked, overlap, same_input, split


def examples(items):
    items = tuple(items)
    return Examples(items, tuple(Place("a.tsv", i + 1) for i in range(len(items))))


@given(st.integers(2, 60), st.floats(0.01, 0.99), st.integers(0, 5))
def test_every_example_is_on_one_side_in_its_order(count, share, seed) -> None:
    whole = examples(range(count))
    train, held_out = split(whole, share=share, seed=seed)
    assert sorted([*train, *held_out]) == list(range(count))
    assert list(train) == sorted(train)
    assert list(held_out) == sorted(held_out)
    assert len(held_out) == max(1, min(count - 1, round(count * share)))
    assert [place.line for place in held_out.places] == [item + 1 for item in held_out]


def test_the_same_seed_holds_out_the_same_on_every_machine() -> None:
    whole = examples(range(20))
    assert list(split(whole, count=5, seed=0)[1]) == [4, 6, 10, 14, 17]
    assert split(whole, count=5, seed=3) == split(whole, count=5, seed=3)
    assert len({tuple(split(whole, count=5, seed=seed)[1]) for seed in range(20)}) > 15


@given(st.lists(st.integers(0, 8), min_size=2, max_size=40).filter(lambda keys: len(set(keys)) > 1), st.integers(0, 3))
def test_groups_stay_together(keys, seed) -> None:
    train, held_out = split(examples(enumerate(keys)), share=0.3, seed=seed, group=keys)
    assert {key for _, key in train}.isdisjoint(key for _, key in held_out)
    assert train
    assert held_out
    assert split(examples(enumerate(keys)), share=0.3, seed=seed, group=lambda item: item[1]) == (train, held_out)


def test_pairs_that_share_a_sentence_are_one_group() -> None:
    pairs = [TextPair("a", "x"), TextPair("b", "y"), TextPair(" a ", "y"), TextPair("c", "z"), TextPair("y", "c")]
    assert linked(pairs) == (0, 0, 0, 3, 4)
    assert linked([TextPair("caf\u00e9", "1"), TextPair("cafe\u0301", "2")]) == (0, 0)
    assert linked([]) == ()


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=40), st.integers(0, 3))
def test_no_sentence_is_on_both_sides(rows, seed) -> None:
    pairs = examples(TextPair(f"s{a}", f"t{b}") for a, b in rows)
    groups = linked(pairs)
    if len(set(groups)) < 2:
        return
    train, held_out = split(pairs, share=0.2, seed=seed, group=groups)
    for side in ("source", "target"):
        assert {getattr(pair, side) for pair in train}.isdisjoint(getattr(pair, side) for pair in held_out)
    assert overlap(train, held_out).indices == ()


def test_what_is_asked_counts_and_not_the_answer() -> None:
    train = examples([TextPair("Hi.", "嗨。"), TextPair("Bye.", "再见。")])
    assert overlap(train, examples([TextPair("Hi.", "你好。"), TextPair("Yes.", "嗨。")])).indices == (0,)
    labelled = examples([Labelled("a", "1"), Labelled("a", "1", pair="b")])
    assert overlap(labelled, examples([Labelled("a", "2"), Labelled("a", "1", "c")])).indices == (0,)
    assert overlap(examples(["x"]), examples([" x ", "y"])).report() == (
        "1 of 2 test examples (50.0%) are also trained on (first: a.tsv, line 1)"
    )
    assert overlap(examples(["x"]), examples([])).report() == "0 of 0 test examples (0.0%) are also trained on"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "`share` or `count` must be given, and not both."),
        ({"share": 0.5, "count": 1}, "`share` or `count` must be given, and not both."),
        ({"share": 1.0}, "`share` must be between 0 and 1, but is 1.0."),
        ({"count": 3}, "`count` must be between 1 and 2, so that both parts hold something, but is 3."),
        ({"count": 0}, "`count` must be between 1 and 2, so that both parts hold something, but is 0."),
        ({"count": 1, "group": [1, 2]}, "`group` must be one value for each of 3 examples, but is 2 values."),
        (
            {"count": 1, "group": [1, 1, 1]},
            "`group` must be at least 2 different groups, but is the same for all examples.",
        ),
    ],
)
def test_what_cannot_be_split_is_said(options, said) -> None:
    with pytest.raises(ConfigError) as raised:
        split(examples("abc"), **options)
    assert str(raised.value) == f"split(): {said}"


def test_examples_are_a_sequence() -> None:
    whole = examples("abcde")
    assert (whole[1], whole[-1], len(whole), "c" in whole) == ("b", "e", 5, True)
    assert list(whole[1:4:2]) == ["b", "d"]
    assert [place.line for place in whole[1:4:2].places] == [2, 4]
    assert list(whole.without([0, 4])) == ["b", "c", "d"]
    assert repr(whole) == "<5 examples from a.tsv>"
    with pytest.raises(IndexError):
        whole[5]


def test_the_report_says_where_from_what_not_and_why() -> None:
    places = [Place("data/cmn.tsv", i) for i in range(1, 20)]
    found = Examples(
        tuple("ab"),
        tuple(places[:2]),
        {"empty target": tuple(places[2:5]), "blank line": tuple(places[5:13])},
        ("column 3 is not used",),
        noun="pairs",
    )
    assert found.report() == (
        "2 pairs read from cmn.tsv; 11 skipped: empty target (lines 3, 4, 5), "
        "blank line (lines 6, 7, 8, 9, 10 and 3 more)\n"
        "  column 3 is not used"
    )
    several = Examples(("a",), (Place("x/a.txt", 1),), {"empty text": (Place("x/b.txt", 2), Place("x/a.txt", 7))})
    assert several.report() == (
        "1 example read from a.txt and b.txt; 2 skipped: empty text (b.txt, line 2; a.txt, line 7)"
    )
    many = Examples(tuple(range(9)), tuple(Place(f"{i}.txt", 1) for i in range(9)))
    assert many.report() == "9 examples read from 9 files"


def test_what_asks_the_same_is_one_group():
    asked = [Labelled("a film ", "pos"), Labelled("a film", "neg"), Labelled("another", "pos"), "a film"]
    groups = [same_input(example) for example in asked]
    assert groups[0] == groups[1] != groups[2]
    assert same_input("e\u0301 ") == same_input("\u00e9")
