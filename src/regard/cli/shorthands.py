"""``regard translate TEXT --model DIR`` and its like: ``regard predict`` with the task said first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

_ATTENTION = "Write the page that shows where the model looked to this file."


def _shorthand(
    task: str, *, given: str = "The text, in quotes.", of_a_line: str | None = "a text"
) -> Callable[..., int]:
    whole = "with that text" if of_a_line is None else f"of which every line is {of_a_line}"

    def command(
        text: str | None = None,
        /,
        *,
        model: Annotated[str, Parameter(name=["--model", "-m"])],
        file: Annotated[str | None, Parameter(name=["--file", "-f"])] = None,
        attention: str | None = None,
        out: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
    ) -> int:
        from regard.cli.predict import predict

        return predict(task, text, model=model, file=file, attention=attention, out=out)

    command.__name__ = task.replace("-", "_")
    command.__doc__ = f"""The same as `regard predict {task}`, which has more options.

    Parameters
    ----------
    text
        {given}
    model
        The folder that `regard train {task}` made.
    file
        A UTF-8 file instead, {whole}.
    attention
        Write the page that shows where the model looked to this file.
    out
        Write the predictions to this file, one JSON object for each line, instead of printing them.
    """
    return command


translate = _shorthand("translate")
classify = _shorthand("classify")
summarize = _shorthand("summarize", of_a_line=None)
generate = _shorthand("generate")
classify_image = _shorthand("classify-image", given="The path of an image.", of_a_line="the path of an image")
caption = _shorthand("caption", given="The path of an image.", of_a_line="the path of an image")


def answer(
    question: str,
    /,
    *,
    model: Annotated[str, Parameter(name=["--model", "-m"])],
    context: str | None = None,
    file: Annotated[str | None, Parameter(name=["--file", "-f"])] = None,
    attention: Annotated[str | None, Parameter(help=_ATTENTION)] = None,
    out: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """The same as `regard predict answer QUESTION --pair CONTEXT`.

    Parameters
    ----------
    question
        The question, in quotes.
    model
        The folder that `regard train answer` made.
    context
        The text with the answer, in quotes.
    file
        A UTF-8 file with that text instead, of any length.
    out
        Write the answer to this file, as a JSON object, instead of printing it.
    """
    from regard.cli.predict import predict

    return predict("answer", question, model=model, pair=context, pair_file=file, attention=attention, out=out)
