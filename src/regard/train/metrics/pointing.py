"""The pointing game: whether a map of an image points at what a word names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Bool

from regard.errors import all_problems, must_be
from regard.train.metrics._segments import check_numbers
from regard.train.metrics.result import Scored

Box = tuple[float, float, float, float]
"""Top, left, bottom, right, as shares of height and width: (0, 0, 1, 1) is the whole image."""


@dataclass(frozen=True)
class PointingGame(Scored):
    """How often the largest weight of a map lies in the box of what is named.

    Args:
        segments: 1 for every map whose largest weight lies in its box, 0 for every other; of equal weights the share
            that does.
        share: Their mean, 0 to 1.
        chance: The share that maps without any knowledge would get: that of the cells which lie in the box, a mean
            over all maps.
        count: How many maps.
    """

    share: float
    chance: float
    count: int

    def __str__(self) -> str:
        return f"pointing game {self.share:.4f} (chance {self.chance:.4f}, {self.count} words)"


def pointing_game(maps: Sequence[Any], boxes: Sequence[Box]) -> PointingGame:
    """The share of words whose largest attention lies in the box of what they name.

    A cell of a map lies in a box when they overlap: a patch that shows a part of a thing shows the thing.

    Args:
        maps: For every word a map [rows, columns] of the image: weights that are not negative.
        boxes: For every word the box of what it names.

    Raises:
        ShapeError: Not as many boxes as maps.
        ConfigError: No maps; something that is no map; a box that is none. Names every one of them.

    Source:
        Zhang et al. 2016, arXiv:1608.00507, section 4.2. There a point may lie 15 pixels beside its object; here it may
        lie beside it by less than a patch.

    Example:
        >>> from regard.train.metrics import pointing_game
        >>> print(pointing_game([[[0.7, 0.1], [0.1, 0.1]]], [(0.1, 0.1, 0.4, 0.4)]))
        pointing game 1.0000 (chance 0.2500, 1 words)
    """
    caller = "pointing_game"
    check_numbers(caller, maps=maps, boxes=boxes)
    grids = [_array(one) for one in maps]
    problems = [
        must_be(f"maps[{index}]", "of shape [rows, columns], finite and not negative", what)
        for index, grid in enumerate(grids)
        if (what := _wrong(grid)) is not None
    ]
    problems += [
        must_be(f"boxes[{index}]", "(top, left, bottom, right) in order, between 0 and 1", box)
        for index, box in enumerate(boxes)
        if not (len(box) == 4 and 0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1)
    ]
    if problems:
        raise all_problems(caller, problems)
    insides = [_inside(grid.shape, box) for grid, box in zip(grids, boxes, strict=True)]
    hits = tuple(float(inside[grid == grid.max()].mean()) for grid, inside in zip(grids, insides, strict=True))
    chance = fmean(float(inside.mean()) for inside in insides)
    return PointingGame(segments=hits, share=fmean(hits), chance=chance, count=len(hits))


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a tensor, which may need a gradient, lie on a device and be a half
        values = values.detach().cpu().double()
    return np.asarray(values, dtype=np.float64)


def _wrong(grid: np.ndarray) -> str | None:
    if grid.ndim != 2 or not grid.size:
        return f"of shape {grid.shape}"
    return None if (np.isfinite(grid) & (grid >= 0)).all() else "not everywhere"


def _inside(shape: tuple[int, ...], box: Box) -> Bool[np.ndarray, "rows columns"]:
    """Which cells overlap a box."""
    sides = []
    for length, start, end in zip(shape, box[:2], box[2:], strict=True):
        cells = np.arange(length)
        sides.append((cells / length < end) & (start < (cells + 1) / length))
    found: np.ndarray = sides[0][:, None] & sides[1][None]
    return found
