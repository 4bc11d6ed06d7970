"""How well a Transformer trained from nothing translates, and its recurrent twin with the same data and minutes.

    python benchmarks/translation.py --data DIR [--pair zh-en|en-de] [--minutes 45] [--twin lstm-additive]

zh-en: Tatoeba (tatoeba_en_zh/cmn.tsv.gz), divided so that no sentence, Chinese or English, is on two sides; 2,000 pairs
to test. en-de: Multi30k (multi30k_en_de), its own division, test 2016. BLEU and chrF of greedy search and of five
beams; with a twin, the difference of BLEU with a bootstrap interval. Of each model one configuration is tried: that of
the preset, which was chosen before, for the Transformer.
"""

from __future__ import annotations

import gzip
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from runs import arguments, keep_rows, run, size_of, without_lists
from setting import setting, write

from regard.tasks import Trained, predict
from regard.text import Examples, ReadOptions, TextPair, linked, read_pairs, split
from regard.train.metrics import Bleu, bleu, chrf, paired_bootstrap

SEED, TEST, VALID = 1, 2000, 1000
Parts = dict[str, Path]


def chinese_english(data: Path, folder: Path) -> Parts:
    """Tatoeba, divided by groups of pairs that share a sentence."""
    options = ReadOptions(columns={"source": "2", "target": "1"}, header=False)
    pairs = read_pairs(data / "tatoeba_en_zh" / "cmn.tsv.gz", options=options)
    rest, test = split(pairs, count=TEST, seed=SEED, group=linked(pairs))
    learned, valid = split(rest, count=VALID, seed=SEED, group=linked(rest))
    parts = {"train": learned, "valid": valid, "test": test}
    return {name: keep_rows(folder / f"{name}.jsonl", map(asdict, part)) for name, part in parts.items()}


def english_german(data: Path, folder: Path) -> Parts:
    """Multi30k as it is divided by those who made it."""
    folder.mkdir(parents=True, exist_ok=True)
    source = data / "multi30k_en_de"
    with gzip.open(source / "train.tsv.gz") as packed, (folder / "train.tsv").open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    return {"train": folder / "train.tsv", "valid": source / "val.tsv", "test": source / "test_2016_flickr.tsv"}


PAIRS = {"zh-en": chinese_english, "en-de": english_german}


def scores(trained: Trained, test: Examples[TextPair], *, beams: int) -> tuple[dict[str, Any], Bleu]:
    """BLEU and chrF of a way to search."""
    said = [str(one) for one in predict(trained, [pair.source for pair in test], num_beams=beams)]
    wanted = [pair.target for pair in test]
    found = bleu(said, wanted)
    shown = {"bleu": without_lists(found.as_dict()), "chrf": without_lists(chrf(said, wanted).as_dict())}
    return shown, found


def figures(parts: Parts, folder: Path, **settings: Any) -> tuple[dict[str, Any], Bleu]:
    """Train and measure one model."""
    trained, known = run("translate", parts["train"], folder, valid=parts["valid"], seed=SEED, **settings)
    test = read_pairs(parts["test"])
    greedy, _ = scores(trained, test, beams=1)
    beam, statistic = scores(trained, test, beams=5)
    rounds = known["history"]
    best = min(one["loss"] for one in rounds)
    spent = {"seconds": known["seconds"], "updates": rounds[-1]["step"], "best_valid_loss": best}
    return {
        "parameters": size_of(trained),
        "configurations_tried": 1,
        **spent,
        "greedy": greedy,
        "beam_5": beam,
    }, statistic


def main() -> None:
    parser = arguments(__doc__, minutes=45)
    parser.add_argument("--pair", choices=PAIRS, default="zh-en")
    parser.add_argument("--twin", help="an architecture to train on the same data for as long")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = {"minutes": given.minutes, "preset": given.preset}
    parts = PAIRS[given.pair](given.data, given.runs / f"{given.pair}-data")
    counts = {name: len(read_pairs(path)) for name, path in parts.items()}
    ours, statistic = figures(parts, given.runs / given.pair, **settings)
    found = {"setting": setting(seed=SEED, pairs=counts, threads=given.threads, **settings), "transformer": ours}
    if given.twin:
        architecture = {"architecture": given.twin}
        found[given.twin], other = figures(parts, given.runs / f"{given.pair}-{given.twin}", **architecture, **settings)
        difference = paired_bootstrap(statistic.statistic, other.statistic, seed=SEED)
        found["difference"] = {"bleu": str(difference), **asdict(difference)}
    write(f"translation_{given.pair}", found)


if __name__ == "__main__":
    main()
