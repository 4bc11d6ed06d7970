import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import without_lone_surrogates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain 中👍", ("plain 中👍", 0)),
        ("\ud83d\udc4d", ("👍", 0)),
        ("a\ud83db", ("a\ufffdb", 1)),
        ("\udc4d\ud83d", ("\ufffd\ufffd", 2)),
        ("\ud83d\udc4d\udc4d", ("👍\ufffd", 1)),
        ("\ufffd\ud800", ("\ufffd\ufffd", 1)),
    ],
)
def test_pairs_become_one_character_and_lone_halves_are_replaced(text, expected):
    assert without_lone_surrogates(text) == expected


@given(st.text(st.characters(categories=["Cs", "L", "So"]), max_size=20))
def test_the_result_can_always_be_written(text):
    result, _ = without_lone_surrogates(text)
    assert result.encode().decode() == result
