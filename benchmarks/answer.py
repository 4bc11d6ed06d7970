"""How well a model trained from nothing finds answers in texts, beside the words that stand nearest to the question's.

    python benchmarks/answer.py --data DIR [--sets cmrc babi] [--minutes 30] [--preset small]

cmrc: Chinese. Learned from DRCD's dev and test and CMRC 2018's trial, a twentieth of which is held out to validate on;
tested on CMRC 2018's dev. DRCD's traditional characters become simplified ones, one by one, where OpenCC is installed
(opencc-python-reimplemented); the figures say whether they did. babi: English stories. The tasks all of whose answers
stand in their stories, where there are rows to learn from and to test on, by one model; exact match of each, of all.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from runs import arguments, keep_rows, run, size_of
from setting import setting, write

from regard.tasks import Trained, evaluate, predict
from regard.text import joined, read_questions
from regard.train.baselines import overlap_answer
from regard.train.metrics import exact_match_and_f1

SEED = 1


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def figures(trained: Trained, known: dict[str, Any], test: Path) -> dict[str, Any]:
    """What a run came to."""
    found = evaluate(trained, test).figures
    kept = {name: found[name] for name in ("exact_match", "f1", "scheme", "baseline")}
    over = 100 * (found["f1"] - found["baseline"]["f1"])
    return {"seconds": known["seconds"], "parameters": size_of(trained), **kept, "f1_points_over_baseline": over}


def shared(train: Path, test: Path) -> int:
    """How many of the test's questions have a context that is learned from."""
    learned = {one.context for one in read_questions(train)}
    return sum(one.context in learned for one in read_questions(test))


def simplified(rows: Iterable[Any]) -> list[Any]:
    """All texts in simplified characters; one for one, so that answers stay where they are."""
    from opencc import OpenCC

    text = json.dumps(list(rows), ensure_ascii=False)
    convert = OpenCC("t2s").convert
    table = {ord(character): convert(character) for character in set(text)}
    found: list[Any] = json.loads(text.translate({old: new for old, new in table.items() if len(new) == 1}))
    return found


def cmrc(data: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """Learned mostly from what was written in one script of Chinese, tested on the other."""
    drcd = [row for part in ("dev", "test") for row in rows_of(data / "drcd" / f"{part}.jsonl.gz")]
    one_script = find_spec("opencc") is not None
    rows = [*(simplified(drcd) if one_script else drcd), *rows_of(data / "cmrc2018" / "trial.jsonl.gz")]
    train = keep_rows(folder / "train.jsonl", rows)
    trained, known = run("answer", train, folder / "model", seed=SEED, **settings)
    test = data / "cmrc2018" / "dev.jsonl.gz"
    return {"one_script": one_script, "contexts_learned_from": shared(train, test), **figures(trained, known, test)}


def babi(data: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """All tasks at once, each by itself in the figures."""
    parts = {name: list(rows_of(data / "babi" / f"{name}.jsonl.gz")) for name in ("train", "test")}
    tasks = sorted(set.intersection(*({row["task"] for row in rows} for rows in parts.values())))
    elsewhere = {row["task"] for rows in parts.values() for row in rows if row["answer"] not in joined(row["story"])}
    tasks = [task for task in tasks if task not in elsewhere]
    paths = {
        name: keep_rows(folder / f"{name}.jsonl", (row for row in rows if row["task"] in tasks))
        for name, rows in parts.items()
    }
    trained, known = run("answer", paths["train"], folder / "model", seed=SEED, **settings)
    each = {task: exact_in(trained, [row for row in parts["test"] if row["task"] == task], folder) for task in tasks}
    of = {"contexts_learned_from": shared(paths["train"], paths["test"])}
    return {**of, **figures(trained, known, paths["test"]), "exact_match_by_task": each}


def exact_in(trained: Trained, rows: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    """Exact match of one task, and that of the baseline."""
    asked = read_questions(keep_rows(folder / "task.jsonl", rows))
    golds = [[answer.text for answer in one.answers] for one in asked]
    said = [one.text for one in predict(trained, [(one.question, one.context) for one in asked])]
    nearest = [overlap_answer(one.question, one.context) for one in asked]
    found, beside = (exact_match_and_f1(texts, golds).exact_match for texts in (said, nearest))
    return {"model": found, "baseline": beside}


SETS = {"cmrc": cmrc, "babi": babi}


def main() -> None:
    parser = arguments(__doc__, minutes=30)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options = {"minutes": given.minutes, "preset": given.preset}
    found = {name: SETS[name](given.data, given.runs / "answer" / name, **options) for name in given.sets}
    write("answer", {"setting": setting(seed=SEED, threads=given.threads, **options), **found})


if __name__ == "__main__":
    main()
