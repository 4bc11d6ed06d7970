"""``regard predict``: use a trained model, and look at its attention."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

# Not in the docstring: there, "attention" on a line of its own begins a section.
ATTENTION = "Write the page that shows where the model looked to this file."


def predict(
    task: str,
    text: str | None = None,
    /,
    *,
    model: Annotated[str, Parameter(name=["--model", "-m"])],
    file: Annotated[str | None, Parameter(name=["--file", "-f"])] = None,
    pair: str | None = None,
    pair_file: str | None = None,
    attention: Annotated[str | None, Parameter(help=ATTENTION)] = None,
    out: Annotated[str | None, Parameter(name=["--out", "-o"])] = None,
    count: int | None = None,
    beams: int | None = None,
    max_new_tokens: int | None = None,
    stride: int | None = None,
    longest: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    explain: Annotated[bool, Parameter(negative="")] = False,
    silence: str | None = None,
    block: Annotated[list[str] | None, Parameter(negative="")] = None,
    open_page: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> int:
    """Use a trained model on a text or an image, or on every line of a file.

    Parameters
    ----------
    task
        What the model does: translate, classify, answer, summarize, generate, classify-image or caption.
    text
        The text, in quotes; for a model of images, the path of one.
    model
        The folder that `regard train` made.
    file
        A UTF-8 file instead, of which every line is a text, or the path of an image; for summarize one text.
    pair
        A second text, for a model that reads two: the context of a question.
    pair_file
        A UTF-8 file with the second text instead.
    out
        Write the predictions to this file, one JSON object for each line, instead of printing them.
    count
        Sentences of a summary that is chosen from a text.
    beams
        Texts kept at every step of writing one; 1 is greedy.
    max_new_tokens
        The longest text that is written.
    stride
        For answer: tokens from one window of a long text to the next.
    longest
        For answer: the most characters of an answer.
    temperature
        Above 0 draws tokens by chance, the more evenly the higher it is; 0 takes the likeliest.
    seed
        Decides what is drawn by chance; 0 by default.
    explain
        For classify: say which words the class depends on, and how far each explanation may be trusted.
    silence
        Heads that put out zeros, such as 1.3,2: head 3 of layer 1, and all of layer 2. What is said without that
        stands beside it.
    block
        For classify, translate and generate: a part of the text that no token sees; may be given several times.
    open_page
        Open the page in a browser.
    """
    from regard.cli._changes import Changes
    from regard.cli._training import run_predict

    writing = {
        "count": count,
        "num_beams": beams,
        "max_new_tokens": max_new_tokens,
        "stride": stride,
        "longest": longest,
        "temperature": temperature,
        "seed": seed,
    }
    return run_predict(
        task,
        text,
        model=model,
        file=file,
        pair=pair,
        pair_file=pair_file,
        attention=attention,
        out=out,
        writing={name: value for name, value in writing.items() if value is not None},
        explained=explain,
        changes=Changes(silence, block),
        open_page=open_page,
    )
