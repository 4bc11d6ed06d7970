"""The page that goes with a model: what it does, what it learned from, how good it is, how to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regard
from regard.tasks.architectures import ARCHITECTURE, has_attention
from regard.tasks.registry import task_named
from regard.tasks.report import Report
from regard.tasks.trained import Trained


def write_card(path: Path, trained: Trained, *, made: Mapping[str, Any], report: Report) -> None:
    """Write a model card.

    Args:
        path: Where to.
        trained: The model.
        made: How it was made: ``settings``, ``seconds``, ``examples`` that were learned from.
        report: How good it is on examples that were held out.
    """
    info, config = trained.info, trained.model.config
    weights = sum(weight.numel() for weight in trained.model.parameters())
    origin = info.checkpoint or "nothing: its first weights were drawn"
    vocabulary = "" if trained.tokenizer is None else f", vocabulary of {len(trained.tokenizer):,}"
    limit = [f"- longest text: {info.max_tokens} tokens"] if info.max_tokens else []
    architecture = [f"- architecture: {info.details[ARCHITECTURE]}"] if ARCHITECTURE in info.details else []
    classes = [f"- classes: {', '.join(info.labels)}"] if info.labels else []
    command = f"regard predict {info.task} {task_named(info.task).takes} --model {path.parent.resolve().name}"
    command += " --attention attention.html" if has_attention(trained.model) else ""
    lines = [
        "---",
        "library_name: regard",
        f"tags: [regard, {info.task}]",
        "---",
        "",
        f"# {path.parent.resolve().name}",
        "",
        f"A model that does `{info.task}`, trained with regard {regard.__version__}.",
        "",
        f"- kind: {config.model_type}, {weights:,} weights{vocabulary}",
        *architecture,
        *classes,
        f"- begun from: {origin}",
        f"- learned from {made['examples']:,} examples in {made['seconds'] / 60:.1f} minutes",
        *limit,
        "",
        "## How good it is",
        "",
        "On examples that were held out:",
        "",
        "```",
        *report.lines,
        "```",
        "",
        "`report.md` lists the worst of them. What the examples do not show, the model has not learned: it will be",
        "wrong on inputs that are unlike them, and what is biased in them is biased in it.",
        "",
        "## Use it",
        "",
        "```",
        command,
        "```",
        "",
        "## How it was made",
        "",
        "```json",
        json.dumps({name: value for name, value in made["settings"].items() if value is not None}, indent=1),
        "```",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
