from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from regard.errors import ConfigError
from regard.records import Sequence, TextOffsets, group_pieces
from regard.text import tokenize, tokens_of

FAMILY = "👨\u200d👩\u200d👧"


def byte_level(*, trim: bool = False, prefix: bool = False) -> Tokenizer:
    alphabet = {piece: number for number, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    return tokenizer


def unigram(pieces: tuple[str, ...] = ("▁", "中文", "a", "b"), *, split: bool = True) -> Tokenizer:
    scored = [("<unk>", 0.0), *((piece, -1.0) for piece in pieces)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0))
    metaspace = pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]) if split else metaspace
    )
    return tokenizer


def word_piece() -> Tokenizer:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "the", "bank", "##s", "e", "river"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


def spans(sequence: Sequence) -> list[tuple[int, int]]:
    return [(token.start, token.end) for token in sequence.tokens]


def bytes_of(sequence: Sequence, number: int) -> str:
    token = sequence.tokens[number]
    return sequence.text.encode()[token.start : token.end].decode()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("\u4e2d", 3), ("👍", 4), (FAMILY, 18), ("e\u0301", 3)],
    ids=["zh", "thumb", "family", "accent"],
)
def test_byte_pieces_of_one_visible_character_are_one_group(text, pieces):  # case C18
    sequence = tokens_of(byte_level(), text)
    assert len(sequence.tokens) == pieces
    (group,) = group_pieces(sequence)
    assert group.pieces == tuple(range(pieces))
    offsets = TextOffsets(text)
    assert offsets.utf16((group.start, group.end)) == (0, len(text.encode("utf-16-le")) // 2)


def test_byte_pieces_share_the_bytes_of_their_character():
    sequence = tokens_of(byte_level(), "a中👍")
    assert spans(sequence) == [(0, 1), *[(1, 4)] * 3, *[(4, 8)] * 4]
    assert [token.text for token in sequence.tokens] == ["a", "中", "中", "中", "👍", "👍", "👍", "👍"]


def test_a_marker_does_not_claim_the_first_character():  # case C19
    sequence = tokens_of(unigram(), "中文")
    assert spans(sequence) == [(0, 0), (0, 6)]
    assert [token.text for token in sequence.tokens] == ["▁", "中文"]


def test_markers_in_the_middle_stand_before_their_word():
    sequence = tokens_of(unigram(), "中文  中文")
    assert spans(sequence) == [(0, 0), (0, 6), (8, 8), (8, 14)]


def test_a_marker_that_is_a_space_keeps_it():
    sequence = tokens_of(unigram(split=False), "a 中文")
    assert [bytes_of(sequence, number) for number in range(4)] == ["", "a", " ", "中文"]


@pytest.mark.parametrize("trim", [True, False])
def test_white_space_tokens_keep_their_text(trim):
    text = " a  中\n\n\tb "
    sequence = tokens_of(byte_level(trim=trim), text)
    assert "".join(token.text for token in sequence.tokens if token.text != "中") == text.replace("中", "")
    assert [bytes_of(sequence, number) for number in (0, 1, 2, 3)] == [" ", "a", " ", " "]
    assert sequence.tokens[-1].text == " "


def test_an_added_prefix_space_has_no_width():
    sequence = tokens_of(byte_level(prefix=True, trim=False), "ab")
    assert bytes_of(sequence, 1) == "a"
    assert bytes_of(sequence, 2) == "b"


def test_special_tokens_are_flagged_and_have_no_text():
    sequence = tokens_of(word_piece(), "The banks")
    assert [(token.text, token.special) for token in sequence.tokens] == [
        ("[CLS]", True),
        ("The", False),
        ("bank", False),
        ("s", False),
        ("[SEP]", True),
    ]
    assert spans(sequence) == [(-1, -1), (0, 3), (4, 8), (8, 9), (-1, -1)]


def test_a_pair_is_one_text_joined_by_a_line_end():
    tokenized = tokenize(word_piece(), "thé bank", pair="river é")
    sequence = tokenized.sequence
    assert sequence.text == "thé bank\nriver é"
    visible = [bytes_of(sequence, n) for n, token in enumerate(sequence.tokens) if not token.special]
    assert visible == ["thé", "bank", "river", "é"]
    assert tokenized.type_ids == (0, 0, 0, 0, 1, 1, 1)


def test_truncation_and_padding_of_the_file_are_off_and_stay_as_they_were():
    tokenizer = word_piece()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=20)
    before = (tokenizer.truncation, tokenizer.padding)
    assert len(tokenize(tokenizer, "bank " * 30).ids) == 32
    assert (tokenizer.truncation, tokenizer.padding) == before


def test_unknown_tokens_are_counted_without_the_special_ones():
    tokenized = tokenize(word_piece(), "the 虽 虽 然")
    assert tokenized.unknown == (False, False, True, True, True, False)
    assert tokenized.unknown_share == 3 / 4
    assert tokenized.unknown_pieces == ("虽", "然")
    assert tokenize(word_piece(), "").unknown_share == 0.0


def test_an_end_token_that_doubles_as_unknown_is_not_unknown():
    backend = word_piece()
    tokenizer = SimpleNamespace(backend_tokenizer=backend, unk_token_id=0, eos_token_id=0)
    assert not any(tokenize(tokenizer, "the 虽").unknown)


def test_lone_surrogates_are_replaced_and_counted():
    tokenized = tokenize(byte_level(), "a\ud800b", pair="\udfff")
    assert tokenized.sequence.text == "a\ufffdb\n\ufffd"
    assert tokenized.replaced == 2


def test_nul_and_markup_stay_as_they_are():
    text = "\x00<script>alert(1)</script><!--<script>\u202e"
    sequence = tokens_of(byte_level(), text)
    assert sequence.text == text
    assert b"".join(token.text.encode() for token in sequence.tokens[:-3]) == text[:-1].encode()


def test_one_token_of_ten_thousand_characters():
    text = "x" * 10_000
    sequence = tokens_of(word_piece(), text)
    assert spans(sequence) == [(-1, -1), (0, 10_000), (-1, -1)]
    assert sequence.tokens[1].text == text


def test_inputs_are_those_the_tokenizer_names():
    tokenizer = SimpleNamespace(
        backend_tokenizer=word_piece(),
        unk_token_id=0,
        eos_token_id=None,
        model_input_names=["input_ids", "token_type_ids"],
    )
    inputs = tokenize(tokenizer, "the", pair="bank").inputs()
    assert {name: tensor.tolist() for name, tensor in inputs.items()} == {
        "input_ids": [[1, 3, 2, 4, 2]],
        "token_type_ids": [[0, 0, 0, 1, 1]],
    }


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(ConfigError, match=r"must be a fast tokenizer, which knows .*, but is SimpleNamespace"):
        tokenize(SimpleNamespace(encode=None), "text")


TEXTS = st.text(
    st.sampled_from("ab é中文👍👨👩👧\u200d\u0301\u0644\u0627 \n\t\u3000ﬁ㎏—\x00") | st.characters(), max_size=30
)


@given(TEXTS, st.booleans(), st.booleans())
def test_byte_level_tokens_cover_the_text(text, trim, prefix):
    check_cover(tokens_of(byte_level(trim=trim, prefix=prefix), text))


@given(st.text(st.sampled_from("ab 中文👍\u0301ﬁ㎏\n\t"), max_size=20), st.booleans())
def test_unigram_tokens_cover_what_is_not_white_space(text, split):
    tokenizer = unigram(split=split)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    check_cover(tokens_of(tokenizer, text))


@given(st.lists(st.sampled_from([*"the banksriver中👍\n", "é", "e\u0301"]), max_size=20))
def test_word_pieces_cover_what_is_not_white_space(parts):
    check_cover(tokens_of(word_piece(), "".join(parts)))  # accents are dropped, and still belong to their letter


def check_cover(sequence: Sequence) -> None:
    """Groups come in order, never overlap, and together hold everything that is not white space."""
    groups = [group for group in group_pieces(sequence) if group.start >= 0]
    reached, dropped = 0, ""
    for group in groups:
        assert group.start >= reached, "groups overlap"
        dropped += sequence.text[reached : group.start]
        reached = group.end
    dropped += sequence.text[reached:]
    assert not dropped.strip(), f"lost {dropped!r}"
    encoded = sequence.text.encode()
    for token in sequence.tokens:
        if token.start >= 0:
            encoded[token.start : token.end].decode()  # offsets lie between characters
