"""One use of a trained model while its attention is watched, as a recording that can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard import records
from regard.errors import ConfigError, message
from regard.lens import Seen, watch
from regard.lens.usual import usual_probes
from regard.tasks.encoding import kept_of
from regard.tasks.trained import Trained
from regard.text import tokenize


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it.

    Args:
        sequence: Its tokens, with the bytes they came from.
        inputs: The model's, for a batch of one.
        notes: What a person should know.
    """

    sequence: records.Sequence
    inputs: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def reading_of(trained: Trained, text: str, *, pair: str | None = None, name: str = "input") -> Reading:
    """A text with the bytes of every token, and the model's inputs for it; what it does not read is cut off.

    Args:
        trained: The model whose tokenizer reads it.
        text: The text.
        pair: A second text.
        name: What the page calls it.
    """
    read, limit = tokenize(trained.tokenizer, text, pair=pair, name=name), trained.info.max_tokens
    notes = unknown_notes(read.unknown_share)
    whole, length = read.sequence, len(read.ids)
    if length <= limit:
        return Reading(whole, read.inputs(), tuple(notes))
    kept = kept_of(length, limit)
    tokens = tuple(whole.tokens[place] for place in kept)
    shown = whole.text.encode()[: max((token.end for token in tokens), default=0)].decode()
    notes.append(f"The text has {length:,} tokens; the model reads {limit:,}: its end is left out.")
    inputs = {input_name: values[:, kept] for input_name, values in read.inputs().items()}
    return Reading(replace(whole, text=shown, tokens=tokens), inputs, tuple(notes))


def unknown_notes(share: float) -> list[str]:
    """What is to be said where the vocabulary lacks a share of the tokens."""
    return [f"{share:.0%} of the tokens are unknown to this model."] if share else []


def watched(
    trained: Trained,
    run: Callable[[], Any],
    sequences: Sequence[Sequence[records.Sequence]],
    *,
    length: int,
    total: int | None = None,
    notes: Sequence[str] = (),
) -> records.Recording:
    """Run the model and keep what its attention did.

    Args:
        trained: The model.
        run: Runs it once.
        sequences: For each input the texts its attention is between.
        length: Of the longest.
        total: For generation: the length there may be.
        notes: What a person should know.

    Raises:
        ConfigError: the model has no attention.
    """
    with torch.no_grad(), watch(trained.model, usual_probes(length, total=total)) as seen:
        run()
    check_seen(trained, seen)
    return seen.recording(sequences=sequences, model_name=trained.name, notes=notes)


def check_seen(trained: Trained, seen: Seen) -> None:
    """Refuse a model in which there was nothing to see.

    Raises:
        ConfigError: it has no attention.
    """
    if not seen.layers:
        raise ConfigError(message("observe", f"{trained.name} must have attention to be looked at, but has none."))
