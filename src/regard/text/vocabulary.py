"""Tokenizers trained on a person's own text, and the fingerprint by which a model knows its own."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from regard.errors import all_problems, missing_extra, must_be
from regard.text._unigram import train_unigram
from regard.text.segments import RUNS, WORDS, split_runs
from regard.text.surrogates import without_lone_surrogates
from regard.text.tokens import backend_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Kind = Literal["bpe", "unigram", "word", "character"]

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL = (PAD, BOS, EOS, UNK)  # ids 0, 1, 2, 3

_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_SINGLE = r"[\s\S]"
_MARK = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]")
_COVERED = 0.9995  # of all characters; rarer ones are written as bytes
_LONGEST = 16  # characters of a piece
_CHUNK = 1 << 16
_DECIDES = ("model", "normalizer", "pre_tokenizer", "post_processor")


def train_tokenizer(
    texts: Iterable[str], *, kind: Kind = "bpe", vocab_size: int = 8000, special: Sequence[str] = ()
) -> Tokenizer:
    """Train a tokenizer; the same texts give the same one.

    Ids 0 to 3 are ``<pad> <s> </s> <unk>``, then come ``special``, and for "bpe" and "unigram" the 256 bytes.

    - "bpe" (joins the most frequent neighbours) and "unigram" (the likeliest pieces) know every text: rare characters
      are written as bytes, and ``decode(encode(text).ids)`` is the text in NFC, white space and all.
    - "word" and "character" hold the most frequent words or characters; others are ``<unk>``.

    Chinese characters are never joined to letters of another script, digits stand apart ("word" keeps numbers whole
    and Chinese characters apart), and "，" is not turned into ",": the only normalisation is NFC. A space belongs
    to the word behind it.

    What a text says is never a special token: ``</s>`` in it is three ordinary pieces, also after saving and loading,
    because the special tokens are entries of the vocabulary and not "added tokens". Wrappers that add them (those of
    transformers do) must be told: ``PreTrainedTokenizerFast(tokenizer_object=…, split_special_tokens=True)``.
    ``encode`` puts ``<s>`` and ``</s>`` around a text unless ``add_special_tokens=False``; ``decode`` drops both.

    Args:
        texts: What to learn from. Lone surrogates become U+FFFD.
        kind: How texts are cut.
        vocab_size: How many ids there are at most; fewer where the texts do not give as many.
        special: Further special tokens, such as ``<mask>`` and ``<sep>``. ``<sep>`` stands between the texts of a pair.

    Returns:
        A ``tokenizers.Tokenizer``.

    Raises:
        ConfigError: with every problem.
        BackendUnavailableError: ``tokenizers`` is not installed.

    Cost:
        Linear in the text; "unigram" takes about ten times as long as "bpe".

    Example:
        >>> from regard.text import train_tokenizer
        >>> tokenizer = train_tokenizer(["the bank of the river", "银行在河边。"], vocab_size=300)
        >>> tokenizer.decode(tokenizer.encode("a river bank, 河边！ </s>").ids)
        'a river bank, 河边！ </s>'
    """
    library = _library()
    chunks = [
        chunk for text in texts for chunk in _chunks(unicodedata.normalize("NFC", without_lone_surrogates(text)[0]))
    ]
    reserved = (*SPECIAL, *special, *(_BYTES if kind in ("bpe", "unigram") else ()))
    _refuse(chunks, kind, vocab_size, special, len(reserved))
    room = vocab_size - len(reserved)
    builders = {"bpe": _bpe, "unigram": _unigram, "word": _word, "character": _character}
    tokenizer: Tokenizer = builders[kind](library, chunks, reserved, room)
    _frame(library, tokenizer, special)
    return tokenizer


def vocabulary_hash(tokenizer: Any) -> str:
    """A fingerprint of what decides which ids a text gets: SHA-256, in hexadecimal.

    Two exchanged entries change it; padding, truncation and how ids become text do not, nor does it matter whether
    special tokens of the vocabulary are marked as such, as transformers does.

    Args:
        tokenizer: A ``tokenizers.Tokenizer``, or a fast tokenizer of transformers.

    Raises:
        ConfigError: The tokenizer is none of those.
    """
    backend = backend_of(tokenizer, caller="vocabulary_hash")
    written = json.loads(backend.to_str())
    decides = {part: written[part] for part in _DECIDES}
    model = dict(decides["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = sorted(model["vocab"].items(), key=lambda entry: (entry[1], entry[0]))
    added = sorted((token["id"], token["content"]) for token in written["added_tokens"])
    known = backend.get_vocab(with_added_tokens=False)
    decides |= {"model": model, "added": [entry for entry in added if known.get(entry[1]) != entry[0]]}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise missing_extra("tokenizers", "hf", "training a tokenizer") from error
    return tokenizers


def _chunks(text: str) -> Iterator[str]:
    """A text in parts of moderate size, cut at line ends: a tokenizer keeps many bytes for every character at once."""
    start = 0
    while len(text) - start > _CHUNK:
        end = text.rfind("\n", start, start + _CHUNK) + 1 or start + _CHUNK
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _refuse(chunks: Sequence[str], kind: str, vocab_size: int, special: Sequence[str], reserved: int) -> None:
    problems = []
    if kind not in get_args(Kind):
        problems.append(must_be("kind", f"one of {', '.join(get_args(Kind))}", repr(kind)))
    if not chunks:
        problems.append(must_be("texts", "at least one text with something in it", "empty"))
    if vocab_size <= reserved:
        problems.append(must_be("vocab_size", f"more than {reserved}, the ids that are taken already", vocab_size))
    for token in special:
        if not _MARK.fullmatch(token):
            problems.append(
                must_be("special", "tokens in brackets that no word is, such as <mask> or [SEP]", repr(token))
            )
    if len({*SPECIAL, *special}) < len(SPECIAL) + len(special):
        problems.append(must_be("special", f"different from each other and from {', '.join(SPECIAL)}", list(special)))
    if problems:
        raise all_problems("train_tokenizer", problems)


def _alphabet(chunks: Sequence[str], room: int) -> list[str]:
    """The most frequent characters, enough for nearly all of the text, in at most half of the room."""
    counts = Counter[str]()
    for chunk in chunks:
        counts.update(chunk)
    wanted, reached, found = _COVERED * counts.total(), 0, list[str]()
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if reached >= wanted or 2 * len(found) >= room:
            break
        found.append(character)
        reached += count
    return found


def _merged(library: Any, chunks: Sequence[str], alphabet: Sequence[str], size: int) -> tuple[list[str], list[Any]]:
    """Pieces of byte-pair encoding in the order of their ids, and the pairs that made them."""
    learner = library.Tokenizer(library.models.BPE())
    learner.pre_tokenizer = _cutter(library, RUNS)
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),  # none but these: those of the texts that are left over are dropped first
        max_token_length=_LONGEST,
        show_progress=False,
    )
    learner.train_from_iterator(chunks, trainer)
    model = json.loads(learner.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), [tuple(pair) for pair in model["merges"]]


def _bpe(library: Any, chunks: Sequence[str], reserved: Sequence[str], room: int) -> Any:
    pieces, merges = _merged(library, chunks, _alphabet(chunks, room), room)
    ids = {piece: number for number, piece in enumerate((*reserved, *pieces))}
    tokenizer = library.Tokenizer(library.models.BPE(ids, merges, byte_fallback=True, unk_token=UNK))
    tokenizer.pre_tokenizer = _cutter(library, RUNS)
    return tokenizer


def _unigram(library: Any, chunks: Sequence[str], reserved: Sequence[str], room: int) -> Any:
    alphabet = _alphabet(chunks, room)
    seeds, _ = _merged(library, chunks, alphabet, 4 * room)
    words = Counter(run for chunk in chunks for run in split_runs(chunk))
    pieces = train_unigram(library.models.Unigram, words, seeds, size=room)
    entries = [*((token, 0.0) for token in reserved), *pieces]
    tokenizer = library.Tokenizer(library.models.Unigram(entries, unk_id=SPECIAL.index(UNK), byte_fallback=True))
    tokenizer.pre_tokenizer = _cutter(library, RUNS)
    return tokenizer


def _word(library: Any, chunks: Sequence[str], reserved: Sequence[str], room: int) -> Any:
    return _whole(library, chunks, reserved, room, WORDS)


def _character(library: Any, chunks: Sequence[str], reserved: Sequence[str], room: int) -> Any:
    return _whole(library, chunks, reserved, room, _SINGLE)


def _whole(library: Any, chunks: Sequence[str], reserved: Sequence[str], room: int, pattern: str) -> Any:
    """A tokenizer of the most frequent parts that a pattern cuts."""
    learner = library.Tokenizer(library.models.WordLevel(unk_token=UNK))
    learner.pre_tokenizer = _cutter(library, pattern)
    learner.train_from_iterator(chunks, library.trainers.WordLevelTrainer(vocab_size=room, show_progress=False))
    found = learner.get_vocab()
    pieces = sorted(found, key=found.__getitem__)
    ids = {piece: number for number, piece in enumerate((*reserved, *pieces))}
    tokenizer = library.Tokenizer(library.models.WordLevel(ids, unk_token=UNK))
    tokenizer.pre_tokenizer = _cutter(library, pattern)
    return tokenizer


def _cutter(library: Any, pattern: str) -> Any:
    return library.pre_tokenizers.Split(library.Regex(pattern), "isolated")


def _frame(library: Any, tokenizer: Any, special: Sequence[str]) -> None:
    """What is around the model: NFC before it, special tokens around its ids, and text from ids."""
    tokenizer.normalizer = library.normalizers.NFC()
    between = next((token for token in special if token in ("<sep>", "[SEP]")), EOS)
    tokenizer.post_processor = library.processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        pair=f"{BOS} $A {between} $B:1 {EOS}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((BOS, between, EOS))],
    )
    dropped = "|".join(re.escape(token) for token in (PAD, BOS, EOS, *special))
    decoders = library.decoders
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(library.Regex(rf"\A(?:{dropped})\z"), ""), decoders.ByteFallback(), decoders.Fuse()]
    )
