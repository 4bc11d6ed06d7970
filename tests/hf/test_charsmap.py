import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from regard.hf.charsmap import charsmap

CHARACTERS = st.characters(exclude_categories=["Cs", "M", "Cf", "Lm", "Lo"], exclude_characters="\0")


@settings(deadline=None)
@given(
    st.dictionaries(CHARACTERS, st.text(CHARACTERS, max_size=3), min_size=1, max_size=60),
    st.text(CHARACTERS, max_size=8),
)
def test_the_normalizer_does_what_the_map_says(replacements, rest):
    normalizer = normalizers.Precompiled(charsmap(replacements))
    # A line of its own for every character: the normalizer takes whole grapheme clusters where it can.
    for character in (*replacements, *rest):
        assert normalizer.normalize_str(character) == replacements.get(character, character)


def test_a_large_map_is_read_back():
    replacements = {chr(code): f"<{code}>" for code in range(0x3400, 0x4400)} | {"\U0002f800": "astral", "x": ""}
    normalizer = normalizers.Precompiled(charsmap(replacements))
    for character in ("\u3400", "\u43ff", "\U0002f800", "x", "y", "\u4400"):
        assert normalizer.normalize_str(character) == replacements.get(character, character)


@pytest.mark.parametrize("text", ["axb", "xx", "中x"])
def test_what_is_mapped_to_nothing_is_removed(text):
    assert normalizers.Precompiled(charsmap({"x": ""})).normalize_str(text) == text.replace("x", "")
