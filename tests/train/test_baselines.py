"""The classic answers: naive Bayes by its formula, the majority, leading sentences, an oracle, and shared words."""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import combinations, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import BackendUnavailableError, ConfigError, ShapeError
from regard.train.baselines import IbmModel1, NaiveBayes, extractive_oracle, lead, majority, overlap_answer
from regard.train.metrics import rouge, words_of

TEXTS = ["a good film", "good good acting", "a bad film", "bad plot", "很好看", "不好看", "真难看"]
LABELS = ["pos", "pos", "neg", "neg", "pos", "neg", "neg"]


def by_formula(text, smoothing=1.0):
    """log p(class) + Σ log p(word | class), from the counts."""
    vocabulary = {word for one in TEXTS for word in words_of(one)}
    scores = {}
    for label in ("neg", "pos"):
        own = [one for one, its in zip(TEXTS, LABELS, strict=True) if its == label]
        counts = Counter(word for one in own for word in words_of(one))
        total = counts.total() + smoothing * len(vocabulary)
        known = [word for word in words_of(text) if word in vocabulary]
        scores[label] = math.log(len(own) / len(TEXTS)) + sum(
            math.log((counts[word] + smoothing) / total) for word in known
        )
    return max(scores, key=scores.__getitem__)


@pytest.mark.parametrize("smoothing", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(
    "text", ["good film", "a bad bad plot", "GOOD, bad", "never seen", "", "难看的电影", "好看", "film"]
)
def test_naive_bayes_is_its_formula(text, smoothing):
    model = NaiveBayes.fit(TEXTS, LABELS, smoothing=smoothing)
    assert model.predict([text]) == (by_formula(text, smoothing),)


def test_pairs_of_words_can_tell_what_words_cannot():
    texts, labels = ["not bad just good", "not good just bad"], ["pos", "neg"]
    unseen = ["not bad", "not good"]
    assert NaiveBayes.fit(texts, labels, ngrams=2).predict(unseen) == ("pos", "neg")
    alone = NaiveBayes.fit(texts, labels).predict(unseen)
    assert alone[0] == alone[1]


def test_naive_bayes_predicts_nothing_of_nothing():
    assert NaiveBayes.fit(TEXTS, LABELS).predict([]) == ()


def test_naive_bayes_refuses_what_it_cannot_learn_from():
    with pytest.raises(
        ShapeError, match=r"^NaiveBayes\.fit\(\): `labels` must be as many as `texts` \(2\), but is 1\.$"
    ):
        NaiveBayes.fit(["a", "b"], ["x"])
    with pytest.raises(ConfigError) as raised:
        NaiveBayes.fit(["!", ""], ["x", "y"], ngrams=0, smoothing=0.0)
    assert str(raised.value) == (
        "NaiveBayes.fit(): 3 problems:"
        "\n  - `ngrams` must be at least 1, but is 0."
        "\n  - `smoothing` must be more than 0, but is 0.0."
        "\n  - `texts` must be with at least one word, but is without any."
    )


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in ("sklearn", "sklearn.feature_extraction.text", "sklearn.naive_bayes"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendUnavailableError, match=r"^NaiveBayes needs the package `scikit-learn`.*regard\[train\]"):
        NaiveBayes.fit(TEXTS, LABELS)


def test_majority():
    assert majority(["b", "a", "a", "b", "a"]) == "a"
    assert majority(["b", "a", "a", "b"]) == "b", "of equals the first"
    with pytest.raises(ConfigError, match=r"^majority\(\): `labels` must be at least one, but is empty\.$"):
        majority([])


def test_lead_joins_each_language_its_own_way():
    assert lead(["One.", "Two.", "Three.", "Four."], 2) == "One. Two."
    assert lead(["第一。", "第二。", "第三。"], 2) == "第一。第二。"
    assert lead(["One."], 3) == "One."
    assert lead([]) == ""


DOCUMENT = ["Rain fell all day.", "The river rose by two metres.", "Nobody was hurt.", "The old bank was flooded."]
REFERENCE = "The river rose and the old bank was flooded."


def test_the_oracle_takes_what_agrees_and_keeps_the_order():
    assert extractive_oracle(DOCUMENT, [REFERENCE]) == f"{DOCUMENT[1]} {DOCUMENT[3]}"
    assert extractive_oracle(DOCUMENT, [REFERENCE], count=1) == DOCUMENT[3]
    assert extractive_oracle(DOCUMENT[::-1], [REFERENCE]) == f"{DOCUMENT[3]} {DOCUMENT[1]}"
    assert (
        extractive_oracle(["今天下雨。", "河水上涨。", "没有人受伤。"], ["河水上涨，没有人受伤"])
        == "河水上涨。没有人受伤。"
    )


def test_the_oracle_is_the_best_choice_of_one_and_not_below_the_lead():
    def agreement(text):
        scores = rouge([text], [REFERENCE])
        return scores.rouge1.f1 + scores.rouge2.f1

    assert agreement(extractive_oracle(DOCUMENT, [REFERENCE], count=1)) == max(map(agreement, DOCUMENT))
    best = max(agreement(" ".join(pair)) for pair in combinations(DOCUMENT, 2))
    assert agreement(extractive_oracle(DOCUMENT, [REFERENCE], count=2)) == best > agreement(lead(DOCUMENT, 2))


def test_the_oracle_takes_nothing_where_nothing_agrees():
    assert extractive_oracle(DOCUMENT, ["完全不同"]) == ""
    assert extractive_oracle([], [REFERENCE]) == ""


@pytest.mark.parametrize(
    ("question", "context", "answer"),
    [
        (
            "Who repaired the old bridge in spring?",
            "The town lies by a river. In spring Maria Weber repaired the old bridge. It was sold later.",
            "Maria Weber",
        ),
        ("《春河》是哪一年出版的？", "作者早年住在北方。《春河》于1990年出版。后来他搬到了南方。", "于1990"),
        ("What is it?", "What is it", ""),
        ("Where?", "", ""),
        ("Anything else?", "Tea 3.5, or Coffee -- as  written", "Tea 3.5, or Coffee -- as  written"),
        ("x", "x", ""),
        ("x", "one x", "one"),
        ("x", "x one", "one"),
    ],
)
def test_the_answer_stands_among_the_words_of_the_question(question, context, answer):
    found = overlap_answer(question, context)
    assert found == answer
    assert found in context


def test_answers_are_no_longer_than_asked_and_stay_within_a_sentence():
    context = "one two three four five six. seven eight"
    assert overlap_answer("x", context, longest=3) == "one two three"
    assert overlap_answer("x", context, longest=9) == "one two three four five six"
    assert overlap_answer("x", "一二三。四五六七", longest=9) == "四五六七"
    assert overlap_answer("x", "one x. y", longest=9) == "one"
    assert overlap_answer("x", "A x y. C", longest=9) == "A"


def value_of(run, words, asked, nearness):
    """The formula; distances are counted from the end of the run that is nearer."""
    return sum(
        nearness ** min(abs(index - place) for place in run) * math.log(1 + 1 / words.count(word))
        for index, word in enumerate(words)
        if word in asked
    )


def test_the_value_by_hand():
    words = ["cat", "the", "a", "dog", "zebra", "the", "said"]
    values = [value_of(run, words, {"the", "zebra"}, 0.5) for run in ((0,), (2, 3), (6,))]
    often, once = math.log(3 / 2), math.log(2)
    assert values == pytest.approx(
        [often / 2 + once / 16 + often / 32, often / 2 + once / 2 + often / 4, often / 2 + once / 4 + often / 32]
    )
    assert overlap_answer("the zebra", " ".join(words), nearness=0.5) == "a dog"


@given(st.lists(st.sampled_from(["the", "the", "zebra", "cat", "dog", "said"]), max_size=12), st.floats(0.05, 1))
def test_the_answer_is_the_run_of_greatest_value(words, nearness):
    asked = {"the", "zebra"}
    runs = [
        tuple(run) for taken, run in groupby(range(len(words)), key=lambda place: words[place] in asked) if not taken
    ]
    found = overlap_answer("the zebra", " ".join(words), nearness=nearness).split()
    values = {run: value_of(run, words, asked, nearness) for run in runs}
    best = max(values.values(), default=0.0)
    right = [[words[place] for place in run] for run in runs if values[run] >= best - 1e-9]
    assert found in (right or [[]])


def test_options_out_of_range_are_named_all_at_once():
    with pytest.raises(ConfigError) as raised:
        overlap_answer("a", "b", longest=0, nearness=0.0)
    assert str(raised.value) == (
        "overlap_answer(): 2 problems:"
        "\n  - `longest` must be at least 1, but is 0."
        "\n  - `nearness` must be more than 0 and at most 1, but is 0.0."
    )


def em_by_hand(sources, targets, iterations):
    """IBM model 1 with a null word, as a loop over dictionaries."""
    table = {}
    for source, target in zip(sources, targets, strict=True):
        for word in target:
            table |= {(start, word): 1.0 for start in (None, *source)}
    for _ in range(iterations):
        counts, totals = Counter(), Counter()
        for source, target in zip(sources, targets, strict=True):
            for word in target:
                starts = (None, *source)
                norm = sum(table[start, word] for start in starts)
                for start in starts:
                    counts[start, word] += table[start, word] / norm
                    totals[start] += table[start, word] / norm
        table = {(start, word): count / totals[start] for (start, word), count in counts.items()}
    return table


HOUSES = [["das", "Haus"], ["das", "Buch"], ["Buch"]], [["the", "house"], ["the", "book"], ["book"]]


def test_the_first_two_steps_of_ibm_model_1_as_computed_on_paper():
    once = IbmModel1.fit(*HOUSES, iterations=1)
    # from das: the ⅓ + ⅓, house ⅓, book ⅓; from Buch: the ⅓, book ⅓ + ½; from nothing: the ⅔, house ⅓, book ⅚
    assert once.probability("das", "the") == pytest.approx(1 / 2)
    assert once.probability("das", "house") == pytest.approx(1 / 4)
    assert once.probability("Haus", "house") == pytest.approx(1 / 2)
    assert once.probability("Buch", "book") == pytest.approx((5 / 6) / (7 / 6))
    assert once.probability(None, "the") == pytest.approx((2 / 3) / (11 / 6))
    twice = IbmModel1.fit(*HOUSES, iterations=2)
    # house is in one pair: from nothing 2/11, from das 1/4, from Haus 1/2, of 41/44 together; the: 4/11, 1/2, 1/2
    house, the = (1 / 2) / (2 / 11 + 1 / 4 + 1 / 2), (1 / 2) / (4 / 11 + 1 / 2 + 1 / 2)
    assert twice.probability("Haus", "house") == pytest.approx(house / (house + the))


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abc"), max_size=4), st.lists(st.sampled_from("xyz"), max_size=4)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 4),
)
def test_ibm_model_1_is_the_loop_over_dictionaries(pairs, iterations):
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    model, expected = IbmModel1.fit(sources, targets, iterations=iterations), em_by_hand(sources, targets, iterations)
    for start in (None, *"abc"):
        for word in "xyz":
            assert model.probability(start, word) == pytest.approx(expected.get((start, word), 0.0), abs=1e-12)


def test_ibm_model_1_links_known_words_and_leaves_the_others_alone():
    model = IbmModel1.fit(*HOUSES)
    assert model.links(["das", "Haus"], ["the", "house"]) == {(0, 0), (1, 1)}
    assert model.links(["das", "Auto"], ["the", "car"]) == {(0, 0)}
    assert model.links([], ["the"]) == model.links(["das"], []) == frozenset()
    found = model.posteriors(["das", "Haus"], ["the", "car"])
    assert found.shape == (2, 3)
    assert found.sum(axis=1).tolist() == pytest.approx([1, 0])


def test_ibm_model_1_refuses_what_it_cannot_count():
    with pytest.raises(ShapeError, match=r"`targets` must be as many as `sources` \(1\), but is 2"):
        IbmModel1.fit([["a"]], [["b"], ["c"]])
    with pytest.raises(ConfigError, match="at least one"):
        IbmModel1.fit([], [])
    with pytest.raises(ConfigError, match="`iterations` must be at least 1, but is 0"):
        IbmModel1.fit([["a"]], [["b"]], iterations=0)
