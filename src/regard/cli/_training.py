"""What ``regard train``, ``evaluate`` and ``predict`` do, step by step."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.cli._page import check_places, write
from regard.cli._progress import Progress
from regard.errors import ConfigError, message
from regard.tasks import Trained, evaluate, load, observe, predict, task_named, train
from regard.tasks.architectures import has_attention
from regard.text import ReadOptions, read_text


def run_train(
    task: str,
    data: Sequence[str],
    out: str,
    *,
    valid: Sequence[str] | None,
    model: str | None,
    preset: str,
    resume: bool,
    tokenizer: str,
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> int:
    """Train; see ``regard train --help`` for the arguments."""
    options = _options(ReadOptions(), reading, caller="train")
    outcome = train(
        task,
        _paths(data),
        out,
        valid=None if valid is None else _paths(valid),
        model=model,
        preset=preset,
        resume=resume,
        tokenizer=tokenizer,
        options=options,
        **settings,
    )
    print(f"model: {outcome.folder} (report.md says how good it is, curves.png how it learned)")
    page = " --attention attention.html" if has_attention(outcome.model.model) else ""
    print(f"use it: regard predict {task} {task_named(task).takes} --model {outcome.folder}{page}")
    return 0


def run_evaluate(task: str, model: str, data: Sequence[str], *, out: str | None, reading: Mapping[str, Any]) -> int:
    """Evaluate; see ``regard evaluate --help`` for the arguments."""
    trained = _load(task, model)
    options = _options(trained.info.options, reading, caller="evaluate")
    with Progress("evaluating"):
        report = evaluate(trained, _paths(data), options=options)
    print(report)
    if out is not None:
        print("report: " + " and ".join(str(path) for path in report.save(out)))
    return 0


def run_predict(
    task: str,
    text: str | None,
    *,
    model: str,
    file: str | None,
    pair: str | None,
    pair_file: str | None,
    attention: str | None,
    out: str | None,
    writing: Mapping[str, Any],
    open_page: bool,
) -> int:
    """Predict; see ``regard predict --help`` for the arguments."""
    lines = task_named(task).lines
    inputs = _inputs(text, file, pair, pair_file, lines=lines)
    if attention is not None:
        if len(inputs) != 1:
            raise ConfigError(message("predict", f"--attention shows one text, but there are {len(inputs)}."))
        check_places("predict", out=attention, read=pair_file if file is None else file)
    trained = _load(task, model)
    if attention is not None:
        found, recording = observe(trained, inputs[0], **writing)
        _tell(inputs, [found], out)
        write(recording, attention, open_page=open_page)
        return 0
    with Progress("predicting"):
        said = predict(trained, inputs, **writing)
    _tell(inputs, said, out)
    return 0


def _load(task: str, model: str) -> Trained:
    task_named(task)
    with Progress("loading the model"):
        return load(model, task=task)


def _tell(inputs: Sequence[Any], said: Sequence[Any], out: str | None) -> None:
    if out is None:
        for one in said:
            print(one)
        return
    lines = [
        json.dumps({"input": given, **asdict(one)}, ensure_ascii=False) for given, one in zip(inputs, said, strict=True)
    ]
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"predictions: {out}", file=sys.stderr)


def _inputs(text: str | None, file: str | None, pair: str | None, pair_file: str | None, *, lines: bool) -> list[Any]:
    if (text is None) == (file is None):
        problem = "a text and --file exclude each other" if text is not None else "there is no text"
        raise ConfigError(message("predict", f"{problem}; give one of them."))
    if pair is not None and pair_file is not None:
        raise ConfigError(message("predict", "a second text and a file with it exclude each other; give one of them."))
    if file is None:
        second = pair if pair_file is None else _whole(pair_file)
        return [text if second is None else (text, second)]
    if pair is not None or pair_file is not None:
        raise ConfigError(message("predict", "a second text goes with one text, not with --file."))
    if not lines:
        return [_whole(file)]
    listed = _whole(file).split("\n")
    return listed[:-1] if listed[-1] == "" else listed


def _whole(file: str) -> str:
    return read_text(Path(file)).replace("\r\n", "\n")


def _paths(names: Sequence[str]) -> Any:
    """One path, or as many as were given."""
    return names[0] if len(names) == 1 else tuple(names)


def _options(options: ReadOptions, reading: Mapping[str, Any], *, caller: str) -> ReadOptions:
    """How files are read: what was said now, else what was said before."""
    given = {name: value for name, value in reading.items() if value is not None}
    if "columns" in given:
        parts = [part.partition("=") for part in given["columns"].split(",")]
        if not all(role.strip() and joint and name.strip() for role, joint, name in parts):
            problem = f"--columns must look like source=1,target=2, but is {given['columns']!r}."
            raise ConfigError(message(caller, problem))
        given["columns"] = {role.strip(): name.strip() for role, _, name in parts}
    return replace(options, **given)
