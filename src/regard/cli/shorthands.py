"""``regard translate TEXT --model DIR`` and its like: ``regard predict`` with the task said first."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc, signature
from typing import Annotated, Any, get_type_hints

from cyclopts import Parameter

from regard.cli.predict import ATTENTION, predict

_WRITING = ("beams", "max_new_tokens", "temperature", "seed")
_PAIR = ("pair", "pair_file")
_BLOCK = ("block",)


def _shorthand(
    task: str, *options: str, given: str = "The text, in quotes.", of_a_line: str | None = "a text"
) -> Callable[..., int]:
    """A command that is ``predict`` with a task, and with those of its options that the task has."""
    names = ("text", "model", "file", *options, "silence", "attention", "out", "open_page")

    def command(text: str | None = None, /, **chosen: Any) -> int:
        return predict(task, text, **chosen)

    whole, hints = signature(predict), get_type_hints(predict, include_extras=True)
    shape: Any = command
    shape.__signature__ = whole.replace(parameters=[whole.parameters[name] for name in names])
    shape.__annotations__ = {name: hints[name] for name in (*names, "return")}
    whole_file = "with that text" if of_a_line is None else f"of which every line is {of_a_line}"
    told = {
        **_TOLD,
        "text": given,
        "model": f"The folder that `regard train {task}` made.",
        "file": f"A UTF-8 file instead, {whole_file}.",
    }
    listed = "\n".join(f"{name}\n    {told[name]}" for name in names if name != "attention")
    command.__name__ = task.replace("-", "_")
    command.__doc__ = f"The same as `regard predict {task}`.\n\nParameters\n----------\n{listed}\n"
    return command


def _told() -> dict[str, str]:
    """What ``predict`` says of each of its parameters."""
    found: dict[str, str] = {}
    name = ""
    for line in (getdoc(predict) or "").partition("----------\n")[2].splitlines():
        if line.startswith(" "):
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
        else:
            name = line.strip()
    return found


_TOLD = _told()
translate = _shorthand("translate", *_WRITING, *_BLOCK)
classify = _shorthand("classify", *_PAIR, "explain", *_BLOCK)
summarize = _shorthand("summarize", "count", *_WRITING, of_a_line=None)
generate = _shorthand("generate", *_WRITING, *_BLOCK)
classify_image = _shorthand("classify-image", given="The path of an image.", of_a_line="the path of an image")
caption = _shorthand("caption", *_WRITING, given="The path of an image.", of_a_line="the path of an image")


def answer(
    question: str,
    /,
    *,
    model: Annotated[str, Parameter(name=["--model", "-m"])],
    context: str | None = None,
    file: Annotated[str | None, Parameter(name=["--file", "-f"])] = None,
    stride: int | None = None,
    longest: int | None = None,
    attention: Annotated[str | None, Parameter(help=ATTENTION)] = None,
    out: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
    open_page: Annotated[bool, Parameter(name="--open", negative="")] = False,
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
    stride
        Tokens from one window of a long text to the next.
    longest
        The most characters of an answer.
    out
        Write the answer to this file, as a JSON object, instead of printing it.
    open_page
        Open the page in a browser.
    """
    return predict(
        "answer",
        question,
        model=model,
        pair=context,
        pair_file=file,
        stride=stride,
        longest=longest,
        attention=attention,
        out=out,
        open_page=open_page,
    )
