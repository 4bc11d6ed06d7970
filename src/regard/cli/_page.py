"""Writing the page, and telling the person where it is."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli._progress import Progress
from regard.errors import ConfigError, message

if TYPE_CHECKING:
    from regard.records import Recording


def check_place(out: Path) -> None:
    """Refuse a place that cannot be written to before any work is done.

    Raises:
        ConfigError: The folder is missing, or the name is a folder.
    """
    if out.is_dir():
        raise ConfigError(message("look", f"--out must name a file, but {out} is a folder."))
    if not out.parent.is_dir():
        raise ConfigError(message("look", f"--out must lie in a folder that exists, but there is no {out.parent}."))


def write(recording: Recording, out: Path, *, open_page: bool) -> None:
    """Write the page whole or not at all, say where it is, and open it if asked."""
    from regard.view import write_page

    with Progress("writing the page"):
        write_page(recording, out)
    print(f"page: {out} ({_size(out.stat().st_size)})")
    if open_page:
        if not webbrowser.open(out.resolve().as_uri()):
            print("regard: no browser was found; open the page by hand", file=sys.stderr)
        return
    print(f"open it in a browser: {_opener()} {out}")


def _opener() -> str:
    return {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
