"""Scenes with a known truth: coloured shapes, what they are in words, and the box of each shape that is named.

    scenes(1000, language="zh", seed=1)

Everything follows from the seed. What a caption says is all there is to see, so a model can get it exactly right, and
where it looked when it wrote the name of a shape can be compared with where that shape is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.text import split_words

COLOURS = {
    "red": (214, 40, 40), "green": (44, 140, 70), "blue": (38, 84, 200), "yellow": (236, 196, 40),
    "purple": (130, 60, 170), "white": (245, 245, 245),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "cross")
CHINESE = {
    "red": "红色", "green": "绿色", "blue": "蓝色", "yellow": "黄色", "purple": "紫色", "white": "白色",
    "circle": "圆形", "square": "方块", "triangle": "三角", "cross": "十字",
    "top left": "左上角", "top right": "右上角", "bottom left": "左下角", "bottom right": "右下角",
}  # fmt: skip
PLACES = ("top left", "top right", "bottom left", "bottom right")


@dataclass(frozen=True, eq=False)
class Named:
    """A shape that a caption names.

    Args:
        word: The name, as it stands in the caption.
        box: Top, left, bottom, right of the shape, as shares of the image.
    """

    word: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Scene:
    """An image and the truth about it.

    Args:
        pixels: uint8 [size, size, 3].
        caption: What is in it.
        named: The shapes of the caption, in its order.
    """

    pixels: np.ndarray
    caption: str
    named: tuple[Named, ...]


def scenes(
    count: int, *, language: str = "en", size: int = 32, shapes: int = 2, colours: int = 6, seed: int = 0
) -> list[Scene]:
    """Draw scenes.

    Args:
        count: How many.
        language: "en" or "zh".
        size: Height and width, in pixels.
        shapes: How many shapes each has: 1 to 4, in as many corners, named row by row.
        colours: How many different ones there are, of those a scene has no two alike.
        seed: Decides everything.
    """
    draw = np.random.default_rng([seed, size, shapes])
    return [_scene(draw, language, size, shapes, list(COLOURS)[:colours]) for _ in range(count)]


def save(found: list[Scene], folder: Path) -> Path:
    """Write scenes as a table of PNG files and captions, as ``regard train caption`` reads them."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    lines = ["image\tcaption"]
    for number, scene in enumerate(found):
        Image.fromarray(scene.pixels).save(folder / f"{number:05}.png")
        lines.append(f"{number:05}.png\t{scene.caption}")
    table = folder / "captions.tsv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return table


def places_of(scene: Scene) -> list[list[int]]:
    """For each name in a caption the numbers of its words: a Chinese name has a word for every character."""
    words = [word.strip() for word in split_words(scene.caption) if word.strip()]
    found, start = [], 0
    for named in scene.named:
        parts = [word.strip() for word in split_words(named.word)]
        start = next(at for at in range(start, len(words)) if words[at : at + len(parts)] == parts)
        found.append(list(range(start, start + len(parts))))
        start += len(parts)
    return found


def _scene(draw: np.random.Generator, language: str, size: int, shapes: int, known: list[str]) -> Scene:
    pixels = draw.normal(70, 12, (size, size, 3))
    corners = sorted(draw.choice(len(PLACES), size=shapes, replace=False).tolist())
    colours = draw.choice(known, size=shapes, replace=False).tolist()
    parts, named = [], []
    for corner, colour in zip(corners, colours, strict=True):
        shape = SHAPES[int(draw.integers(len(SHAPES)))]
        radius = int(draw.integers(size // 8, size // 5 + 1))
        half = size // 2
        top, left = (int(draw.integers(0, half - 2 * radius + 1)) for _ in range(2))
        top, left = top + half * (corner // 2), left + half * (corner % 2)
        pixels[top : top + 2 * radius, left : left + 2 * radius][_filled(shape, radius)] = COLOURS[colour]
        box = (top / size, left / size, (top + 2 * radius) / size, (left + 2 * radius) / size)
        parts.append(_phrase(language, colour, shape, PLACES[corner]))
        named.append(Named(shape if language == "en" else CHINESE[shape], box))
    caption = " and ".join(parts) if language == "en" else "，".join(parts)
    return Scene(pixels.clip(0, 255).astype(np.uint8), caption, tuple(named))


def _phrase(language: str, colour: str, shape: str, place: str) -> str:
    if language == "en":
        return f"a {colour} {shape} at the {place}"
    return f"{CHINESE[place]}有{CHINESE[colour]}{CHINESE[shape]}"


def _filled(shape: str, radius: int) -> np.ndarray:
    """Which pixels of a square of side 2 · radius a shape fills."""
    row, column = np.mgrid[: 2 * radius, : 2 * radius] + 0.5
    down, right = row - radius, column - radius
    if shape == "circle":
        return down**2 + right**2 <= radius**2
    if shape == "triangle":
        return np.abs(right) <= row / 2
    if shape == "cross":
        return (np.abs(down) <= radius / 3) | (np.abs(right) <= radius / 3)
    return np.ones((2 * radius, 2 * radius), dtype=bool)
