"""Train a tiny model to say in words what it sees, and check that it looks at the thing while it writes its colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from regard.tasks import evaluate, predict, train
from regard.tasks.caption import word_maps
from regard.train.metrics import pointing_game

COLOURS = {"red": (220, 40, 40), "green": (40, 160, 70), "blue": (40, 80, 200)}
SIZE, SIDE = 16, 5


def scene(draw: np.random.Generator) -> tuple[np.ndarray, str, tuple[float, float, float, float]]:
    """A square on noise, what it is in words, and its box as shares of the image."""
    name = list(COLOURS)[draw.integers(3)]
    top, left = draw.integers(0, SIZE - SIDE + 1, size=2)
    pixels = draw.integers(60, 90, (SIZE, SIZE, 3), dtype=np.uint8)
    pixels[top : top + SIDE, left : left + SIDE] = COLOURS[name]
    box = (top / SIZE, left / SIZE, (top + SIDE) / SIZE, (left + SIDE) / SIZE)
    return pixels, f"there is a {name} square", box


draw = np.random.default_rng(0)
lines = ["image\tcaption"]
Path("scenes").mkdir()
for number in range(300):
    pixels, caption, _ = scene(draw)
    Image.fromarray(pixels).save(f"scenes/{number}.png")
    lines.append(f"{number}.png\t{caption}")
Path("scenes/captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

options = {"preset": "tiny", "steps": 150, "learning_rate": 4e-3, "warmup": 20, "batch_rows": 32}
outcome = train("caption", "scenes/captions.tsv", "model", **options)
print(predict("model", ["scenes/0.png"])[0])
report = evaluate("model", "scenes/captions.tsv", num_beams=1)
print(f"exact match {report.figures['exact_match']:.0%}")
assert report.figures["exact_match"] > 0.9

maps, boxes = [], []
for _ in range(50):
    pixels, caption, box = scene(draw)
    maps.append(word_maps(outcome.model, pixels, caption=caption)[3].weights)  # of the colour
    boxes.append(box)
game = pointing_game(maps, boxes)
print(game)
assert game.share > 2 * game.chance
