"""Using what was trained: the same three calls for every task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard import records
from regard.tasks.architectures import check_attention
from regard.tasks.registry import task_named
from regard.tasks.report import Report
from regard.tasks.trained import Trained, load
from regard.text import ReadOptions


def predict(model: Trained | str | Path, inputs: Sequence[Any], **options: Any) -> list[Any]:
    """Use a model on inputs.

    Args:
        model: A trained model, or its folder.
        inputs: Texts, pairs or images, as the task takes them.
        **options: Of the task.

    Returns:
        A prediction for each, in their order; its ``str`` is what a person reads.

    Raises:
        ConfigError, FormatError: there is no such model.
    """
    trained = _trained(model)
    return task_named(trained.info.task).predict(trained, inputs, **options)


def evaluate(model: Trained | str | Path, data: Any, *, options: ReadOptions | None = None, **more: Any) -> Report:
    """Use a model on examples whose answer is known.

    Args:
        model: A trained model, or its folder.
        data: A file as for ``train``.
        options: How it is read; by default as the training data was.
        **more: Options of the task's predictions.

    Returns:
        Figures with their signatures, and every example with its score.

    Raises:
        ConfigError, FormatError: there is no such model, or the data cannot be used.
    """
    trained = _trained(model)
    task = task_named(trained.info.task)
    examples = task.read(data, trained.info.options if options is None else options)
    return task.evaluate(trained, examples, **more)


def observe(model: Trained | str | Path, given: Any, **options: Any) -> tuple[Any, records.Recording]:
    """Use a model on one input, and keep where its attention went.

    Args:
        model: A trained model, or its folder.
        given: A text, a pair or an image, as the task takes them.
        **options: Of the task.

    Returns:
        The prediction, and a recording that ``regard.look`` and ``regard.view`` show.

    Raises:
        ConfigError, FormatError: there is no such model, or it has no attention.
    """
    trained = _trained(model)
    task = task_named(trained.info.task)
    check_attention(trained.model, task.architectures, caller="observe")
    return task.observe(trained, given, **options)


def explain(model: Trained | str | Path, given: Any, **options: Any) -> tuple[Any, records.Explanation]:
    """Use a model on one input, and say what its prediction depends on, and how far to trust that.

    Args:
        model: A trained model, or its folder.
        given: A text or a pair, as the task takes them.
        **options: Of the task.

    Returns:
        The prediction, and scores for every word by several explanations, each beside measures of its faithfulness
        and controls.

    Raises:
        ConfigError, FormatError: there is no such model, or it has no attention.
        UnsupportedError: the task explains nothing.
    """
    trained = _trained(model)
    task = task_named(trained.info.task)
    check_attention(trained.model, task.architectures, caller="explain")
    return task.explain(trained, given, **options)


def _trained(model: Trained | str | Path) -> Trained:
    return model if isinstance(model, Trained) else load(model)
