"""Where a command may write, writing there, and telling the person where it is."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli._progress import Progress
from regard.errors import ConfigError, message

if TYPE_CHECKING:
    from regard.records import Recording


def check_places(command: str, *, out: str, save: str | None = None, read: str | None = None) -> None:
    """Refuse a place that cannot be written to before any work is done.

    Args:
        command: Which command is running.
        out: Where the page goes.
        save: Where a recording goes, if anywhere.
        read: The file that is read, which no output may replace.

    Raises:
        ConfigError, FormatError: One of the places is no place to write to; names the option and the path.
    """
    from regard.records.place import check_file_place, check_recording_place

    check_file_place(out, caller=command, argument="--out")
    if read is not None and _real(out) == _real(read):
        raise ConfigError(message(command, f"--out must not replace what is read, but both are {out}."))
    if save is None:
        return
    check_recording_place(save, caller=command, argument="--save")
    if _real(save) == _real(out):
        raise ConfigError(message(command, f"--out and --save must be two places, but both are {out}."))


def save_recording(recording: Recording, save: str) -> None:
    """Write the recording and say where it is."""
    with _naming("--save", save):
        recording.save(save)
    print(f"recording: {save}")


def write(recording: Recording, out: str, *, open_page: bool) -> None:
    """Write the page whole or not at all, say where it is, and open it if asked."""
    from regard.view import write_page

    with Progress("writing the page"), _naming("--out", out):
        path = write_page(recording, out)
    print(f"page: {out} ({_size(path.stat().st_size)})")
    if open_page:
        if not webbrowser.open(path.resolve().as_uri()):
            print("regard: no browser was found; open the page by hand", file=sys.stderr)
        return
    print(f"open it in a browser: {_opener()} {out}")


@contextmanager
def _naming(option: str, path: str) -> Iterator[None]:
    """What fails while it is written (a disk that runs full) is said of the option that a person gave."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "cannot be used").lower()
        raise ConfigError(message("look", f"{option} {path} cannot be written: {reason}.")) from error


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))


def _opener() -> str:
    return {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
