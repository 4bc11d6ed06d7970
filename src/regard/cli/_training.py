"""What ``regard train``, ``evaluate`` and ``predict`` do, step by step."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.cli._changes import Changes
from regard.cli._explaining import explanation_lines
from regard.cli._page import check_files, naming, write
from regard.cli._progress import Progress
from regard.errors import ConfigError, message
from regard.lens import watch
from regard.records import Explanation
from regard.tasks import Trained, evaluate, explain, load, observe, predict, task_named, train
from regard.tasks.architectures import check_attention, has_attention
from regard.tasks.encoding import unknown_share
from regard.tasks.report import report_places
from regard.tasks.watching import reading_of
from regard.text import ReadOptions, read_text, without_lone_surrogates

_ONE_READING = ("classify", "translate", "generate")  # what is read is the text, as it stands, once


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
    places = () if out is None else report_places(out)
    for place in places:
        check_files("evaluate", {"--out": str(place)}, read=data)
    trained = _load(task, model)
    options = _options(trained.info.options, reading, caller="evaluate")
    with Progress("evaluating"):
        report = evaluate(trained, _paths(data), options=options)
    print(report)
    if out is not None:
        with naming("--out", out, command="evaluate"):
            report.save(out)
        print("report: " + " and ".join(str(path) for path in places))
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
    explained: bool = False,
    changes: Changes | None = None,
) -> int:
    """Predict; see ``regard predict --help`` for the arguments."""
    kind = task_named(task)
    if (pair is not None or pair_file is not None) and not kind.two_texts:
        raise ConfigError(message("predict", f"--pair is a second text, but {task} reads one."))
    inputs = _inputs(text, file, pair, pair_file, lines=kind.lines)
    if attention is None and open_page:
        raise ConfigError(message("predict", "--open opens the page of --attention, which is not given."))
    changes = changes or Changes()
    ones = {
        "--attention shows": attention is not None,
        "--explain is about": explained,
        "--block is about": changes.block,
    }
    for option, given in ones.items():
        if given and len(inputs) != 1:
            raise ConfigError(message("predict", f"{option} one text, but there are {len(inputs)}."))
    images = [text] if kind.takes == "IMAGE" else []
    check_files("predict", {"--attention": attention, "--out": out}, read=[file, pair_file, *images])
    trained = _load(task, model)
    _warn_of_unknown(trained, inputs)
    unchanged = predict(trained, inputs, **writing) if changes else None
    recording = explanation = None
    with _changed(trained, changes, inputs[0] if inputs else ""):
        if explained:
            with Progress("explaining"):
                _, explanation = explain(trained, inputs[0], **writing)
        if attention is not None:
            found, recording = observe(trained, inputs[0], **writing)
            said = [found]
        else:
            with Progress("predicting"):
                said = predict(trained, inputs, **writing)
    _tell(inputs, said, out, explanation, unchanged)
    if recording is not None and attention is not None:
        recording = replace(recording, notes=(*recording.notes, *changes.notes()))
        write(recording, attention, open_page=open_page, option="--attention", command="predict")
    return 0


def _changed(trained: Trained, changes: Changes, given: Any) -> AbstractContextManager[Any]:
    """The model with its attention changed as was asked for, until the context ends."""
    if not changes:
        return nullcontext()
    check_attention(trained.model, task_named(trained.info.task).architectures, caller="predict")
    sequence = None
    if changes.block and trained.info.task in _ONE_READING:
        text, pair = (given, None) if isinstance(given, str) else given
        sequence = reading_of(trained, text, pair=pair).sequence
    two_stacks = bool(trained.model.config.is_encoder_decoder)
    return watch(trained.model, changes=changes.made("predict", sequence, two_stacks=two_stacks))


def _warn_of_unknown(trained: Trained, inputs: Sequence[Any]) -> None:
    """Say on stderr how much of the texts the model's vocabulary lacks."""
    if trained.tokenizer is None or task_named(trained.info.task).takes == "IMAGE":
        return
    texts = [text for given in inputs for text in ((given,) if isinstance(given, str) else given)]
    if share := unknown_share(trained.tokenizer, texts):
        print(f"regard: {share:.1%} of the tokens are unknown to this model", file=sys.stderr)


def _load(task: str, model: str) -> Trained:
    task_named(task)
    with Progress("loading the model"):
        return load(model, task=task)


def _tell(
    inputs: Sequence[Any],
    said: Sequence[Any],
    out: str | None,
    explanation: Explanation | None = None,
    unchanged: Sequence[Any] | None = None,
) -> None:
    if out is None:
        for number, one in enumerate(said):
            print(one)
            if unchanged is not None:
                print(f"without the change: {unchanged[number]}")
        if explanation is not None:
            print("", *explanation_lines(explanation), sep="\n")
        return
    more = {} if explanation is None else {"explanation": asdict(explanation)}
    lines = []
    for number, (given, one) in enumerate(zip(inputs, said, strict=True)):
        before = {} if unchanged is None else {"unchanged": asdict(unchanged[number])}
        lines.append(json.dumps({"input": given, **asdict(one), **before, **more}, ensure_ascii=False))
    with naming("--out", out, command="predict"):
        Path(out).write_text(without_lone_surrogates("\n".join(lines))[0] + "\n", encoding="utf-8")
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
