"""Tokens a model wrote: their text, and the bytes of it that each token stands for."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

from regard import records
from regard.text.surrogates import REPLACEMENT

Span = tuple[int, int]


def continuation(
    tokenizer: Any,
    ids: Items[int],
    *,
    before: records.Sequence | None = None,
    before_ids: Items[int] = (),
    name: str = "output",
) -> records.Sequence:
    """The text of generated ids, appended to what came before, with exact byte offsets.

    A token that holds only part of a character (byte-level BPE) shares the bytes of the character it helps to write.

    Args:
        tokenizer: A Hugging Face tokenizer: ``decode``, ``convert_ids_to_tokens``, ``all_special_ids``.
        ids: The generated ids.
        before: The sequence that was continued; None when the output stands alone (translation).
        before_ids: Its ids.
        name: Name of the new sequence when it stands alone.

    Returns:
        A sequence that holds the tokens of ``before`` and the generated ones.

    Cost:
        Every prefix is decoded once; quadratic in the number of generated tokens.
    """
    start = before.text if before is not None else ""
    written, spans = _written(tokenizer, list(before_ids), list(ids))
    text = start + written
    byte_of = records.TextOffsets(text).byte_of
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    tokens = list(before.tokens) if before is not None else []
    for piece, span in zip(pieces, spans, strict=True):
        if span is None:
            tokens.append(records.Token(text=piece, start=-1, end=-1, special=True))
        else:
            first, last = span[0] + len(start), span[1] + len(start)
            tokens.append(records.Token(text[first:last] or piece, int(byte_of[first]), int(byte_of[last])))
    return records.Sequence(name=before.name if before is not None else name, text=text, tokens=tuple(tokens))


def _written(tokenizer: Any, before: list[int], ids: list[int]) -> tuple[str, list[Span | None]]:
    """Decode growing prefixes; a token's span is what it added."""
    special = set(tokenizer.all_special_ids)
    base = _decode(tokenizer, before)
    whole = _decode(tokenizer, before + ids)
    if not whole.startswith(base):
        return _one_by_one(tokenizer, ids, special)
    last = max((count for count, token in enumerate(ids, start=1) if token not in special), default=0)
    spans: list[Span | None] = []
    reached, waiting = len(base), list[int]()
    for count, token in enumerate(ids, start=1):
        if token in special:
            spans.append(None)
            continue
        now = whole if count == last else _decode(tokenizer, before + ids[:count]).rstrip(REPLACEMENT)
        if not whole.startswith(now):
            return _one_by_one(tokenizer, ids, special)
        waiting.append(len(spans))
        spans.append((reached, max(len(now), reached)))
        if len(now) > reached:
            for index in waiting[:-1]:
                spans[index] = (reached, reached + 1)
            reached, waiting = len(now), []
    cut = len(base)
    return whole[cut:], [None if span is None else (span[0] - cut, span[1] - cut) for span in spans]


def _one_by_one(tokenizer: Any, ids: list[int], special: set[int]) -> tuple[str, list[Span | None]]:
    """For decoders that rewrite what they have already written: every token decoded alone, and joined."""
    text, spans = "", list[Span | None]()
    for token in ids:
        if token in special:
            spans.append(None)
            continue
        written = _decode(tokenizer, [token])
        spans.append((len(text), len(text) + len(written)))
        text += written
    return text, spans


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
