"""From a person's file to a trained model, for every task alike."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.errors import ConfigError, all_problems, message, missing_extra, must_be
from regard.hf.loading import labels_of, load_with_head, quiet
from regard.tasks.architectures import ARCHITECTURE, TRANSFORMER, check_architecture
from regard.tasks.card import write_card
from regard.tasks.encoding import padding_id
from regard.tasks.registry import task_named
from regard.tasks.report import Report
from regard.tasks.task import Preset, Task, info_of
from regard.tasks.trained import INFO, Trained, load
from regard.text import Examples, ReadOptions, overlap, train_tokenizer
from regard.train.course import Course
from regard.train.curves import Recorder
from regard.train.data import TrainData
from regard.train.objective import Objective
from regard.train.settings import TrainSettings
from regard.train.watcher import Printer, Watcher

_HELD_OUT = 0.05
_MOST_HELD_OUT = 1000
_TRAINING = "training.json"
_LIMITS = ("steps", "epochs", "minutes", "patience")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a training came to.

    Args:
        model: The trained model.
        folder: Where it is.
        report: How good it is on the examples that were held out.
        seconds: Spent training.
    """

    model: Trained
    folder: Path
    report: Report
    seconds: float


def train(
    task: str,
    data: Any,
    out: str | Path,
    *,
    valid: Any = None,
    model: str | None = None,
    preset: str = "small",
    resume: bool = False,
    tokenizer: str = "auto",
    options: ReadOptions | None = None,
    watcher: Watcher | None = None,
    **settings: Any,
) -> Outcome:
    """Train a model on a file.

    Args:
        task: What it is to do, such as "translate".
        data: The file; several files, or a folder, where the task reads such.
        out: The folder the model goes to. Checkpoints are in it, too.
        valid: Examples to validate on; by default a twentieth of the data, at most 1,000, is held out.
        model: A checkpoint to go on from: a folder or hub id of the right kind. Without it a model of ``preset`` begins
            with nothing.
        preset: "tiny", "small" or "base".
        resume: Go on from the newest checkpoint in ``out``.
        tokenizer: For a model that begins with nothing: "bpe", "unigram", "word" or "character"; "auto" is what suits
            the task.
        options: How the file is read.
        watcher: Who is told how it goes; by default it is printed to stderr.
        **settings: Of ``TrainSettings``, in place of the preset's: ``minutes=10``, ``seed=2``; and the ``choices`` of
            the task.

    Returns:
        The model, and how good it is.

    Raises:
        ConfigError, FormatError: the data or a setting cannot be used.
        TrainingStoppedError: training cannot go on.
    """
    _check_installed()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        hint = "regard.train.trainer.RegardTrainer trains in several"
        raise ConfigError(message("train", "a task is trained in one process, but there are several.", hint=hint))
    chosen, out, told = task_named(task), Path(out), watcher or Printer()
    options = options or ReadOptions()
    _check_place(out, resume=resume)
    sizes = _preset(chosen, preset)
    asked = {name: settings.pop(name) for name in chosen.choices if name in settings}
    check_architecture(asked, chosen.architectures, checkpoint=model)
    plan = _plan(chosen, sizes, settings, fine_tuned=model is not None)
    examples = chosen.read(data, options)
    told.note(examples.report())
    learned, held_out = _divided(chosen, examples, valid, options, told, seed=plan.seed)
    _seed(plan.seed)
    begun = resume and (out / INFO).is_file()
    if begun:
        trained = load(out, task=task, unfinished=True)
        _check_asked({**chosen.choices, **trained.info.details}, asked)
        _check_tokenizer(trained.info.tokenizer_kind, tokenizer)
    else:
        known = examples if valid is None else learned  # a class of which all examples are held out is one, too
        details = {**chosen.details(known), **chosen.choices, **asked}
        trained = _begin(chosen, learned, sizes, model, tokenizer, options, details)
    objective = chosen.objective(trained, label_smoothing=plan.label_smoothing)
    rows = tuple(_numbers(chosen, trained, part, told, seed=plan.seed) for part in (learned, held_out))
    if not begun:
        trained.save(out)  # nothing is written before it is known that all of this can be learned from
    recorder = Recorder(out, told)
    course = _run(objective, trained, rows, plan, out, resume=resume, watcher=recorder)
    trained.model.eval()
    trained.name = out.resolve().name
    trained.info = replace(trained.info, finished=True)
    trained.save(out)
    report = chosen.evaluate(trained, held_out)
    told.note(str(report))
    made = {
        "settings": asdict(plan),
        "seconds": round(course.seconds, 1),
        "examples": len(learned),
        "history": course.history,
    }
    (out / _TRAINING).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report.save(out / "report")
    recorder.draw(out / "curves.png", rounds=course.history)
    write_card(out / "README.md", trained, made=made, report=report)
    return Outcome(trained, out, report, course.seconds)


def _run(
    objective: Objective,
    trained: Trained,
    rows: tuple[TrainData, ...],
    plan: TrainSettings,
    out: Path,
    *,
    resume: bool,
    watcher: Watcher,
) -> Course:
    from regard.train.trainer import RegardTrainer

    trainer = RegardTrainer(
        trained.model,
        data=rows[0],
        valid=rows[1],
        objective=objective,
        settings=plan,
        folder=out / "checkpoints",
        watcher=watcher,
    )
    course = trainer.run(resume=resume)
    # What was prepared for training (autocast, a device) is undone: the model is now what ``load`` will give.
    trainer.accelerator.unwrap_model(trained.model, keep_fp32_wrapper=False)
    trained.model.cpu()
    return course


def _check_installed() -> None:
    from importlib.util import find_spec

    for module in ("accelerate", "matplotlib", "sacrebleu", "sklearn"):
        if find_spec(module) is None:
            raise missing_extra(module, "train", "training")


def _check_place(out: Path, *, resume: bool) -> None:
    """A folder that holds something is not written over."""
    if out.exists() and not out.is_dir():
        raise ConfigError(message("train", must_be("out", "a folder", f"the file {out}")))
    if out.is_dir() and any(out.iterdir()) and not resume:
        hint = "resume goes on with the training that is there"
        raise ConfigError(message("train", must_be("out", "a new or an empty folder", f"{out}"), hint=hint))


def _check_asked(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """What was chosen when a training began cannot be chosen anew."""
    problems = [
        f"{name} was {kept.get(name)!r}, and is {value!r} now."
        for name, value in asked.items()
        if kept.get(name) != value
    ]
    if problems:
        raise all_problems("resume", problems)


def _check_tokenizer(kept: str | None, asked: str) -> None:
    """The tokens a model has stay as they are."""
    if asked not in ("auto", kept):
        raise ConfigError(
            message("resume", f"the tokenizer was {kept or 'that of the checkpoint'}, and is {asked} now.")
        )


def _preset(task: Task[Any, Any], name: str) -> Preset:
    if name not in task.presets:
        words = " or ".join(f'"{known}"' for known in task.presets)
        raise ConfigError(message("train", must_be("preset", words, repr(name))))
    return task.presets[name]


def _plan(task: Task[Any, Any], sizes: Preset, settings: Mapping[str, Any], *, fine_tuned: bool) -> TrainSettings:
    """The settings of a training: a limit that is given takes the place of the preset's."""
    unknown = sorted(set(settings) - set(TrainSettings.__dataclass_fields__))
    if unknown:
        known = ", ".join([*TrainSettings.__dataclass_fields__, *task.choices])
        raise all_problems("train", [f"there is no setting `{name}`; there are {known}." for name in unknown])
    usual = dict(task.fine_tuning if fine_tuned else sizes.training)
    if any(settings.get(name) is not None for name in ("steps", "epochs", "minutes")):
        usual = {name: value for name, value in usual.items() if name not in _LIMITS}
    return TrainSettings(**{**usual, **settings})


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _divided(
    task: Task[Any, Any], examples: Examples[Any], valid: Any, options: ReadOptions, told: Watcher, *, seed: int
) -> tuple[Examples[Any], Examples[Any]]:
    """What is learned from, and what is held out."""
    if valid is not None:
        held_out = task.read(valid, options)
        told.note(held_out.report())
        if not len(examples) or not len(held_out):
            raise ConfigError(
                message("train", "the data and the validation data must hold examples, but one is empty.")
            )
        if task.tokenizer is not None and (shared := overlap(examples, held_out)).indices:
            told.note(f"validation data: {shared.report()}")
        return examples, held_out
    if len(examples) < task.fewest:
        wanted = f"at least {task.fewest} examples, of which some are held out"
        problem = f"the data must hold {wanted}, but holds {len(examples)}."
        raise ConfigError(message("train", problem, hint="valid= names a file of its own to validate on"))
    count = min(_MOST_HELD_OUT, max(1, round(_HELD_OUT * len(examples))))
    try:
        learned, held_out = task.divide(examples, count=count, seed=seed)
    except ConfigError as error:
        problem = "some of the data must be held out, but all of it belongs together: every example asks the same."
        raise ConfigError(message("train", problem, hint="valid= names a file of its own to validate on")) from error
    which = "the last tenth of it is" if len(examples) == 1 else f"{len(held_out):,} of them are"
    told.note(f"{which} held out to validate on")
    return learned, held_out


def _begin(
    task: Task[Any, Any],
    examples: Examples[Any],
    sizes: Preset,
    checkpoint: str | None,
    kind: str,
    options: ReadOptions,
    details: dict[str, Any],
) -> Trained:
    """A model before its first step."""
    labels, auto = tuple(details.pop("labels", ())), task.head(details)
    known: dict[str, Any] = {"checkpoint": None, "tokenizer_kind": None}
    if kind != "auto" and (checkpoint is not None or task.tokenizer is None):
        why = "a checkpoint has its own" if checkpoint is not None else f"{task.name} has none"
        raise ConfigError(message("train", must_be("tokenizer", f'"auto": {why}', repr(kind))))
    if checkpoint is None:
        tokenizer = None
        if task.tokenizer is not None:
            known["tokenizer_kind"] = kind = task.tokenizer if kind == "auto" else kind
            # Only the Transformer tells two texts apart by segments; to the others the end between them does.
            segments = task.pairs and details.get(ARCHITECTURE, TRANSFORMER) == TRANSFORMER
            tokenizer = new_tokenizer(task.texts(examples), kind=kind, size=sizes.vocab_size, pairs=segments)
        network = task.new_model(sizes, tokenizer, {**details, "labels": labels})
        limit, name = sizes.max_tokens, "new"
    else:
        if labels and set(labels) == set(there := labels_of(checkpoint)):
            labels = there  # its classes are these already: each keeps its number
        heads = {"num_labels": len(labels), "id2label": dict(enumerate(labels))} if labels else {}
        if labels:
            heads["label2id"] = {label: index for index, label in enumerate(labels)}
        with quiet():
            text = task.tokenizer is not None
            loaded = load_with_head(checkpoint, auto, text=text, **heads, ignore_mismatched_sizes=bool(labels))
        network, tokenizer, name = loaded.model, loaded.tokenizer, loaded.name
        known["checkpoint"] = name
        if tokenizer is not None and getattr(network.config, "pad_token_id", None) is None:
            network.config.pad_token_id = padding_id(tokenizer)  # what fills a batch; GPT-2 has none of its own
        limit = min(sizes.max_tokens, loaded.max_positions or sizes.max_tokens)
    details |= task.details_of(network, checkpoint, details)
    info = info_of(
        task, tokenizer, max_tokens=limit, labels=labels, options=options, details=details, finished=False, **known
    )
    return Trained(network, tokenizer, info, name)


def new_tokenizer(texts: Any, *, kind: Any, size: int, pairs: bool) -> Any:
    """A tokenizer trained on texts, as transformers knows them: every text ends with ``</s>``, a pair has two."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    backend = train_tokenizer(texts, kind=kind, vocab_size=size)
    end = "</s>"
    backend.post_processor = TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B:1 {end}:1", special_tokens=[(end, backend.token_to_id(end))]
    )
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": end, "unk_token": "<unk>"}
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if pairs else [])]
    # A text may hold the letters of </s>: they are letters.
    literal = {"split_special_tokens": True, "clean_up_tokenization_spaces": False}
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=backend, **names, model_input_names=inputs, **literal)


def _numbers(task: Task[Any, Any], trained: Trained, examples: Examples[Any], told: Watcher, *, seed: int) -> TrainData:
    """Examples as numbers, without those that are too long for the model."""
    data, left_out = task.data(trained, examples, seed=seed)
    limit = trained.info.max_tokens
    if left_out:
        told.note(f"{left_out:,} of {len(examples):,} examples are empty or longer than {limit} tokens, and left out")
    if not len(data):
        most = f" of at most {limit} tokens" if limit else ""
        problem = f"at least one example must be something to learn from{most}, but none of {len(examples):,} is."
        raise ConfigError(message("train", problem))
    return data
