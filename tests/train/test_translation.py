"""BLEU and chrF are sacreBLEU's, with its signature, for English and for Chinese."""

from __future__ import annotations

import json
import sys

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import BackendUnavailableError, ConfigError, ShapeError
from regard.train.metrics import bleu, chrf

ENGLISH = (
    [
        "The cat sat on the mat, quietly.",
        "There is a cat on that mat.",
        "",
        "It's 3.5 metres long.",
        "A river runs by the old bank of the town.",
    ],
    [
        ["The cat sat on the mat quietly.", "A cat was sitting quietly on the mat."],
        ["There is a cat on the mat."],
        ["Nothing was said."],
        ["It is 3.5 metres long.", "It's three and a half metres long.", "Its length is 3.5 metres."],
        ["A river runs past the old bank in the town."],
    ],
)
CHINESE = (
    ["我昨天在河边看见一只猫。", "注意力机制让模型看得更远。", "今天天气很好，我们去散步。"],
    ["我昨天在河岸边看到了一只猫。", "注意力机制让模型能看得更远。", "今天天气不错，我们去散步吧。"],
)

WORDS = st.sampled_from(["the", "cat", "sat", "on", "a", "mat", "猫", "河边", "3.5", "don't"])
SENTENCES = st.lists(WORDS, min_size=4, max_size=9).map(" ".join)


def streams(references: list[list[str]]) -> list[list[str | None]]:
    """References as sacreBLEU takes them: one list per rank of reference, None where there is none."""
    most = max(map(len, references))
    return [[texts[rank] if rank < len(texts) else None for texts in references] for rank in range(most)]


@pytest.mark.parametrize("lowercase", [False, True])
def test_english_bleu_is_sacrebleus(lowercase):
    hypotheses, references = ENGLISH
    ours = bleu(hypotheses, references, lowercase=lowercase)
    metric = sacrebleu.BLEU(lowercase=lowercase)
    theirs = metric.corpus_score(hypotheses, streams(references))
    assert (ours.score, ours.precisions, ours.brevity_penalty) == (theirs.score, tuple(theirs.precisions), theirs.bp)
    assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)
    assert ours.signature == str(metric.get_signature())
    assert "|tok:13a|" in ours.signature
    assert ours.signature.startswith(f"nrefs:var|case:{'lc' if lowercase else 'mixed'}|")


def test_chinese_bleu_takes_its_own_tokenizer_and_says_so():
    hypotheses, references = CHINESE
    ours = bleu(hypotheses, references)
    metric = sacrebleu.BLEU(tokenize="zh")
    assert ours.score == metric.corpus_score(hypotheses, [references]).score
    assert ours.signature == str(metric.get_signature())
    assert "|tok:zh|" in ours.signature
    assert ours.score > 3 * bleu(hypotheses, references, tokenizer="13a").score, "13a takes a sentence for a word"


def test_the_references_decide_about_the_tokenizer():
    assert "|tok:13a|" in bleu(["一只猫"], ["a cat on the mat"]).signature
    assert "|tok:zh|" in bleu(["a cat"], ["一只猫"]).signature
    assert "|tok:zh|" in bleu(["x"], ["返回默认的数据类型并传给 torch.set_default_dtype"]).signature
    assert "|tok:13a|" in bleu(["x"], ["The sign 河 is a river, the sign 山 is a mountain"]).signature
    assert "|tok:13a|" in bleu(["x"], [""]).signature


def test_a_tokenizer_can_be_named():
    ours = bleu(["河边 cat"], ["河边 cat"], tokenizer="char")
    assert "|tok:char|" in ours.signature
    assert ours.hypothesis_length == 5


def test_sentence_scores_are_sacrebleus_with_effective_order():
    hypotheses, references = ENGLISH
    metric = sacrebleu.BLEU(effective_order=True)
    expected = [metric.sentence_score(*pair).score for pair in zip(hypotheses, references, strict=True)]
    ours = bleu(hypotheses, references)
    assert list(ours.segments) == expected
    order = sorted(range(5), key=expected.__getitem__)
    assert ours.worst(2) == (2, order[1])
    assert ours.worst(99) == tuple(order)


@pytest.mark.parametrize("word_order", [0, 2])
@pytest.mark.parametrize(("hypotheses", "references"), [ENGLISH, (CHINESE[0], [[text] for text in CHINESE[1]])])
def test_chrf_is_sacrebleus(hypotheses, references, word_order):
    ours = chrf(hypotheses, references, word_order=word_order)
    metric = sacrebleu.CHRF(word_order=word_order)
    theirs = metric.corpus_score(hypotheses, streams(references))
    assert (ours.score, ours.name) == (theirs.score, theirs.name)
    assert ours.signature == str(metric.get_signature())
    expected = [metric.sentence_score(*pair).score for pair in zip(hypotheses, references, strict=True)]
    assert list(ours.segments) == expected


def test_bleu_by_hand():
    # 1-grams 5/6 (three of the four "the" are too many: clipped), 2-grams 2/5, 3-grams 0/4 and 4-grams 0/3, smoothed
    # to 1/8 and 1/12; the lengths are the same.
    ours = bleu(["the cat on the cat mat"], ["the cat sat on the mat"])
    assert ours.precisions == pytest.approx((100 * 5 / 6, 40, 100 / 8, 100 / 12))
    assert ours.score == pytest.approx(100 * (5 / 6 * 2 / 5 / 8 / 12) ** 0.25)


def test_an_empty_hypothesis_scores_nothing_and_costs_brevity():
    ours = bleu(["", "a cat on the mat"], ["a dog by the door", "a cat on the mat"])
    assert ours.segments == pytest.approx((0, 100))
    assert ours.precisions == pytest.approx((100,) * 4)
    assert ours.brevity_penalty == pytest.approx(2.718281828459045 ** (1 - 10 / 5))
    assert bleu([""], ["a"]).score == chrf([""], ["a"]).score == 0


def test_a_corpus_without_4_grams_scores_nothing():
    assert bleu(["a cat"], ["a cat"]).score == 0
    assert bleu(["a cat"], ["a cat"]).segments == pytest.approx((100,))


@given(st.lists(SENTENCES, min_size=1, max_size=5))
def test_a_text_against_itself_is_perfect(texts):
    assert bleu(texts, texts).score == pytest.approx(100)
    assert chrf(texts, texts).score == pytest.approx(100)
    others = [["something else entirely", text] for text in texts]
    assert chrf(texts, others).segments == pytest.approx([100] * len(texts)), "the best of several references counts"


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_segments_changes_nothing(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    for metric in (bleu, chrf):
        one, other = (metric([a for a, _ in rows], [b for _, b in rows]) for rows in (pairs, shuffled))
        assert one.score == other.score
        assert sorted(one.segments) == sorted(other.segments)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_results_can_be_written_and_read(metric):
    ours = metric(*ENGLISH)
    written = json.loads(json.dumps(ours.as_dict(), allow_nan=False))
    assert written["score"] == ours.score
    assert written["signature"] == ours.signature
    assert written["segments"] == list(ours.segments)
    assert "statistic" not in written
    assert str(ours).endswith(ours.signature)
    assert f"{ours.score:.2f}" in str(ours)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_unequal_numbers_name_both(metric):
    with pytest.raises(ShapeError) as raised:
        metric(["a", "b", "c"], ["a", "b"])
    assert str(raised.value).splitlines()[0] == (
        f"{metric.__name__}(): `references` must be as many as `hypotheses` (3), but is 2."
    )


def test_the_lists_of_sacrebleu_are_recognised():
    with pytest.raises(ShapeError, match=r"hint: .* sacreBLEU's own lists are the other way round"):
        bleu(["a", "b"], [["a", "b"]])


def test_nothing_to_compare():
    with pytest.raises(ConfigError, match=r"^bleu\(\): `hypotheses` must be at least one, but is empty\.$"):
        bleu([], [])


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_text_is_named_all_at_once():
    with pytest.raises(ConfigError) as raised:
        chrf(["a", None, "c"], ["a", [], ["c", None]])
    assert str(raised.value) == (
        "chrf(): 3 problems:"
        "\n  - `hypotheses[1]` must be a text, but is a NoneType."
        "\n  - `references[1]` must be at least one text, but is empty."
        "\n  - `references[2]` must be texts only, but is with a NoneType."
    )


def test_one_text_is_no_corpus():
    with pytest.raises(ConfigError, match="2 problems:\n  - `hypotheses` must be a sequence of texts, but is one text"):
        bleu("a cat", "a cat")


def test_an_unknown_tokenizer_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r'^bleu\(\): `tokenizer` must be "auto" or one of 13a, char, .*, but is \'x\''
    ):
        bleu(["a"], ["a"], tokenizer="x")


def test_a_negative_order_is_refused():
    with pytest.raises(ConfigError, match=r"^chrf\(\): `word_order` must be at least 0, but is -1\.$"):
        chrf(["a"], ["a"], word_order=-1)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_without_sacrebleu_the_extra_is_named(metric, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(BackendUnavailableError, match=r"needs the package `sacrebleu`.*pip install 'regard\[train\]'"):
        metric(["a"], ["a"])
