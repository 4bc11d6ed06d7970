"""``regard evaluate``: how good a trained model is on examples whose answer is known."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def evaluate(
    task: str,
    /,
    *,
    model: Annotated[str, Parameter(name=["--model", "-m"])],
    data: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    out: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
    columns: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> int:
    """Evaluate a trained model, and print its figures.

    Parameters
    ----------
    task
        What the model does: translate, classify, answer, summarize, generate, classify-image or caption.
    model
        The folder that `regard train` made.
    data
        The file, or several, as for `regard train`; it is read as the training data was, where nothing is said here.
    out
        Keep the figures as OUT.json, and a page with the worst examples as OUT.md.
    columns
        As for `regard train`.
    encoding
        As for `regard train`.
    delimiter
        As for `regard train`.
    header
        As for `regard train`.
    """
    from regard.cli._training import run_evaluate

    reading = {"columns": columns, "encoding": encoding, "delimiter": delimiter, "header": header}
    return run_evaluate(task, model, data, out=out, reading=reading)
