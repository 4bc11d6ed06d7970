from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from regard.text import continuation, tokenize

END = 256


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte is a token; token 256 ends a text."""
    alphabet = {piece: number for number, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


TOKENIZER = tokenizer()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER(text).input_ids)


def test_pieces_of_one_character_share_its_bytes():
    sequence = continuation(TOKENIZER, [*ids_of("a中b"), END])
    assert sequence.text == "a中b"
    assert [(token.start, token.end) for token in sequence.tokens] == [(0, 1), *[(1, 4)] * 3, (4, 5), (-1, -1)]
    assert sequence.tokens[-1].special


def test_what_was_written_follows_what_was_read():
    before = tokenize(TOKENIZER, "中 ")
    sequence = continuation(TOKENIZER, ids_of("👍!"), before=before.sequence, before_ids=before.ids)
    assert sequence.text == "中 👍!"
    assert sequence.name == "input"
    assert [(token.start, token.end) for token in sequence.tokens[4:]] == [*[(4, 8)] * 4, (8, 9)]


def test_a_character_cut_off_at_the_end_is_shown_as_such():
    sequence = continuation(TOKENIZER, [*ids_of("a"), *ids_of("中")[:2]])
    assert sequence.text.startswith("a\ufffd")
    assert [token.start for token in sequence.tokens] == [0, 1, 1]


def test_a_decoder_that_rewrites_is_read_token_by_token():
    class Rewriting:
        all_special_ids: Sequence[int] = ()

        def decode(self, ids, **_):
            return "".join(reversed([chr(97 + number) for number in ids]))

        def convert_ids_to_tokens(self, ids):
            return [chr(97 + number) for number in ids]

    sequence = continuation(Rewriting(), [0, 1, 2])
    assert sequence.text == "abc"
    assert [(token.start, token.end) for token in sequence.tokens] == [(0, 1), (1, 2), (2, 3)]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12), st.integers(0, 12))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_character_is_covered(text, cut):
    ids = ids_of(text)
    before = tokenize(TOKENIZER, text[:cut])
    rest = ids[len(before.ids) :]
    sequence = continuation(TOKENIZER, rest, before=before.sequence, before_ids=before.ids)
    assert sequence.text == text
    covered = set()
    for token in sequence.tokens:
        covered.update(range(token.start, token.end))
    assert covered == set(range(len(text.encode())))
