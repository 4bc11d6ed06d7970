"""One text, or a pair of texts, as the tokens a model reads and the bytes each token came from.

Tokenizers report code points, let the pieces of one character all claim that character, and sometimes let a marker
claim a character that is not its own. Here every token gets exact UTF-8 byte offsets:

- pieces of one character (byte-level BPE, expanded ligatures) share the character's bytes; ``regard.records`` groups
  tokens that share bytes, so they are shown as one character in 1/3, 2/3, 3/3;
- a word-start marker (``▁``) alone has width 0, unless it stands for white space that is really there;
- white space and line ends keep their own bytes, also when the tokenizer trims its offsets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard import records
from regard.errors import ConfigError, message, must_be
from regard.text.surrogates import without_lone_surrogates

if TYPE_CHECKING:
    from torch import Tensor

PAIR_SEPARATOR = "\n"
_MARKER = "▁"
_SPACE_PIECES = frozenset("Ġ▁ ")
_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Tokenized:
    """What a model reads, and where it came from.

    Args:
        ids: The token ids, special tokens included.
        type_ids: 0 for the first text, 1 for the second.
        unknown: Which tokens the vocabulary lacks.
        sequence: The text and its tokens, for a recording. The two texts of a pair are joined by a line end.
        input_names: The inputs the tokenizer says its model takes.
        replaced: How many lone surrogates were replaced by U+FFFD before tokenizing.
    """

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    unknown: tuple[bool, ...]
    sequence: records.Sequence
    input_names: tuple[str, ...]
    replaced: int = 0

    def inputs(self) -> dict[str, Tensor]:
        """The model's keyword arguments: a batch of one."""
        import torch  # here, so that reading a text does not wait for it

        known = {
            "input_ids": self.ids,
            "attention_mask": (1,) * len(self.ids),
            "token_type_ids": self.type_ids,
        }
        return {name: torch.tensor([known[name]]) for name in self.input_names if name in known}

    @property
    def unknown_share(self) -> float:
        """Share of the tokens with text that the vocabulary lacks; 0 when there are none."""
        lacking = [flag for flag, token in zip(self.unknown, self.sequence.tokens, strict=True) if not token.special]
        return sum(lacking) / len(lacking) if lacking else 0.0

    @property
    def unknown_pieces(self) -> tuple[str, ...]:
        """The distinct texts of the unknown tokens, in order of appearance."""
        tokens = zip(self.unknown, self.sequence.tokens, strict=True)
        return tuple(dict.fromkeys(token.text for flag, token in tokens if flag and not token.special))


def tokenize(
    tokenizer: Any, text: str, *, pair: str | None = None, name: str = "input", add_special_tokens: bool = True
) -> Tokenized:
    """Tokenize a text, or a pair of texts, and say which bytes every token came from.

    Nothing is truncated or padded: the whole text is tokenized, whatever the tokenizer's file says.

    Args:
        tokenizer: A fast Hugging Face tokenizer, or a ``tokenizers.Tokenizer``.
        text: The text. Lone surrogates are replaced by U+FFFD and counted (``replaced``).
        pair: A second text, for models that read two.
        name: Name of the sequence in the recording.
        add_special_tokens: Add the tokens the model expects around a text, such as [CLS].

    Returns:
        Ids and the sequence with byte offsets.

    Raises:
        ConfigError: The tokenizer cannot say where its tokens came from.
    """
    backend = backend_of(tokenizer, caller="tokenize")
    first, replaced = without_lone_surrogates(text)
    second, replaced_too = without_lone_surrogates(pair) if pair is not None else (None, 0)
    encoding = _encode(backend, first, second, add_special_tokens=add_special_tokens)
    whole = first if second is None else f"{first}{PAIR_SEPARATOR}{second}"
    shift = len(first) + len(PAIR_SEPARATOR)
    spans = _character_spans(encoding, whole, shift)
    unknown_id = _unknown_id(tokenizer, backend)
    return Tokenized(
        ids=tuple(encoding.ids),
        type_ids=tuple(encoding.type_ids),
        unknown=tuple(unknown_id is not None and token == unknown_id for token in encoding.ids),
        sequence=records.Sequence(name=name, text=whole, tokens=_tokens(encoding.tokens, spans, whole)),
        input_names=tuple(getattr(tokenizer, "model_input_names", ("input_ids", "attention_mask"))),
        replaced=replaced + replaced_too,
    )


def tokens_of(tokenizer: Any, text: str, *, pair: str | None = None, name: str = "input") -> records.Sequence:
    """The text and its tokens with exact byte offsets: ``tokenize(...).sequence``.

    Args:
        tokenizer: As for ``tokenize``.
        text: As for ``tokenize``.
        pair: As for ``tokenize``.
        name: As for ``tokenize``.

    Raises:
        ConfigError: The tokenizer cannot say where its tokens came from.
    """
    return tokenize(tokenizer, text, pair=pair, name=name).sequence


def backend_of(tokenizer: Any, *, caller: str) -> Any:
    """The ``tokenizers.Tokenizer`` inside, which is the part that knows offsets.

    Raises:
        ConfigError: There is none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "encode_batch") or not hasattr(backend, "no_truncation"):
        problem = must_be(
            "tokenizer", "a fast tokenizer, which knows where its tokens came from", type(tokenizer).__name__
        )
        raise ConfigError(message(caller, problem))
    return backend


def _encode(backend: Any, first: str, second: str | None, *, add_special_tokens: bool) -> Any:
    """Encode with truncation and padding off, and put both back as they were."""
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    try:
        return backend.encode(first, second, add_special_tokens=add_special_tokens)
    finally:
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)


def _unknown_id(tokenizer: Any, backend: Any) -> int | None:
    if hasattr(tokenizer, "unk_token_id"):
        # Byte-level models often name their end token as the unknown one: they have no unknown token.
        return tokenizer.unk_token_id if tokenizer.unk_token_id != tokenizer.eos_token_id else None
    piece = getattr(backend.model, "unk_token", None)
    if piece is not None:
        known: int | None = backend.token_to_id(piece)
        return known
    number = getattr(backend.model, "unk_id", None)
    return int(number) if number is not None else None


def _character_spans(encoding: Any, text: str, shift: int) -> list[tuple[int, int]]:
    """Code points of every token in the joined text; (-1, -1) for tokens without text."""
    spans: list[tuple[int, int]] = []
    reached = 0
    for piece, (start, end), special, part in zip(
        encoding.tokens, encoding.offsets, encoding.special_tokens_mask, encoding.sequence_ids, strict=True
    ):
        if special or part is None:
            spans.append((-1, -1))
            continue
        moved = shift if part == 1 else 0
        span = _own_span(piece, start + moved, end + moved, text, reached)
        spans.append(span)
        reached = max(reached, span[1])
    return _bytes_apart(encoding.tokens, spans, text)


def _bytes_apart(pieces: Items[str], spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Give every byte of a run of characters that a unigram model does not know the character it is part of."""
    at = 0
    while at < len(spans):
        start, end = spans[at]
        run = at
        while run < len(spans) and spans[run] == (start, end) and _BYTE.fullmatch(pieces[run]):
            run += 1
        owners = [start + i for i, character in enumerate(text[start:end]) for _ in character.encode()]
        if end - start > 1 and len(owners) == run - at:
            spans[at:run] = [(owner, owner + 1) for owner in owners]
        at = max(run, at + 1)
    return spans


def _own_span(piece: str, start: int, end: int, text: str, reached: int) -> tuple[int, int]:
    """Correct what tokenizers say about markers and trimmed white space."""
    if set(piece) == {_MARKER} and not text[start:end].isspace():
        return start, start
    if start == end and piece and set(piece) <= _SPACE_PIECES:
        before = start - len(piece)
        if before >= reached and text[before:start].isspace():
            return before, start
        if text[start : start + len(piece)].isspace():
            return start, start + len(piece)
    return start, end


def _tokens(pieces: Items[str], spans: Items[tuple[int, int]], text: str) -> tuple[records.Token, ...]:
    """Tokens with byte offsets; the text of a token is what the person wrote, else the vocabulary's piece."""
    byte_of = records.TextOffsets(text).byte_of
    tokens = []
    for piece, (start, end) in zip(pieces, spans, strict=True):
        if start < 0:
            tokens.append(records.Token(text=piece, start=-1, end=-1, special=True))
            continue
        tokens.append(records.Token(text[start:end] or piece, int(byte_of[start]), int(byte_of[end])))
    return tuple(tokens)
