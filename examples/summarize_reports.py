"""Train a tiny model to find the sentence that matters, in English and Chinese, and another one to write it anew."""

from __future__ import annotations

import json
import random
from pathlib import Path

from regard.tasks import evaluate, predict, train

THINGS = {"en": ("sleep", "tea", "rain", "snow"), "zh": ("睡眠", "茶叶", "雨水", "白雪")}
FOUND = {"en": "We show that {} works.", "zh": "我们证明{}有效。"}
SHORT = {"en": "{} works", "zh": "{}有效"}
OTHERS = {
    "en": ("The sky is grey.", "Nobody was there.", "It was a long day.", "The shop is closed."),
    "zh": ("天空是灰色的。", "那里没有人。", "今天很长。", "商店关门了。"),
}


def report(draw: random.Random, language: str) -> tuple[list[str], str]:
    """Five sentences, and what one of them says."""
    thing, sentences = draw.choice(THINGS[language]), draw.choices(OTHERS[language], k=4)
    sentences.insert(draw.randrange(5), FOUND[language].format(thing))
    return sentences, SHORT[language].format(thing)


draw = random.Random(0)
lines = []
for number in range(300):
    sentences, summary = report(draw, ("en", "zh")[number % 2])
    lines.append(json.dumps({"text": sentences, "summary": summary}, ensure_ascii=False))
Path("reports.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

options = {"preset": "tiny", "learning_rate": 4e-3, "warmup": 20}
train("summarize", "reports.jsonl", "chooser", steps=60, **options)
figures = evaluate("chooser", "reports.jsonl").figures
reached, first = (figures[name]["rouge_l"]["f1"] for name in ("rouge", "baseline"))
print(f"ROUGE-L: chosen {reached:.2f}, the first sentence {first:.2f}")
assert reached > first + 0.2

sentences, summary = report(draw, "zh")
(found,) = predict("chooser", ["".join(sentences)])
for sentence in found.sentences:
    print(f"{sentence.weight:.2f} {sentence.text}")
assert summary[:2] in found.text

train("summarize", "reports.jsonl", "writer", steps=150, style="abstractive", **options)
print(f"{found.text} → {predict('writer', [''.join(sentences)])[0]}")
