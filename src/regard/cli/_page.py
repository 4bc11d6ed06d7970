"""Where a command may write, writing there, and telling the person where it is."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
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
    from regard.records.place import check_recording_place

    check_files(command, {"--out": out}, read=[read])
    if save is not None:
        check_recording_place(save, caller=command, argument="--save")
        _check_apart(command, {"--out": out, "--save": save})


def check_files(command: str, outputs: Mapping[str, str | None], *, read: Iterable[str | None] = ()) -> None:
    """Refuse files that cannot be written before any work is done.

    Args:
        command: Which command is running.
        outputs: By the option that names it each file that will be written, or None.
        read: What is read, which no output may replace.

    Raises:
        ConfigError, FormatError: One is no place to write to, replaces what is read, or is another output's; names
            the option and the path.
    """
    from regard.records.place import check_file_place

    there = {option: path for option, path in outputs.items() if path is not None}
    sources = {_real(path) for path in read if path is not None}
    for option, path in there.items():
        check_file_place(path, caller=command, argument=option)
        if _real(path) in sources:
            raise ConfigError(message(command, f"{option} must not replace what is read, but both are {path}."))
    _check_apart(command, there)


def _check_apart(command: str, there: Mapping[str, str]) -> None:
    for (one, path), (other, second) in combinations(there.items(), 2):
        if _real(path) == _real(second):
            raise ConfigError(message(command, f"{one} and {other} must be two places, but both are {path}."))


def save_recording(recording: Recording, save: str) -> None:
    """Write the recording and say where it is."""
    with naming("--save", save):
        recording.save(save)
    print(f"recording: {save}")


def write(recording: Recording, out: str, *, open_page: bool, option: str = "--out", command: str = "look") -> None:
    """Write the page whole or not at all, say where it is, and open it if asked."""
    from regard.view import write_page

    with Progress("writing the page"), naming(option, out, command=command):
        path = write_page(recording, out)
    print(f"page: {out} ({_size(path.stat().st_size)})")
    if open_page:
        if not webbrowser.open(path.resolve().as_uri()):
            print("regard: no browser was found; open the page by hand", file=sys.stderr)
        return
    print(f"open it in a browser: {_opener()} {out}")


@contextmanager
def naming(option: str, path: str, *, command: str = "look") -> Iterator[None]:
    """What fails while it is written (a disk that runs full) is said of the option that a person gave."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "cannot be used").lower()
        raise ConfigError(message(command, f"{option} {path} cannot be written: {reason}.")) from error


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))


def _opener() -> str:
    return {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
