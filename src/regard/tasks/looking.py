"""Where a model of images looked: recordings whose keys are the patches of an image, named by row and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard import records
from regard.errors import ConfigError, message
from regard.lens import watch
from regard.lens.usual import SHORT, usual_probes
from regard.tasks.trained import Trained

IMAGE = "image"
_LEADING = ("[CLS]", "[DIST]")  # what transformers' vision models put before the patches


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
    if not seen.layers:
        raise ConfigError(message("observe", f"{trained.name} must have attention to be looked at, but has none."))
    readers = {layer.kv_end for layer in seen.layers if layer.kind == "cross" or written is None}
    leading = {kv_end - (grid or 0) ** 2 for kv_end in readers}
    named = grid is not None and len(leading) == 1 and 0 <= min(leading) <= len(_LEADING)
    if not named or any(layer.batch != 1 for layer in seen.layers):
        notes = (*notes, "the patches have numbers: this model does not read all of them at once, row by row")
        return seen.recording(model_name=trained.name, notes=notes)
    image = patch_sequence(grid or 0, min(leading))
    sequences = [[image] if written is None else [image, written]]
    return seen.recording(sequences=sequences, model_name=trained.name, notes=notes)
