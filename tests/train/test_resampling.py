"""Intervals and comparisons: sacreBLEU's and scipy's figures for the same draws, and what must hold for any."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest
from scipy.stats import binomtest

from regard.errors import ConfigError, ShapeError
from regard.train.metrics import Statistic, bleu, bootstrap, chrf, classification, mcnemar, paired_bootstrap

SCORES = st.lists(st.floats(-100, 100), min_size=1, max_size=20)
SEED = 12345  # that of sacreBLEU's tests


def corpus(size: int = 40) -> tuple[list[str], list[str], list[str]]:
    """References, a system, and one that is a little worse."""
    generator = random.Random(7)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "by", "mat", "river", "bank", "house", "old"]
    references = [" ".join(generator.choices(words, k=generator.randint(5, 14))) for _ in range(size)]

    def worse(share: float) -> list[str]:
        return [
            " ".join(word if generator.random() > share else generator.choice(words) for word in text.split())
            for text in references
        ]

    return references, worse(0.2), worse(0.25)


METRICS = pytest.mark.parametrize(("ours", "theirs"), [(bleu, sacrebleu.BLEU), (chrf, sacrebleu.CHRF)])


@METRICS
def test_corpus_scores_are_drawn_as_sacrebleu_draws_them(ours, theirs, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    references, good, bad = corpus()
    test = PairedTest(
        [("baseline", bad), ("system", good)],
        {"metric": theirs(references=[references])},
        references=None,
        test_type="bs",
        n_samples=200,
    )
    scores = test()[1]
    (name,) = scores.keys() - {"System"}
    baseline, system = scores[name]
    first, second = ours(good, references), ours(bad, references)
    found = paired_bootstrap(first.statistic, second.statistic, samples=200, seed=SEED)
    assert found.value == pytest.approx(system.score - baseline.score)
    assert found.mean == pytest.approx(system.mean - baseline.mean, rel=1e-5)
    assert found.p_value >= system.p_value, "they count one tail"
    alone = bootstrap(first.statistic, samples=200, seed=SEED)
    assert alone.value == first.score
    assert alone.mean == pytest.approx(system.mean, rel=1e-5)
    assert (alone.high - alone.low) / 2 == pytest.approx(system.ci, rel=0.1)  # theirs does not interpolate


@METRICS
def test_a_comparison_is_what_scoring_drawn_texts_says(ours, theirs):
    references, good, bad = corpus()
    generator = np.random.default_rng(SEED)
    differences = []
    for _ in range(100):
        drawn = generator.integers(len(references), size=len(references))
        texts = [[references[row] for row in drawn]]
        scores = [theirs().corpus_score([side[row] for row in drawn], texts).score for side in (good, bad)]
        differences.append(scores[0] - scores[1])
    found = paired_bootstrap(ours(good, references).statistic, ours(bad, references).statistic, samples=100, seed=SEED)
    as_large = sum(abs(one - np.mean(differences)) >= abs(found.value) for one in differences)
    assert found.p_value == (as_large + 1) / 101
    assert 1 < as_large < 99, "a case that can tell definitions apart"
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    assert found.mean == pytest.approx(np.mean(differences))


def test_segments_are_drawn_and_not_their_scores():
    references, good, _ = corpus()
    scored = bleu(good, references)
    of_corpus, of_sentences = bootstrap(scored.statistic, seed=0), bootstrap(scored.segments, seed=0)
    assert of_corpus.low < scored.score < of_corpus.high
    assert of_sentences.value == pytest.approx(np.mean(scored.segments))
    assert of_sentences.value != pytest.approx(scored.score, abs=0.1)


def test_the_interval_of_a_share_is_that_of_the_normal_approximation():
    right = [True] * 800 + [False] * 200
    found = bootstrap(right, samples=4000, seed=1)
    half = 1.96 * math.sqrt(0.8 * 0.2 / 1000)
    assert found.value == 0.8
    assert found.mean == pytest.approx(0.8, abs=0.001)
    assert (found.low, found.high) == (pytest.approx(0.8 - half, abs=0.003), pytest.approx(0.8 + half, abs=0.003))
    wide = bootstrap(right, samples=4000, confidence=0.99, seed=1)
    assert wide.low < found.low < found.high < wide.high


@given(SCORES, st.integers(0, 2**32))
def test_an_interval_lies_within_the_scores_and_depends_on_the_seed_alone(scores, seed):
    found = bootstrap(scores, samples=50, seed=seed)
    slack = 1e-9
    assert min(scores) - slack <= found.low <= found.high <= max(scores) + slack
    assert found.low - slack <= found.mean <= found.high + slack or len(scores) > 2
    assert bootstrap(np.array(scores), samples=50, seed=seed) == found


@given(SCORES, st.integers(0, 2**32))
def test_nothing_is_better_than_itself(scores, seed):
    found = paired_bootstrap(scores, scores, samples=30, seed=seed)
    assert (found.value, found.low, found.high, found.p_value) == (0, 0, 0, 1)


@given(SCORES, st.integers(0, 2**32))
def test_exchanging_two_systems_exchanges_the_signs(scores, seed):
    other = scores[::-1]
    one, two = (paired_bootstrap(*pair, samples=30, seed=seed) for pair in ((scores, other), (other, scores)))
    assert (two.value, two.mean) == (pytest.approx(-one.value), pytest.approx(-one.mean))
    assert (two.low, two.high) == (pytest.approx(-one.high, abs=1e-9), pytest.approx(-one.low, abs=1e-9))
    assert two.p_value == one.p_value


def test_pairs_tell_apart_what_two_intervals_cannot():
    generator = np.random.default_rng(0)
    hard = generator.normal(0.5, 0.3, size=200)
    better = hard + generator.normal(0.02, 0.02, size=200)
    one, other = bootstrap(hard, seed=0), bootstrap(better, seed=0)
    assert other.low < one.high, "the intervals overlap"
    found = paired_bootstrap(better, hard, seed=0)
    assert found.low > 0
    assert found.p_value == 1 / 1001


def test_the_p_value_of_systems_without_a_difference_is_small_as_often_as_it_says():
    generator = np.random.default_rng(0)
    rounds = [
        paired_bootstrap(*generator.normal(size=(2, 60)), samples=100, seed=number).p_value for number in range(300)
    ]
    assert 0.02 < np.mean(np.array(rounds) <= 0.05) < 0.09


def test_any_score_of_sums_can_be_drawn():
    rows = np.array([[1, 2], [3, 4], [0, 4]])
    found = bootstrap(Statistic(rows, lambda total: float(total[0] / total[1])), samples=200, seed=0)
    assert found.value == 4 / 10
    assert 0 <= found.low <= found.high <= 3 / 4


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_is_the_exact_binomial_test(pairs):
    found = mcnemar([a for a, _ in pairs], [b for _, b in pairs])
    assert found.only_first == pairs.count((True, False))
    assert found.only_second == pairs.count((False, True))
    number = found.only_first + found.only_second
    assert found.p_value == pytest.approx(binomtest(found.only_first, number).pvalue if number else 1)


def test_mcnemar_by_hand():
    # 1 against 7 of 8: 2 · (1 + 8) / 256
    first = [True] * 7 + [False] + [True] * 20
    second = [False] * 7 + [True] + [True] * 20
    assert mcnemar(first, second).p_value == 18 / 256
    assert str(mcnemar(first, second)) == "only the first right 7, only the second 1, p = 0.0703"


def test_mcnemar_of_many_questions():
    assert 0 < mcnemar([True] * 5200 + [False] * 4800, [False] * 5200 + [True] * 4800).p_value < 1e-4
    assert mcnemar([True, False] * 5000, [False, True] * 5000).p_value == 1


def test_mcnemar_takes_what_classification_gives():
    one = classification([0, 1, 1, 0], [0, 1, 1, 1], labels=["a", "b"])
    other = classification([1, 1, 1, 0], [0, 1, 1, 1], labels=["a", "b"])
    assert (mcnemar(one.correct, other.correct).only_first, mcnemar(one.correct, other.correct).only_second) == (1, 0)


def test_results_can_be_written_and_read():
    found = paired_bootstrap([1.0, 2.0], [0.5, 1.5], samples=10, seed=0)
    assert json.loads(json.dumps(found.as_dict())) == {
        "value": 0.5,
        "low": 0.5,
        "high": 0.5,
        "mean": 0.5,
        "confidence": 0.95,
        "samples": 10,
        "p_value": pytest.approx(1 / 11),
    }
    assert str(found) == "+0.5 [+0.5, +0.5] (95%, 10 samples), p = 0.0909"
    assert str(bootstrap([0.25], samples=10, seed=0)) == "0.25 [0.25, 0.25] (95%, 10 samples)"


def test_unequal_numbers_name_both():
    with pytest.raises(ShapeError) as raised:
        paired_bootstrap([1.0, 2.0], [1.0], seed=0)
    assert str(raised.value) == "paired_bootstrap(): `second` must be of as many segments as `first` (2), but is of 1."
    with pytest.raises(ShapeError, match=r"^mcnemar\(\): `second` must be as many as `first` \(1\), but is 2\.$"):
        mcnemar([True], [True, False])


def test_no_segments():
    with pytest.raises(ConfigError, match=r"^bootstrap\(\): `scores` must be of at least one segment, but is empty\.$"):
        bootstrap([], seed=0)
    with pytest.raises(ConfigError, match="`first` must be at least one, but is empty"):
        mcnemar([], [])


def test_numbers_that_are_none_are_named_by_their_segment():
    with pytest.raises(ConfigError, match=r"`second` must be finite numbers, but is not at segment 1\.$"):
        paired_bootstrap([1.0, 2.0], [1.0, math.nan], seed=0)


def test_options_out_of_range_are_named_all_at_once():
    with pytest.raises(ConfigError) as raised:
        bootstrap([1.0], samples=0, confidence=1.0, seed=0)
    assert str(raised.value) == (
        "bootstrap(): 2 problems:"
        "\n  - `samples` must be at least 1, but is 0."
        "\n  - `confidence` must be between 0 and 1, but is 1.0."
    )
