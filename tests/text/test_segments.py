from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import sentences, split_words


@pytest.mark.parametrize(
    "parts",
    [
        ["One. ", "Two! ", "Three? ", "Four"],
        ["Dr. Li met Mr. J. Smith at 3.5 km, e.g. here. ", "He left."],
        ['He said "Yes." ', "Then he left."],
        ["“真的吗？”", "她问。", "“好！！”"],
        ["价格是3.5元。", "看www.example.com吧！", "好……我不知道。"],
        ["First line\nof a paragraph\n\n", "Next."],
        ["Wait... ", "What? ", "No. 5 is here. ", "No. ", "Yes."],
        ["It grew (see Fig. 3). ", "U.S. rates fell."],
        ["it ended etc. and so on. ", "Then"],
        ["（他走了。）", "她笑了。"],
        ["日本語です。", "そうですか？", "はい。"],
        ["全角｡", "ａｂｃ。"],
        ["镇定了系统.", "仿真有效!", "为什么?", "约3.5元.5天……也好"],
        ["Hello world"],
    ],
)
def test_sentences(parts) -> None:
    assert sentences("".join(parts)) == tuple(parts)


@given(st.text(st.sampled_from("aB1 .。！?…”\"')\n　é河")))
def test_joined_they_are_the_text(text) -> None:
    assert "".join(sentences(text)) == text
    assert "".join(split_words(text)) == text
    assert "" not in sentences(text)
    assert "" not in split_words(text)


@given(st.text())
def test_any_text_is_the_sum_of_its_words(text) -> None:
    assert "".join(split_words(text)) == text
    assert "".join(sentences(text)) == text


def test_words() -> None:
    assert split_words("She can't, 银行3.14\n\n  x") == (
        "She", " can", "'t", ",", " ", "银", "行", "3", ".", "14", "\n\n", " ", " x",
    )  # fmt: skip
    assert split_words("") == ()
    assert split_words("naïve e\u0301t\u00e9 مرحبا") == ("naïve", " e\u0301t\u00e9", " مرحبا")
