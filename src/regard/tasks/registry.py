"""Which tasks there are; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regard.errors import ConfigError, message, must_be
from regard.tasks.task import Task

TASKS = {
    "translate": ("regard.tasks.translate", "Translate"),
    "classify": ("regard.tasks.classify", "Classify"),
    "answer": ("regard.tasks.answer", "Answer"),
    "summarize": ("regard.tasks.summarize", "Summarize"),
    "generate": ("regard.tasks.generate", "Generate"),
    "classify-image": ("regard.tasks.classify_image", "ClassifyImage"),
    "caption": ("regard.tasks.caption", "Caption"),
}


def task_named(name: str) -> Task[Any, Any]:
    """The task of a name.

    Raises:
        ConfigError: there is none; lists what there is.
    """
    if name not in TASKS:
        raise ConfigError(message("task_named", must_be("task", f"one of {', '.join(TASKS)}", repr(name))))
    module, kind = TASKS[name]
    task: Task[Any, Any] = getattr(import_module(module), kind)()
    return task
