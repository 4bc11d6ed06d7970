"""Trainings of an hour that can be stopped: what the benchmarks of tasks share."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from regard.tasks import Trained, load, train


def arguments(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """The options that every benchmark of a task has.

    Args:
        description: Of the benchmark.
        **defaults: Of ``minutes`` and ``preset``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("REGARD_DATA")
    where = "the folder with a folder for each data set (or REGARD_DATA)"
    parser.add_argument("--data", type=Path, default=data, required=data is None, help=where)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where models and checkpoints go")
    parser.add_argument("--minutes", type=float, default=defaults.get("minutes"))
    parser.add_argument("--preset", default=defaults.get("preset", "small"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def run(task: str, data: Path, folder: Path, **settings: Any) -> tuple[Trained, dict[str, Any]]:
    """Train; go on where a run that was stopped left off; take a run that has ended as it is.

    Returns:
        (the model, what is known of its training: ``seconds``, ``settings``, ``history``).

    Raises:
        SystemExit: the folder holds a run with other settings.
    """
    asked, kept = {name: str(value) for name, value in settings.items()}, folder.with_name(f"{folder.name}.asked.json")
    if kept.is_file() and (before := json.loads(kept.read_text(encoding="utf-8"))) != asked:
        raise SystemExit(f"{folder} holds a run with {before}, not with {asked}: take it away, or choose other --runs")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asked), encoding="utf-8")
    if not (folder / "report.json").is_file():
        train(task, data, folder, resume=folder.is_dir() and any(folder.iterdir()), **settings)
    known: dict[str, Any] = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    return load(folder, task=task), known


def keep_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write examples as JSON lines, for the commands to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def without_lists(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures without what they have for every sentence."""
    return {name: value for name, value in figures.items() if not isinstance(value, list | tuple) or len(value) < 10}


def size_of(trained: Trained) -> int:
    """How many parameters a model has."""
    return sum(weight.numel() for weight in trained.model.parameters())
