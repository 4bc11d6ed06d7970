"""Data that tests make: small languages with rules that can be learned in seconds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

GOOD = ("good", "fine", "lovely", "bright", "好", "精彩", "喜欢")
BAD = ("bad", "dull", "awful", "grey", "差", "无聊", "讨厌")
NEITHER = ("the", "film", "a", "of", "电影", "这", "scene", "was")
SOURCE = ("一", "二", "三", "四", "五", "六")
TARGET = ("one", "two", "three", "four", "five", "six")


def reviews(path: Path, count: int = 200, seed: int = 0) -> Path:
    """``label<TAB>text``: one word decides."""
    draw = random.Random(seed)
    lines = ["label\ttext"]
    for number in range(count):
        label, words = (("pos", GOOD), ("neg", BAD))[number % 2]
        text = [draw.choice(NEITHER) for _ in range(draw.randrange(2, 7))]
        text.insert(draw.randrange(len(text) + 1), draw.choice(words))
        lines.append(f"{label}\t{' '.join(text)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def numbers(path: Path, count: int = 300, seed: int = 0) -> Path:
    """``source<TAB>target``: every character is a word."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        chosen = [draw.randrange(6) for _ in range(draw.randrange(1, 5))]
        lines.append("".join(SOURCE[n] for n in chosen) + "\t" + " ".join(TARGET[n] for n in chosen))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rhymes(path: Path, count: int = 400, seed: int = 0) -> Path:
    """One text whose lines go in turn."""
    draw = random.Random(seed)
    lines = [f"{draw.choice('abc') * 3} {draw.choice('xyz') * 2}" for _ in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def images(folder: Path, count: int = 120, size: int = 12, seed: int = 0) -> Path:
    """A folder for each label, in English and in Chinese: a square of that colour, somewhere."""
    from PIL import Image

    draw = np.random.default_rng(seed)
    for number in range(count):
        label, colour = (("yellow", (250, 220, 40)), ("蓝", (20, 60, 250)))[number % 2]
        pixels = draw.integers(0, 90, (size, size, 3), dtype=np.uint8)
        row, column = draw.integers(0, size - 5, size=2)
        pixels[row : row + 5, column : column + 5] = colour
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / label / f"{number:03}.png")
    return folder
