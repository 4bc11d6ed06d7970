from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from regard.errors import BackendUnavailableError, ConfigError
from regard.text import continuation, split_words, tokenize, train_tokenizer, vocabulary_hash

KINDS = ("bpe", "unigram", "word", "character")
TEXTS = [
    "The bank is by the river bank, and the river is by the bank.",
    "She doesn't know whether 3.14 or 2024 is meant.",
    "银行在河边，河边有银行。「你好」，他说。",
    "我用Python写了100行代码。",
    "مرحبا بالعالم 👍🏽",
] * 3
TRAINED = {kind: train_tokenizer(TEXTS, kind=kind, vocab_size=420) for kind in KINDS}
ODD = [
    "",
    " ",
    "\t\tif x:\n\n    return  'y'  \r\n",
    "龘𠮷，「」",
    "👨‍👩‍👧 👍🏽",
    "مرحبا",
    "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x00h",
    "</s><unk><s> <pad> <0x41> [SEP]",
    "e\u0301 \uac00 \u1100\u1161",
    "１２３ ½ Ⅳ 〇",
    "\u202fx\u00a0y\u3000z\u200b",
]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_text_comes_back(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids) == unicodedata.normalize("NFC", text)
    assert (encoding.ids[0], encoding.ids[-1]) == (1, 2)
    assert not {0, 1, 2, 3} & set(encoding.ids[1:-1])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"])))
def test_any_text_comes_back(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    assert tokenizer.decode(tokenizer.encode(text).ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1))
def test_bytes_belong_to_their_characters(kind: str, text: str) -> None:
    text = unicodedata.normalize("NFC", text)
    data = text.encode()
    tokens = [token for token in tokenize(TRAINED[kind], text).sequence.tokens if not token.special]
    assert tokens[0].start == 0
    assert tokens[-1].end == len(data)
    for token, following in pairwise(tokens):
        assert following.start in (token.start, token.end)
    pieces = TRAINED[kind].encode(text, add_special_tokens=False).tokens
    for token, piece in zip(tokens, pieces, strict=True):
        assert data[token.start : token.end].decode() == token.text
        assert len(token.text) == 1 if piece.startswith("<0x") else token.text == piece


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_bytes_after_them(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, kind=kind, vocab_size=420, special=("<mask>", "<sep>"))
    first = [tokenizer.id_to_token(i) for i in range(6)]
    assert first == ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<sep>"]
    has_bytes = kind in ("bpe", "unigram")
    assert (tokenizer.token_to_id("<0x00>"), tokenizer.token_to_id("<0xFF>")) == (
        (6, 261) if has_bytes else (None, None)
    )
    assert tokenizer.get_vocab_size() <= 420
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))
    pair = tokenizer.encode("The bank", "银行")
    assert [pair.ids[0], pair.ids[-1]] == [1, 2]
    assert pair.ids.count(5) == 1
    assert 4 not in tokenizer.encode("<mask>").ids
    assert tokenizer.decode(pair.ids) == "The bank银行"


def test_scripts_and_digits_are_not_joined() -> None:
    for kind in ("bpe", "unigram"):
        for piece in TRAINED[kind].get_vocab():
            han = any("\u4e00" <= c <= "\u9fff" for c in piece)
            assert not (han and any(c.isascii() and c.isalnum() for c in piece)), piece
            assert piece.startswith("<0x") or sum(c.isdigit() for c in piece) <= 1, piece
        assert "银行" in TRAINED[kind].encode("银行").tokens
        assert TRAINED[kind].encode("写了100行").tokens[1:-1] == ["写了", "1", "0", "0", "行"]
    assert TRAINED["word"].encode("银行 2024").tokens == ["<s>", "银", "行", " ", "2024", "</s>"]
    assert TRAINED["bpe"].decode(TRAINED["bpe"].encode("，「」！").ids) == "，「」！"


def test_words_and_characters_that_are_not_known_are_counted() -> None:
    words = tokenize(TRAINED["word"], "The bank is 龘 by the sea")
    assert words.unknown_pieces == ("龘", " sea")
    assert TRAINED["word"].decode(TRAINED["word"].encode("The sea").ids) == "The<unk>"
    characters = tokenize(TRAINED["character"], "ba龘")
    assert (characters.unknown_pieces, characters.unknown_share) == (("龘",), pytest.approx(1 / 3))
    assert TRAINED["character"].decode(TRAINED["character"].encode("ba龘 kn").ids) == "ba<unk> kn"


def test_a_prompt_of_characters_that_were_never_seen() -> None:
    text, prompt = "abc\n" * 100, "d?"
    characters = tokenize(train_tokenizer([text], kind="character"), prompt)
    assert (characters.ids, characters.unknown_pieces) == ((1, 3, 3, 2), ("d", "?"))
    tokenizer = train_tokenizer([text], vocab_size=270)
    assert tokenize(tokenizer, prompt).unknown_share == 0.0
    assert tokenizer.decode(tokenizer.encode(prompt).ids) == prompt


CODE = """
import sys
from regard.text import train_tokenizer, vocabulary_hash
texts = [f"row {i} of the bank {i * 7919 % 101} 河边{chr(0x4e00 + i % 97)}银行" for i in range(3000)]
print([vocabulary_hash(train_tokenizer(iter(texts), kind=kind, vocab_size=500)) for kind in sys.argv[1:]])
"""


def test_the_same_texts_give_the_same_tokenizer_in_every_process() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CODE, *KINDS], capture_output=True, check=True, encoding="utf-8").stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(set(json.loads(runs[0].replace("'", '"')))) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_two_exchanged_entries_change_the_fingerprint(kind: str) -> None:
    tokenizer = TRAINED[kind]
    written = json.loads(tokenizer.to_str())
    vocab = written["model"]["vocab"]
    if isinstance(vocab, list):
        vocab[-1], vocab[-2] = vocab[-2], vocab[-1]
    else:
        one, other = list(vocab)[-2:]
        vocab[one], vocab[other] = vocab[other], vocab[one]
    other = Tokenizer.from_str(json.dumps(written))
    assert other.get_vocab_size() == tokenizer.get_vocab_size()
    assert vocabulary_hash(other) != vocabulary_hash(tokenizer)


def test_the_fingerprint_is_of_what_decides_ids_only(tmp_path) -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=420)
    wanted = vocabulary_hash(tokenizer)
    assert len(wanted) == 64
    tokenizer.enable_padding(pad_id=0, pad_token="<pad>")
    tokenizer.enable_truncation(8)
    assert vocabulary_hash(tokenizer) == wanted
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, split_special_tokens=True, **names)
    assert vocabulary_hash(wrapped) == wanted
    wrapped.save_pretrained(tmp_path)
    assert vocabulary_hash(PreTrainedTokenizerFast.from_pretrained(tmp_path)) == wanted
    wrapped.add_tokens(["another"])
    assert vocabulary_hash(wrapped) != wanted
    tokenizer.normalizer = None
    assert vocabulary_hash(tokenizer) != wanted
    with pytest.raises(ConfigError, match=r"vocabulary_hash\(\): `tokenizer` must be a fast tokenizer"):
        vocabulary_hash(object())


def test_what_is_written_has_exact_places() -> None:
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=TRAINED["bpe"], split_special_tokens=True, **names)
    ids = wrapped("银行 龘 bank", add_special_tokens=False)["input_ids"]
    found = continuation(wrapped, [*ids, 2])
    assert found.text == "银行 龘 bank"
    assert found.tokens[-1].special
    assert [token.text for token in found.tokens if token.text.strip()][:2] == ["银行", "龘"]


def test_long_texts_and_lone_surrogates_are_learnt_from() -> None:
    long = "the river bank and a line\n" * 20_000
    tokenizer = train_tokenizer([long, "half \ud83d"], vocab_size=300)
    assert " river" in tokenizer.get_vocab()
    assert tokenizer.decode(tokenizer.encode(long[:99]).ids) == long[:99]


@pytest.mark.usefixtures("unchecked")
def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        train_tokenizer([""], vocab_size=200, special=("mask", "<s>"))
    assert str(raised.value) == (
        "train_tokenizer(): 4 problems:"
        "\n  - `texts` must be at least one text with something in it, but is empty."
        "\n  - `vocab_size` must be more than 262, the ids that are taken already, but is 200."
        "\n  - `special` must be tokens in brackets that no word is, such as <mask> or [SEP], but is 'mask'."
        "\n  - `special` must be different from each other and from <pad>, <s>, </s>, <unk>, but is ['mask', '<s>']."
    )
    with pytest.raises(ConfigError, match="`kind` must be one of bpe, unigram, word, character, but is 'wordpiece'"):
        train_tokenizer(["a"], kind="wordpiece")


def test_the_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        BackendUnavailableError, match=r"training a tokenizer needs the package `tokenizers`.*regard\[hf\]"
    ):
        train_tokenizer(["a"])


def test_word_pieces_are_those_of_split_words() -> None:
    for text in (*TEXTS, *ODD):
        text = unicodedata.normalize("NFC", text)
        cut = [part for part, _ in TRAINED["word"].pre_tokenizer.pre_tokenize_str(text)]
        assert cut == list(split_words(text))
