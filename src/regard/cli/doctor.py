"""``regard doctor``: what is installed, and whether it computes what it should; or whether a model can be watched."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def doctor(
    text: str | None = None,
    /,
    *,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
) -> int:
    """Say what is installed, and check that it computes what it should; with --model, check that model instead.

    Parameters
    ----------
    text
        With --model: the text it reads, of which the first 32 tokens are taken.
    model
        minilm, e5-small, a folder, or a Hugging Face hub id: run watched and unwatched, alone and padded.
    """
    if model is not None:
        from regard.cli._check_model import run as check

        return check(model, text)
    from regard.errors import ConfigError, message

    if text is not None:
        raise ConfigError(message("doctor", "a text is for --model, which is missing."))
    from regard.cli._checks import run

    return run()
