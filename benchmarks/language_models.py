"""How well a decoder trained from nothing goes on with texts: Shakespeare by characters, and Tang poems.

    python benchmarks/language_models.py --data DIR [--text shakespeare|poems] [--minutes 25]

shakespeare: tinyshakespeare, the last tenth of the characters held out, and of what is before a twentieth to choose the
best round by; nats per character, in windows as long as the model reads, without overlap. poems: tang_poems_zh, 1,000
poems held out, each different from all others, and 500 more to choose by; how many couplets of 200 written poems are
well formed (two lines of five or of seven characters), the same for poems that were held out, and how many written
lines stand in a poem that was learned from.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from runs import arguments, keep_rows, run, size_of
from setting import setting, write

from regard.tasks import Trained, evaluate, predict

SEED, HELD_OUT, CHOSEN, WRITTEN = 1, 1000, 500, 200


def known_of(trained: Trained, known: dict[str, Any], test: Path) -> dict[str, Any]:
    """What a run came to."""
    found = evaluate(trained, test).figures
    return {"seconds": known["seconds"], "parameters": size_of(trained), **found}


def shakespeare(data: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """Characters, one after another."""
    text = gzip.decompress((data / "tinyshakespeare" / "input.txt.gz").read_bytes()).decode()
    cut, chosen = int(len(text) * 0.9), int(len(text) * 0.9 * 0.95)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.txt" for name in ("train", "valid", "test")}
    for path, part in zip(paths.values(), (text[:chosen], text[chosen:cut], text[cut:]), strict=True):
        path.write_text(part, encoding="utf-8")
    trained, known = run(
        *("generate", paths["train"], folder / "model"),
        **{"valid": paths["valid"], "tokenizer": "character", "seed": SEED, **settings},
    )
    return known_of(trained, known, paths["test"])


def poems(data: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """Poems, each a text of its own."""
    table = gzip.decompress((data / "tang_poems_zh" / "poems.tsv.gz").read_bytes()).decode()
    texts = list(dict.fromkeys(line.split("\t")[2] for line in table.rstrip("\n").split("\n")))
    held_out, chosen, learned = texts[:HELD_OUT], texts[HELD_OUT : HELD_OUT + CHOSEN], texts[HELD_OUT + CHOSEN :]
    train = keep_rows(folder / "train.jsonl", ({"text": text} for text in learned))
    valid = keep_rows(folder / "valid.jsonl", ({"text": text} for text in chosen))
    test = keep_rows(folder / "test.jsonl", ({"text": text} for text in held_out))
    trained, known = run(
        *("generate", train, folder / "model"),
        **{"valid": valid, "tokenizer": "character", "seed": SEED, **settings},
    )
    written = [predict(trained, [""], max_new_tokens=100, seed=seed)[0].text for seed in range(WRITTEN)]
    lines = [line for poem in written for couplet in couplets(poem) for line in couplet]
    seen = {line for poem in learned for couplet in couplets(poem) for line in couplet}
    return {
        **known_of(trained, known, test),
        "well_formed": well_formed(written),
        "well_formed_held_out": well_formed(held_out),
        "lines_learned_by_heart": sum(line in seen for line in lines) / max(1, len(lines)),
        "poems": written[:5],
    }


def couplets(poem: str) -> list[list[str]]:
    """The lines of every couplet."""
    return [re.split("，", part) for part in re.split("[。？！；]", poem.strip()) if part]


def well_formed(texts: Iterable[str]) -> float:
    """The share of the couplets that are two lines of five or of seven characters."""
    found = [couplet for text in texts for couplet in couplets(text)]
    right = [couplet for couplet in found if len(couplet) == 2 and {len(line) for line in couplet} in ({5}, {7})]
    return len(right) / max(1, len(found))


TEXTS = {"shakespeare": shakespeare, "poems": poems}


def main() -> None:
    parser = arguments(__doc__, minutes=25)
    parser.add_argument("--text", choices=TEXTS, default="shakespeare")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = {"minutes": given.minutes, "preset": given.preset}
    found = TEXTS[given.text](given.data, given.runs / given.text, **settings)
    write(f"language_models_{given.text}", {"setting": setting(seed=SEED, threads=given.threads, **settings), **found})


if __name__ == "__main__":
    main()
