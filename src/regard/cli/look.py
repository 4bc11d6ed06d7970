"""``regard look``: where a model's attention went on a text."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def look(
    text: str | None = None,
    /,
    *,
    file: Annotated[str | None, Parameter(name=["--file", "-f"])] = None,
    pair: str | None = None,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
    generate: int = 0,
    layers: str | None = None,
    probes: str | None = None,
    silence: str | None = None,
    block: Annotated[list[str] | None, Parameter(negative="")] = None,
    out: Annotated[str, Parameter(name=["--out", "-o"])] = "attention.html",
    open_page: Annotated[bool, Parameter(name="--open", negative="")] = False,
    save: str | None = None,
) -> int:
    """Observe a model on a text, print a summary, and write one page.

    Parameters
    ----------
    text
        The text, in quotes.
    file
        A UTF-8 text file to read instead.
    pair
        A second text, read together with the first; for an encoder-decoder, what it should write.
    model
        minilm (default), e5-small (multilingual, extra zh), a folder, or a Hugging Face hub id.
    generate
        Let the model write this many tokens (greedily), and watch that.
    layers
        Which layers, such as 0,3-5.
    probes
        What to gather instead of the usual, such as entropy,topk=16,heatmap=256x256.
    silence
        Heads that put out zeros, such as 1.3,2: head 3 of layer 1, and all of layer 2.
    block
        A part of the text that no token sees; may be given several times.
    out
        Where the page goes: the name of a file.
    open_page
        Open the page in a browser.
    save
        Keep the recording too, as a folder NAME.regard (or NAME.zip).
    """
    from regard.cli._looking import run

    return run(
        text=text,
        file=file,
        pair=pair,
        model=model,
        generate=generate,
        layers=layers,
        probes=probes,
        silence=silence,
        block=block,
        out=out,
        open_page=open_page,
        save=save,
    )
