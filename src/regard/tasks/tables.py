"""Tables for the page of a prediction: words, and what they have most to do with, as exact sums of attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64

from regard import records
from regard.lens import watch
from regard.ops import SpanMass
from regard.text import spans_of

MEAN = "a mean over heads and layers"


@dataclass(frozen=True)
class WordTokens:
    """A word of a sequence.

    Args:
        text: The word, without white space around it.
        tokens: Its tokens.
    """

    text: str
    tokens: range


def words_of(sequence: records.Sequence) -> list[WordTokens]:
    """The words of a sequence that tokens hold, without white space; words that share a token are one.

    Args:
        sequence: Tokens with the bytes they came from. Special tokens belong to no word.
    """
    return [WordTokens(span.label, span.tokens) for span in spans_of(sequence) if span.label and span.tokens]


def word_table(
    model: Any,
    run: Callable[[], Any],
    *,
    kind: Literal["self", "cross"],
    rows: Sequence[WordTokens],
    columns: Sequence[WordTokens],
    name: str,
    note: str,
    shift: int = 0,
    chosen: Sequence[int] = (),
) -> tuple[records.Table, ...]:
    """How much of the attention of each word goes to each other word.

    The sum over the tokens of a column, the mean over those of a row, over heads, and over layers.

    Args:
        model: The model.
        run: Runs it once on one input.
        kind: Of the attention that counts.
        rows: The words that look.
        columns: The words that are looked at.
        name: Of the table.
        note: How its numbers were made.
        shift: From a row's tokens to the queries that belong to them: −1 for what was written, one query before.
        chosen: Columns that the model chose.

    Returns:
        The table; none where there is no such attention, or there are no words.
    """
    rows = [word for word in rows if word.tokens.start + shift >= 0]
    if not rows or not columns:
        return ()
    key_spans = [(word.tokens.start, word.tokens.stop) for word in columns]
    query_spans = [(word.tokens.start + shift, word.tokens.stop + shift) for word in rows]
    with torch.no_grad(), watch(model, [SpanMass(key_spans, query_spans)]) as seen:
        run()
    found = [layer.span_mass[0].double().mean(dim=0).numpy() for layer in seen.layers if layer.kind == kind]
    return (named_table(np.mean(found, axis=0), rows, columns, name=name, note=note, chosen=chosen),) if found else ()


def named_table(
    values: Float64[np.ndarray, "rows columns"],
    rows: Sequence[WordTokens],
    columns: Sequence[WordTokens],
    *,
    name: str,
    note: str,
    chosen: Sequence[int] = (),
) -> records.Table:
    """A table of words."""
    return records.Table(
        name=name,
        note=note,
        rows=tuple(word.text for word in rows),
        columns=tuple(word.text for word in columns),
        values=values,
        chosen=tuple(chosen),
    )
