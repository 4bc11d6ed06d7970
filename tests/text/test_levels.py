"""Characters, words and sentences with their tokens: joined they are the text, and no token is counted twice."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError
from regard.records import Sequence, Token
from regard.text import find_span, spans_of, token_ranges

HARD = (
    "The bank 银行 is by 河.",
    "👨‍👩‍👧‍👦 and 👍🏽!",
    "e\u0301té na\u0308ıve",
    "שלום עולם. مرحبا بالعالم؟",
    "\u202eabc\u202c  \n\n x ",
    "🇨🇳🇩🇪 ﷽",
    "",
    "   ",
)


def by_bytes(text, cuts):
    """Tokens that end at these bytes, whatever characters they cut; a special one before."""
    size = len(text.encode("utf-8", "surrogatepass"))
    ends = sorted({cut % size for cut in cuts} | {size}) if size else []
    spans = [span for span in zip([0, *ends], ends, strict=False) if span[0] < span[1]]
    return Sequence("input", text, (Token("[CLS]", -1, -1, special=True), *(Token("", *span) for span in spans)))


def bytes_of_white_space(text):
    """Which bytes of a text are of white space."""
    ends = [len(text[: number + 1].encode()) for number in range(len(text))]
    starts = [0, *ends]
    return {
        byte
        for character, start, end in zip(text, starts, ends, strict=False)
        if character.isspace()
        for byte in range(start, end)
    }


texts = st.sampled_from(HARD) | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("level", ["character", "word", "sentence", "text"])
@given(text=texts, cuts=st.lists(st.integers(0, 200), max_size=30))
def test_joined_they_are_the_text_and_tokens_are_in_one(level, text, cuts):
    sequence = by_bytes(text, cuts)
    spans = spans_of(sequence, level)
    assert "".join(span.text for span in spans) == text
    held = [token for span in spans for token in span.tokens]
    assert held == sorted(set(held))
    assert set(held) == set(range(1, len(sequence.tokens)))
    byte, blank = 0, bytes_of_white_space(text)
    for span in spans:  # a span holds the bytes of its tokens, but for white space around it
        begin, byte = byte, byte + len(span.text.encode())
        for token in (sequence.tokens[number] for number in span.tokens):
            assert {*range(token.start, begin), *range(byte, token.end)} <= blank


def test_levels_of_a_text_of_bytes():
    """Case C18: every byte of a character is a token, and the character is one."""
    text = "中👍👨‍👩‍👧‍👦e\u0301"
    sequence = by_bytes(text, range(100))
    spans = spans_of(sequence, "character")
    assert [span.text for span in spans] == regex.findall(r"\X", text)
    assert [len(span.tokens) for span in spans] == [3, 4, 25, 3]
    assert token_ranges(spans[:2]) == [(1, 4), (4, 8)]


def test_sentences_and_what_was_not_read():
    sequence = Sequence(
        "input", "Hello you. 你好。 gone", (Token("Hello", 0, 5), Token("you.", 6, 10), Token("你好。", 11, 20))
    )
    spans = spans_of(sequence, "sentence")
    assert [(span.label, span.tokens) for span in spans] == [
        ("Hello you.", range(2)),
        ("你好。", range(2, 3)),
        ("gone", range(0)),
    ]


def test_a_passage_is_found_by_what_it_says():
    sequence = by_bytes("Read this. The bank is closed. When?", [10, 11, 20, 30, 31])
    found = find_span(sequence, "The bank is closed.")
    assert (found.text, found.tokens) == ("The bank is closed.", range(3, 5))


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    sequence = by_bytes("to be or not to be", [2, 5])
    with pytest.raises(ConfigError, match="`wanted` must be in the text exactly once, but is 2 times in it: 'to be'"):
        find_span(sequence, "to be")
    with pytest.raises(ConfigError, match="but is 0 times in it: 'bank'"):
        find_span(sequence, "bank")
    with pytest.raises(ConfigError, match='`level` must be one of "character", "word", "sentence", "text", but is'):
        spans_of(sequence, "page")
    cut = Sequence("input", "to be", (Token("to", 0, 2),))
    with pytest.raises(ConfigError, match="no token holds 'be': it was cut off"):
        find_span(cut, "be")
