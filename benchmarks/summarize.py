"""How well models trained from nothing shorten abstracts: by the weight of their sentences, and by writing.

    python benchmarks/summarize.py --data DIR [--sets scitldr csl] [--styles extractive abstractive] [--minutes 10]

scitldr: English abstracts of papers and their gist in a sentence, its own division. csl: Chinese abstracts and titles
(csl_title_zh), learned from dev, of which a twentieth is held out to validate on; so few are far from enough to
learn to write. ROUGE beside that of the first sentences, and of the best that can be chosen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from runs import arguments, keep_rows, run, size_of
from setting import setting, write

from regard.tasks import evaluate, predict

SEED, SHOWN = 1, 3


def scitldr(data: Path, folder: Path) -> dict[str, Path]:
    """The division of those who made it."""
    names = {"train": "train.jsonl.gz", "valid": "dev.jsonl", "test": "test.jsonl.gz"}
    return {part: data / "scitldr" / name for part, name in names.items()}


def csl(data: Path, folder: Path) -> dict[str, Path]:
    """Columns: what is to be done, the abstract, the title."""
    paths = {}
    for part, name in (("train", "dev"), ("test", "test")):
        lines = (data / "csl_title_zh" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        columns = [line.split("\t") for line in lines]
        rows = ({"text": text, "summary": title} for _, text, title in columns)
        paths[part] = keep_rows(folder / f"{part}.jsonl", rows)
    return paths


SETS = {"scitldr": scitldr, "csl": csl}


def figures(paths: dict[str, Path], folder: Path, **settings: Any) -> dict[str, Any]:
    """Train and measure."""
    trained, known = run("summarize", paths["train"], folder, valid=paths.get("valid"), seed=SEED, **settings)
    report = evaluate(trained, paths["test"])
    kinds = ("rouge1", "rouge2", "rouge_l")
    found = {
        name: {kind: report.figures[name][kind]["f1"] for kind in kinds} for name in ("rouge", "baseline", "oracle")
    }
    over = 100 * (found["rouge"]["rouge_l"] - found["baseline"]["rouge_l"])
    first = [example.given for example in report.examples[:SHOWN]]
    return {
        "seconds": known["seconds"],
        "parameters": size_of(trained),
        **found,
        "sentences": trained.info.details["count"],
        "rouge_l_points_over_baseline": over,
        "said": [one.text for one in predict(trained, first)],
    }


def main() -> None:
    parser = arguments(__doc__, minutes=10)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--styles", nargs="+", default=["extractive", "abstractive"])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options, found = {"minutes": given.minutes, "preset": given.preset}, {}
    for name in given.sets:
        folder = given.runs / "summarize" / name
        paths = SETS[name](given.data, folder)
        for style in given.styles:
            found[f"{name}_{style}"] = figures(paths, folder / style, style=style, **options)
    write("summarize", {"setting": setting(seed=SEED, threads=given.threads, **options), **found})


if __name__ == "__main__":
    main()
