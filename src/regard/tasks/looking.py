"""Where a model of images looked: recordings whose keys are the patches of an image, named by row and column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64

from regard import records
from regard.lens import watch
from regard.lens.usual import SHORT, usual_probes
from regard.ops import Rows
from regard.tasks.tables import words_of
from regard.tasks.trained import Trained
from regard.tasks.watching import check_seen

IMAGE = "image"
_LEADING = ("[CLS]", "[DIST]")  # what transformers' vision models put before the patches


@dataclass(frozen=True, eq=False)
class WordMap:
    """Where a model looked when it wrote a word.

    Args:
        word: The word, without the space before it.
        weights: For every patch its share of the attention.
    """

    word: str
    weights: Float[np.ndarray, "rows columns"]


def grid_of(config: Any) -> int | None:
    """Patches along a side of a model's images; None for a model that does not cut them into patches."""
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    return size // patch if isinstance(size, int) and isinstance(patch, int) else None


def patch_sequence(grid: int, leading: int = 0) -> records.Sequence:
    """The patches of an image, row by row: ``row,column``, both from 0.

    Args:
        grid: Patches along a side.
        leading: Tokens of the model's own before them.
    """
    own = tuple(records.Token(name, -1, -1, special=True) for name in _LEADING[:leading])
    patches = tuple(records.Token(f"{row},{column}", -1, -1) for row in range(grid) for column in range(grid))
    return records.Sequence(name=IMAGE, text="", tokens=(*own, *patches))


def watched_image(
    trained: Trained,
    run: Callable[[], Any],
    config: Any,
    *,
    written: records.Sequence | None = None,
    notes: tuple[str, ...] = (),
) -> records.Recording:
    """Run a model on one image and keep what its attention did.

    Args:
        trained: The model.
        run: Runs it once.
        config: Of the part that reads images.
        written: What the model wrote, if it writes.
        notes: What a person should know.

    Returns:
        A recording. The patches have names where the model reads all of them at once, row by row; a model that reads
        windows of them, or others, gets numbers, and a note.

    Raises:
        ConfigError: the model has no attention.
    """
    grid = grid_of(config)
    patches = SHORT + 1 if grid is None else grid**2 + len(_LEADING)
    with (
        torch.no_grad(),
        watch(trained.model, usual_probes(max(patches, len(written.tokens) if written else 0))) as seen,
    ):
        run()
    check_seen(trained, seen)
    readers = {layer.kv_end for layer in seen.layers if layer.kind == "cross" or written is None}
    leading = {kv_end - (grid or 0) ** 2 for kv_end in readers}
    named = grid is not None and len(leading) == 1 and 0 <= min(leading) <= len(_LEADING)
    if not named or any(layer.batch != 1 for layer in seen.layers):
        notes = (
            *notes,
            "the patches have numbers: this model does not read all of them, row by row, after its own tokens",
        )
        return seen.recording(model_name=trained.name, notes=notes)
    image = patch_sequence(grid or 0, min(leading))
    sequences = [[image] if written is None else [image, written]]
    return seen.recording(sequences=sequences, model_name=trained.name, notes=notes)


def patch_weights(model: Any, run: Callable[[], Any], *, grid: int | None) -> list[Float64[np.ndarray, "rows patches"]]:
    """The cross-attention of each layer to the patches of an image, a mean over heads.

    Args:
        model: The model.
        run: Runs it once on one image.
        grid: Patches along a side.

    Returns:
        One array for each layer, in their order; none where the model does not look at the patches.
    """
    if grid is None:
        return []
    with torch.no_grad(), watch(model, [Rows()]) as seen:
        run()
    layers = [found.rows[0].mean(dim=0).double().numpy() for found in seen.layers if found.kind == "cross"]
    if not layers or layers[0].shape[-1] < grid**2:
        return []
    return [weights[:, -(grid**2) :] for weights in layers]


def map_words(
    weights: Sequence[Float64[np.ndarray, "rows patches"]], *, grid: int, written: records.Sequence
) -> list[WordMap]:
    """The mean of some layers for each word of a text, as maps of the patches.

    Args:
        weights: Of each layer; row i is that which wrote token i.
        grid: Patches along a side.
        written: The tokens that the rows wrote.
    """
    maps = np.mean(weights, axis=0).reshape(-1, grid, grid)
    return [WordMap(word.text, maps[word.tokens].mean(axis=0)) for word in words_of(written)]
