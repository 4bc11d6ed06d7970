"""How well a model trained from nothing describes scenes, and whether it looks at what it names.

    python benchmarks/captions.py [--count 4000] [--minutes 8] [--preset tiny] [--languages en zh]

For each language: exact match and BLEU on scenes that were held out, and the pointing game for the names of shapes, by
layer and for the mean of all layers, beside chance.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from scenes import Scene, places_of, save, scenes
from setting import setting, write

from regard.tasks import Trained, evaluate, train
from regard.tasks.caption import word_maps
from regard.train.metrics import PointingGame, pointing_game

SEED, HELD_OUT = 1, 300


def pointing(trained: Trained, held_out: list[Scene], layer: int | None) -> PointingGame:
    """The game for every name of a shape, while the right caption is written."""
    maps, boxes = [], []
    for scene in held_out:
        found = word_maps(trained, scene.pixels, caption=scene.caption, layer=layer)
        for named, pieces in zip(scene.named, places_of(scene), strict=True):
            maps.append(sum(found[piece].weights for piece in pieces) / len(pieces))
            boxes.append(named.box)
    return pointing_game(maps, boxes)


def figures(language: str, count: int, options: dict[str, Any]) -> dict[str, Any]:
    """Train and measure."""
    with tempfile.TemporaryDirectory() as folder:
        held_out = scenes(HELD_OUT, language=language, seed=SEED + 2)
        data = save(scenes(count, language=language, seed=SEED), Path(folder, "train"))
        valid = save(scenes(HELD_OUT, language=language, seed=SEED + 1), Path(folder, "valid"))
        test = save(held_out, Path(folder, "test"))
        outcome = train("caption", data, Path(folder, "model"), valid=valid, seed=SEED, **options)
        report = evaluate(outcome.model, test)
    layers: list[int | None] = [*range(len(outcome.model.model.model.decoder.layers)), None]
    games = {"mean" if layer is None else str(layer): pointing(outcome.model, held_out, layer) for layer in layers}
    return {
        "seconds": round(outcome.seconds, 1),
        "exact_match": report.figures["exact_match"],
        "bleu": report.figures["bleu"]["score"],
        "chance": games["mean"].chance,
        "pointing_game": {name: game.share for name, game in games.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--languages", nargs="+", default=["en", "zh"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    options = {"minutes": given.minutes, "preset": given.preset}
    found = {language: figures(language, given.count, options) for language in given.languages}
    write("captions", {"setting": setting(seed=SEED, count=given.count, threads=given.threads, **options), **found})


if __name__ == "__main__":
    main()
