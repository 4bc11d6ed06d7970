"""One use of a trained model while its attention is watched, as a recording that can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard import records
from regard.lens import watch
from regard.lens.usual import usual_probes
from regard.tasks.trained import Trained
from regard.text import tokenize


def sequence_of(
    trained: Trained, text: str, *, pair: str | None = None, name: str = "input"
) -> tuple[records.Sequence, dict[str, Tensor]]:
    """A text with the bytes of every token, and the model's inputs for it.

    Args:
        trained: The model whose tokenizer reads it.
        text: The text.
        pair: A second text.
        name: What the page calls it.
    """
    read = tokenize(trained.tokenizer, text, pair=pair, name=name)
    return read.sequence, read.inputs()


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
    """
    with torch.no_grad(), watch(trained.model, usual_probes(length, total=total)) as seen:
        run()
    return seen.recording(sequences=sequences, model_name=trained.name, notes=notes)
