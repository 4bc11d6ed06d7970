"""Train a tiny model to find answers in short stories, in English and Chinese, and ask it about a long one."""

from __future__ import annotations

import json
import random
from pathlib import Path

from regard.tasks import evaluate, observe, predict, train

PEOPLE = {"en": ("Anna", "Boris", "Clara", "David"), "zh": ("小王", "老李", "阿梅", "大卫")}
PLACES = {"en": ("garden", "kitchen", "attic"), "zh": ("花园", "厨房", "阁楼")}
TOLD = {"en": "{} is in the {}. ", "zh": "{}在{}里。"}
FILLER = {"en": "The weather is fine. ", "zh": "今天天气很好。"}
ASKED = {"en": "Where is {}?", "zh": "{}在哪里？"}


def story(draw: random.Random, language: str) -> tuple[str, str, str]:
    """The weather, two people, where they are, and a question about one of them."""
    people, places = draw.sample(PEOPLE[language], 2), draw.sample(PLACES[language], 2)
    text = "".join(TOLD[language].format(*each) for each in zip(people, places, strict=True))
    text = FILLER[language] * draw.randrange(4) + text
    asked = draw.randrange(2)
    return text, ASKED[language].format(people[asked]), places[asked]


draw = random.Random(0)
lines = []
for number in range(400):
    context, question, answer = story(draw, ("en", "zh")[number % 2])
    lines.append(json.dumps({"context": context, "question": question, "answer": answer}, ensure_ascii=False))
Path("questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

options = {"preset": "tiny", "steps": 250, "learning_rate": 4e-3, "warmup": 20}
outcome = train("answer", "questions.jsonl", "model", **options)
report = evaluate("model", "questions.jsonl")
print(report)
assert report.figures["exact_match"] > 0.9

for language, filler in FILLER.items():
    context, question, answer = story(draw, language)
    (found,) = predict("model", [(question, 100 * filler + context)])
    print(f"{question} {found.text}, from character {found.start}")
    assert found.text == answer

_, recording = observe("model", (question, context))
print(recording.notes[-1])
