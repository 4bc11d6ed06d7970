"""``regard view``: from a recording to its page."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def view(
    recording: str,
    /,
    *,
    out: Annotated[str, Parameter(name=["--out", "-o"])] = "attention.html",
    open_page: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> int:
    """Write the page of a recording.

    Parameters
    ----------
    recording
        A recording: a folder NAME.regard, or its zip.
    out
        Where the page goes: the name of a file.
    open_page
        Open the page in a browser.
    """
    from regard.cli._page import check_places, write
    from regard.errors import ConfigError, message
    from regard.records import Recording

    if not recording:
        raise ConfigError(message("view", "the recording must be a path, but is empty."))
    check_places("view", out=out, read=recording)
    write(Recording.load(recording), out, open_page=open_page)
    return 0
