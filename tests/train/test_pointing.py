from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import ConfigError, ShapeError
from regard.train.metrics import pointing_game

QUARTER = (0.0, 0.0, 0.5, 0.5)


def one(grid, box):
    return pointing_game([grid], [box])


def at(row, column, shape=(4, 4)):
    grid = np.full(shape, 0.01)
    grid[row, column] = 0.5
    return grid


def test_the_largest_weight_decides() -> None:
    game = pointing_game([at(0, 1), at(2, 1), at(1, 1)], [QUARTER, QUARTER, QUARTER])
    assert game.segments == (1.0, 0.0, 1.0)
    assert (game.share, game.count) == (pytest.approx(2 / 3), 3)
    assert game.chance == pytest.approx(1 / 4)
    assert game.worst(1) == (1,)
    assert str(game) == "pointing game 0.6667 (chance 0.2500, 3 words)"
    assert game.as_dict() == {"segments": [1.0, 0.0, 1.0], "share": game.share, "chance": 0.25, "count": 3}


def test_a_patch_that_shows_a_part_of_a_thing_shows_it_and_one_beside_it_does_not() -> None:
    box = (0.24, 0.5, 0.26, 0.75)  # a little of two rows, exactly one column
    hits = {(row, column) for row in range(4) for column in range(4) if one(at(row, column), box).share}
    assert hits == {(0, 2), (1, 2)}
    assert one(at(0, 0), box).chance == pytest.approx(2 / 16)
    assert one(at(1, 5, (2, 8)), (0.5, 0.625, 1.0, 0.75)).share == 1  # rows and columns of different numbers
    assert one([[1.0]], (0.4, 0.4, 0.6, 0.6)).share == 1


def test_a_map_that_knows_nothing_gets_what_chance_gets() -> None:
    game = one(np.full((8, 8), 1 / 64), (0.1, 0.2, 0.6, 0.4))
    assert game.share == game.chance == pytest.approx(5 * 3 / 64)


def test_tensors_are_taken_as_they_are() -> None:
    grid = torch.tensor([[0.1, 0.9], [0.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    assert one(grid, (0.0, 0.6, 0.4, 1.0)).share == 1


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_map_or_no_box_is_named() -> None:
    good = at(0, 0)
    with pytest.raises(ShapeError, match=r"pointing_game\(\): `boxes` must be as many as `maps` \(2\), but is 1"):
        pointing_game([good, good], [QUARTER])
    with pytest.raises(ConfigError, match="`maps` must be at least one, but is empty"):
        pointing_game([], [])
    maps = [np.zeros(3), np.zeros((0, 2)), [[1.0, -1.0]], [[1.0, float("nan")]], good, good, good]
    boxes = [QUARTER] * 4 + [(0.5, 0.0, 0.2, 1.0), (0.0, 0.0, 1.0, 4.0), (0.0, 1.0)]
    with pytest.raises(ConfigError) as caught:
        pointing_game(maps, boxes)
    box = "(top, left, bottom, right) in order, between 0 and 1"
    expected = "of shape [rows, columns], finite and not negative, but is"
    assert str(caught.value) == "\n  - ".join(
        [
            "pointing_game(): 7 problems:",
            f"`maps[0]` must be {expected} of shape (3,).",
            f"`maps[1]` must be {expected} of shape (0, 2).",
            f"`maps[2]` must be {expected} not everywhere.",
            f"`maps[3]` must be {expected} not everywhere.",
            *(f"`boxes[{number}]` must be {box}, but is {boxes[number]}." for number in (4, 5, 6)),
        ]
    )
