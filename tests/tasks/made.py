"""Data that tests make: small languages with rules that can be learned in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

GOOD = ("good", "fine", "lovely", "bright", "好", "精彩", "喜欢")
BAD = ("bad", "dull", "awful", "grey", "差", "无聊", "讨厌")
NEITHER = ("the", "film", "a", "of", "电影", "这", "scene", "was")
SOURCE = ("一", "二", "三", "四", "五", "六")
TARGET = ("one", "two", "three", "four", "five", "six")
PEOPLE = {"en": ("Anna", "Boris", "Clara"), "zh": ("小王", "老李", "阿梅")}
PLACES = {"en": ("garden", "kitchen", "attic"), "zh": ("花园", "厨房", "阁楼")}
TOLD = {"en": "Today {} is in the {}.", "zh": "今天{}在{}里。"}
ASKED = {"en": ("Who is there?", "Where is it?", "How much?"), "zh": ("谁在那里？", "在哪里？", "多少钱？")}
FILLER = {
    "en": ("The sky is grey.", "Nobody was there.", "It was a long day.", "The shop is closed."),
    "zh": ("天空是灰色的。", "那里没有人。", "今天很长。", "商店关门了。"),
}
NEWS = {"en": "We show that {} works.", "zh": "我们证明{}有效。"}
THINGS = {"en": ("sleep", "tea", "rain", "snow"), "zh": ("睡眠", "茶叶", "雨水", "白雪")}


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


def questions(path: Path, count: int = 240, seed: int = 0, *, unanswerable: bool = False) -> Path:
    """SQuAD's answers in JSON Lines: what is asked decides which of two kinds of words is the answer."""
    draw, lines = random.Random(seed), []
    for number in range(count):
        language, kind = ("en", "zh")[number % 2], draw.randrange(3 if unanswerable else 2)
        words = draw.choice(PEOPLE[language]), draw.choice(PLACES[language])
        context = f"{number}. {TOLD[language].format(*words)}"
        answers = [{"text": words[kind], "answer_start": context.index(words[kind])}] if kind < 2 else []
        lines.append({"context": context, "question": ASKED[language][kind], "answers": answers})
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    return path


def document(draw: random.Random, language: str, sentences: int = 4) -> tuple[list[str], str]:
    """Sentences, one of which says something, and that one in short."""
    thing = draw.choice(THINGS[language])
    found = [draw.choice(FILLER[language]) for _ in range(sentences)]
    found.insert(draw.randrange(sentences + 1), NEWS[language].format(thing))
    return found, (f"{thing} works" if language == "en" else f"{thing}有效")


def documents(path: Path, count: int = 240, seed: int = 0) -> Path:
    """JSON Lines in both languages: lists of sentences and whole texts in turn."""
    draw, lines = random.Random(seed), []
    for number in range(count):
        language = ("en", "zh")[number % 2]
        sentences, summary = document(draw, language)
        text = sentences if number % 4 < 2 else ("" if language == "zh" else " ").join(sentences)
        lines.append(json.dumps({"text": text, "summary": summary}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
