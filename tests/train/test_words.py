"""What counts as a word, and which texts are Chinese."""

from __future__ import annotations

import pytest

from regard.train.metrics import words_of
from regard.train.metrics.words import mostly_han, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("Hello, World_2!", ["hello", "world", "2"]),
        ("注意力is all", ["注", "意", "力", "is", "all"]),
        ("ＡＢＣ１２", ["abc12"]),
        ("cafe\u0301", ["café"]),
        ("コーヒー", ["コ", "ー", "ヒ", "ー"]),
        ("ที่", ["ที่"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("人々〇", ["人", "々", "〇"]),
        ("👍🏽 …—", []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


def test_spans_are_of_the_text_as_it_is_written():
    text = "ＡＢ, 猫 Cafe\u0301"
    assert [text[start:end] for start, end in word_spans(text)] == ["ＡＢ", "猫", "Cafe\u0301"]


@pytest.mark.parametrize(
    ("texts", "han"),
    [
        (["今天天气很好"], True),
        (["调用 torch.nn.functional.scaled_dot_product_attention 函数即可，"], False),
        (["调用 scaled_dot 函数即可"], True),
        (["今天 is", "a sunny day"], False),
        (["これは日本語の文章です"], False),
        (["半分 half one"], False),
        (["", "!?"], False),
        ([], False),
    ],
)
def test_mostly_han(texts, han):
    assert mostly_han(texts) is han
