"""Train a small vision transformer to tell hand-made digits apart, and see which patches are looked at most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from regard.tasks import evaluate, observe, predict, train

SEGMENTS = {"一": ["middle"], "二": ["top", "bottom"], "三": ["top", "middle", "bottom"]}
ROWS = {"top": 4, "middle": 9, "bottom": 14}


def drawn(label: str, draw: np.random.Generator) -> np.ndarray:
    """A number in Chinese: its strokes, a little elsewhere each time, on noise."""
    pixels = draw.integers(0, 60, (20, 20), dtype=np.uint8)
    down, right = draw.integers(-2, 3, size=2)
    for name in SEGMENTS[label]:
        pixels[ROWS[name] + down : ROWS[name] + down + 2, 5 + right : 15 + right] = 230
    return pixels


draw = np.random.default_rng(0)
for split, count in (("train", 90), ("test", 30)):
    for number in range(count):
        label = list(SEGMENTS)[number % 3]
        path = Path(split, label, f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn(label, draw)).save(path)

options = {"preset": "tiny", "steps": 120, "learning_rate": 3e-3, "warmup": 20, "batch_rows": 30}
train("classify-image", "train", "model", valid="test", **options)
report = evaluate("model", "test")
print(f"accuracy on images it has not seen: {report.figures['accuracy']:.0%}")
assert report.figures["accuracy"] > 0.8

image = "test/二/1.png"
print(f"{image} is {predict('model', [image])[0].label}")
said, recording = observe("model", image)
grid = int(len(recording.sequences[0][0].tokens) ** 0.5)
mass = recording.calls[-1].values["key_mass"][0].mean(axis=0).reshape(grid, grid)
print("where the patches looked in the last layer:")
for row in mass / mass.sum():
    print("".join(f"{share:6.1%}" for share in row))
