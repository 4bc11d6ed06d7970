"""``regard view``: from a recording to its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def view(
    recording: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("attention.html"),
    open_page: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> int:
    """Write the page of a recording.

    Parameters
    ----------
    recording
        A recording: a folder NAME.regard, or its zip.
    out
        The page.
    open_page
        Open the page in a browser.
    """
    from regard.cli._page import check_place, write
    from regard.records import Recording

    check_place(out)
    write(Recording.load(recording), out, open_page=open_page)
    return 0
