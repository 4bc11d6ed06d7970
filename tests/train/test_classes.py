"""Classes are scored as scikit-learn scores them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support

from regard.errors import ConfigError, ShapeError
from regard.train.metrics import classification

LABELS = ["neg", "neutral", "pos", "never"]
ROWS = st.lists(st.tuples(st.sampled_from(LABELS[:3]), st.sampled_from(LABELS[:3])), min_size=1, max_size=40)


@given(ROWS)
def test_every_figure_is_scikit_learns(rows):
    predicted, gold = (list(column) for column in zip(*rows, strict=True))
    ours = classification(predicted, gold, labels=LABELS)
    options = {"labels": LABELS, "zero_division": 0}
    assert ours.accuracy == pytest.approx(accuracy_score(gold, predicted))
    assert ours.macro_f1 == pytest.approx(f1_score(gold, predicted, average="macro", **options))
    assert ours.micro_f1 == pytest.approx(f1_score(gold, predicted, average="micro", **options))
    theirs = zip(*precision_recall_fscore_support(gold, predicted, **options), strict=True)
    for one, expected in zip(ours.classes, theirs, strict=True):
        assert (one.precision, one.recall, one.f1, one.support) == pytest.approx(expected)
    assert np.array_equal(ours.confusion, confusion_matrix(gold, predicted, labels=LABELS))
    assert ours.correct == tuple(a == b for a, b in rows)


def test_by_hand():
    ours = classification(["pos", "pos", "pos", "neg"], ["pos", "neg", "pos", "neg"], labels=["neg", "pos"])
    assert (ours.accuracy, ours.confusion) == (0.75, ((1, 1), (0, 2)))
    neg, pos = ours.classes
    assert (neg.precision, neg.recall, neg.f1) == (1, 1 / 2, 2 / 3)
    assert (pos.precision, pos.recall, pos.f1) == (2 / 3, 1, 4 / 5)
    assert ours.macro_f1 == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert ours.meaningless is None


@pytest.mark.parametrize("places", [list, np.array])
def test_places_are_as_good_as_names(places):
    named = classification(["pos", "neg", "pos"], ["pos", "pos", "neg"], labels=["neg", "pos"])
    assert classification(places([1, 0, 1]), places([1, 1, 0]), labels=["neg", "pos"]) == named


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows, random):
    results = []
    for some in (rows, random.sample(rows, len(rows))):
        predicted, gold = (list(column) for column in zip(*some, strict=True))
        results.append(classification(predicted, gold, labels=LABELS).as_dict())
        results[-1].pop("segments")
        if len({*gold}) == 1:
            assert results[-1].pop("meaningless")
    assert results[0] == results[1]


def test_d15_one_gold_class_is_marked_meaningless():
    ours = classification(["好评"] * 10, ["好评"] * 10, labels=["差评", "好评"])
    assert ours.accuracy == 1
    assert ours.meaningless == "all 10 gold labels are '好评', so always answering that is perfect"
    assert str(ours).startswith("meaningless: all 10 gold labels are '好评'")
    assert ours.as_dict()["meaningless"] == ours.meaningless


def test_d15_one_label_is_marked_meaningless():
    ours = classification(["pos"], ["pos"], labels=["pos"])
    assert ours.meaningless == "there is one class only ('pos'), so nothing can be taken for anything else"


def test_the_table_is_aligned_by_cells():
    ours = classification(["好评", "差评", "mixed"], ["好评", "好评", "mixed"], labels=["差评", "好评", "mixed"])
    lines = str(ours).splitlines()
    assert lines == [
        "accuracy 0.6667, macro F1 0.5556, micro F1 0.6667",
        "",
        "class  precision  recall      F1  support",
        "差评      0.0000  0.0000  0.0000        0",
        "好评      1.0000  0.5000  0.6667        2",
        "mixed     1.0000  1.0000  1.0000        1",
        "",
        "gold \\ predicted  差评  好评  mixed",
        "差评                 0     0      0",
        "好评                 1     1      0",
        "mixed                0     0      1",
    ]
    assert {cell_len(line) for line in lines[2:6]} == {41}
    assert {cell_len(line) for line in lines[7:]} == {35}


def test_a_wide_matrix_is_not_printed():
    labels = [f"class{number}" for number in range(13)]
    assert "predicted" not in str(classification(labels, labels, labels=labels))
    assert "predicted" in str(classification(labels[:12], labels[:12], labels=labels[:12]))


def test_results_can_be_written_and_read():
    ours = classification(["neg", "pos"], ["neg", "pos"], labels=["neg", "pos"])
    written = json.loads(json.dumps(ours.as_dict()))
    assert written["confusion"] == [[1, 0], [0, 1]]
    assert written["classes"][0] == {"label": "neg", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}


def test_unequal_numbers_name_both():
    with pytest.raises(ShapeError, match=r"`gold` must be as many as `predicted` \(2\), but is 3\.$"):
        classification(["a", "b"], ["a", "b", "a"], labels=["a", "b"])


def test_no_rows():
    with pytest.raises(ConfigError, match="`predicted` must be at least one, but is empty"):
        classification([], [], labels=["a", "b"])


def test_all_problems_are_named_at_once():
    with pytest.raises(ConfigError) as raised:
        classification(["a", "c", "c", "b"], [0, 2, -1, 1], labels=["a", "b", "a"])
    assert str(raised.value) == (
        "classification(): 3 problems:"
        "\n  - `labels` must be different names, but is with 'a' more than once."
        "\n  - `predicted[1]` must be one of 'a', 'b', 'a', or its place from 0 to 2, but is 'c'."
        "\n  - `gold[2]` must be one of 'a', 'b', 'a', or its place from 0 to 2, but is -1."
    )


@pytest.mark.parametrize(("labels", "found"), [([], "empty"), ("ab", "one text")])
def test_labels_are_a_list_of_names(labels, found):
    with pytest.raises(ConfigError, match=f"`labels` must be the names of the classes, but is {found}"):
        classification(["a"], ["a"], labels=labels)


def test_a_place_is_a_whole_number():
    with pytest.raises(
        ConfigError, match=r"`predicted\[0\]` must be one of 'a', 'b', or its place from 0 to 1, but is .*0\.5"
    ):
        classification(np.array([0.5, 1]), np.array([0, 1]), labels=["a", "b"])
