"""Train the model that the Transformer replaced on a little language, and see what it looked at for every word."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from regard.tasks import observe, predict, train

NUMBERS = {"一": "one", "二": "two", "三": "three", "四": "four", "五": "five", "六": "six"}


def pair(draw: random.Random) -> str:
    """Some numbers in Chinese, and the same in English."""
    chosen = draw.choices(list(NUMBERS), k=draw.randrange(1, 5))
    return f"{' '.join(chosen)}\t{' '.join(NUMBERS[one] for one in chosen)}"


draw = random.Random(0)
Path("numbers.tsv").write_text("\n".join(pair(draw) for _ in range(400)) + "\n", encoding="utf-8")

options = {"preset": "tiny", "tokenizer": "word", "steps": 120, "learning_rate": 1e-2, "warmup": 10}
for name in ("transformer", "lstm-additive"):
    outcome = train("translate", "numbers.tsv", name, architecture=name, batch_tokens=500, **options)
    print(
        f"{name}: {outcome.model.model.num_parameters():,} weights, BLEU {outcome.report.figures['bleu']['score']:.0f}"
    )

source = "三 一 四"
print(f"{source} is {predict('lstm-additive', [source])[0].text}")
said, recording = observe("lstm-additive", source)
weights = recording.calls[0].values["rows"][0, 0]  # where it looked for the token after each
read, written = (part.tokens for part in recording.sequences[0])
for token, row in zip(written[1:], weights, strict=False):
    print(f"{token.text:>8} ← {read[int(np.argmax(row))].text!r} {row.max():.0%}")
