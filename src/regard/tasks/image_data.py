"""Images as a trainer reads them: a little elsewhere in every epoch, the same ones whenever the epoch comes again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from regard.tasks.pixels import ImageForm
from regard.train.data import Row, RowData, TrainData

PIXELS = "pixel_values"
_PIXELS_A_SHIFT = 28  # one pixel for images of that size, two at most


@dataclass(frozen=True)
class Changes:
    """How an image may change from epoch to epoch.

    Args:
        shift: It moves by up to so many pixels in both directions; its edges are repeated.
        flip: Left and right may change places.
    """

    shift: int = 0
    flip: bool = False

    @classmethod
    def usual(cls, size: int, *, flip: bool = False) -> Changes:
        """A pixel or two, by the size of the images."""
        return cls(min(2, max(1, size // _PIXELS_A_SHIFT)), flip)

    def of(
        self, pixels: UInt8[np.ndarray, "channels height width"], draw: np.random.Generator
    ) -> UInt8[np.ndarray, "channels height width"]:
        """The image as it is this time."""
        down, right = draw.integers(-self.shift, self.shift + 1, size=2)
        rows, columns = (
            (np.arange(length) - by).clip(0, length - 1)
            for length, by in zip(pixels.shape[1:], (down, right), strict=True)
        )
        if self.flip and draw.random() < 0.5:
            columns = columns[::-1]
        return pixels[:, rows[:, None], columns]


class ImageData(TrainData):
    """Images and what is to be said of them.

    In the first epoch, which is that of validations, images are as they are; in later ones they are changed, by what
    the seed, the epoch and the number of the image draw. So a training that goes on after a stop sees what it would
    have seen.

    Args:
        pixels: uint8 [images, channels, size, size].
        targets: For each image its targets, by name.
        lengths: As for ``TrainData``.
        form: Makes them what the model reads.
        collate: Makes a batch of the targets.
        places: As for ``TrainData``.
        changes: How images change from epoch to epoch.
        seed: Decides how.
    """

    def __init__(
        self,
        pixels: np.ndarray,
        targets: Sequence[Row],
        lengths: Sequence[tuple[int, ...]],
        *,
        form: ImageForm,
        collate: Callable[[Sequence[Row]], dict[str, Tensor]],
        places: Sequence[str] = (),
        changes: Changes = Changes(),
        seed: int = 0,
    ) -> None:
        def batch(rows: Sequence[Row]) -> dict[str, Tensor]:
            images = form.tensor(np.stack([row[PIXELS] for row in rows]))
            return {PIXELS: images, **collate([_without_pixels(row) for row in rows])}

        super().__init__(batch, lengths, places)
        self._pixels, self._targets = pixels, targets
        self._form, self._changes, self._seed = form, changes, seed

    def row(self, index: int, epoch: int) -> Row:
        """An image as it is in an epoch, and its targets."""
        pixels = self._pixels[index]
        if epoch > 0:
            pixels = self._changes.of(pixels, np.random.default_rng([self._seed, epoch, index]))
        return {PIXELS: pixels, **self._targets[index]}

    def fingerprint(self) -> str:
        """Of the images, the targets, and how images are read and changed."""
        digest = hashlib.sha256(f"{self._form} {self._changes} {self._pixels.shape}".encode())
        digest.update(np.ascontiguousarray(self._pixels).tobytes())
        digest.update(RowData(self._targets, self.lengths, self.collate).fingerprint().encode())
        return digest.hexdigest()


def _without_pixels(row: Row) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if name != PIXELS}
