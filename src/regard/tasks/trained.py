"""A trained model as a person has it: one folder with weights, tokenizer, labels and limits, and nothing to guess."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, FormatError, message, must_be
from regard.hf.loading import load_with_head, quiet
from regard.text import ReadOptions, vocabulary_hash

INFO = "task.json"
_ASIDE = ".being-written"
_AUTO = re.compile("AutoModelFor[A-Za-z0-9]+")


@dataclass(frozen=True)
class TaskInfo:
    """What a folder says about its model, beside the configuration.

    Args:
        task: What it does.
        auto: The Auto class of transformers that loads it.
        vocabulary_sha256: Of the tokenizer it was trained with; None where there is none.
        max_tokens: The longest text, special tokens included; 0 where there is none.
        labels: The classes, in the order of their numbers.
        options: How its training data was read; other data is read alike.
        checkpoint: The name of the model it was begun from; None where it began with nothing.
        tokenizer_kind: The kind of tokenizer that was trained with it; None where it had one, or there is none.
        finished: Whether its training has come to its end; before that the weights are those it began with.
        details: What else the task keeps.
    """

    task: str
    auto: str
    vocabulary_sha256: str | None
    max_tokens: int
    labels: tuple[str, ...] = ()
    options: ReadOptions = field(default_factory=ReadOptions)
    checkpoint: str | None = None
    tokenizer_kind: str | None = None
    finished: bool = True
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Trained:
    """A model and all that is needed to use it.

    Args:
        model: In evaluation mode.
        tokenizer: Its fast tokenizer; None where it neither reads nor writes text.
        info: What it does, and its limits.
        name: What to call it.
    """

    model: Any
    tokenizer: Any
    info: TaskInfo
    name: str

    def save(self, folder: Path) -> None:
        """Write everything but the weights' history; ``load`` reads it.

        Every file is written beside its place and then renamed: none of them is ever half of one.

        Args:
            folder: Where to; made if it is missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / _ASIDE
        shutil.rmtree(aside, ignore_errors=True)  # what a kill may have left
        aside.mkdir()
        try:
            with quiet():
                self.model.save_pretrained(aside)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(aside)
            text = json.dumps(asdict(self.info), indent=1, ensure_ascii=False)
            (aside / INFO).write_text(text + "\n", encoding="utf-8")
            for file in sorted(aside.iterdir(), key=lambda file: file.name == INFO):  # a folder with that is a model
                os.replace(file, folder / file.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def load(folder: str | Path, *, task: str | None = None, unfinished: bool = False) -> Trained:
    """Load a model that was trained here.

    Args:
        folder: Where ``train`` put it.
        task: What it must do.
        unfinished: Whether it may be one whose training has not come to its end.

    Returns:
        The model, ready to be used.

    Raises:
        ConfigError: there is no such model, it does something else, or its training was stopped.
        FormatError: its tokenizer is not the one it was trained with.
    """
    folder = Path(folder)
    info = _info(folder)
    if task is not None and info.task != task:
        raise ConfigError(message("load", f"{folder} must do {task}, but does {info.task}."))
    if not info.finished and not unfinished:
        hint = f"regard train {info.task} … --out {folder} --resume goes on with it"
        problem = f"{folder} must be a trained model, but its training was stopped before its end."
        raise ConfigError(message("load", problem, hint=hint))
    with quiet():
        loaded = load_with_head(str(folder), info.auto, text=info.vocabulary_sha256 is not None)
    if info.vocabulary_sha256 is not None:
        _check_vocabulary(folder, loaded.tokenizer, info.vocabulary_sha256)
    return Trained(loaded.model, loaded.tokenizer, info, folder.resolve().name)


def _check_vocabulary(folder: Path, tokenizer: Any, expected: str) -> None:
    found = vocabulary_hash(tokenizer.backend_tokenizer)
    if found != expected:
        problem = f"{folder / 'tokenizer.json'} must be the vocabulary of this model ({expected[:12]}…)"
        raise FormatError(message("load", f"{problem}, but is another one ({found[:12]}…)."))


def _info(folder: Path) -> TaskInfo:
    path = folder / INFO
    if not path.is_file():
        problem = must_be("model", "a folder that `regard train` made", f"{folder}, which has no {INFO}")
        raise ConfigError(message("load", problem))
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        options = ReadOptions(**kept.pop("options"))
        if not _AUTO.fullmatch(kept["auto"]):
            raise ValueError(f"there is no class {kept['auto']!r}")
        return TaskInfo(**{**kept, "labels": tuple(kept["labels"]), "options": options})
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            message("load", f"{path} must say what the model does, but cannot be read ({error}).")
        ) from error
