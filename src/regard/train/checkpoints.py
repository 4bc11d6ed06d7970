"""Checkpoints that are whole or not there: written aside, checked by their sums, put in place at once."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from regard.errors import FormatError, message

_SUMS = "checksums.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_CHUNK = 1 << 20


class Checkpoints:
    """The checkpoints of one training, each a folder ``checkpoint-STEP``.

    Args:
        folder: Where they are.
        keep: How many of the newest are kept.
    """

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        self._folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """The updates after which there are checkpoints, oldest first."""
        if not self._folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self._folder.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        """Where the checkpoint of an update is, or would be."""
        return self._folder / f"checkpoint-{step}"

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Write a checkpoint: into the folder this gives, which takes its place when all is written and summed.

        Whatever goes wrong, a full disk among it, leaves the earlier checkpoints as they are, and nothing half done.
        """
        aside = self._folder / f".checkpoint-{step}.partial"
        _remove(aside)
        aside.mkdir(parents=True)
        try:
            yield aside
            _write_sums(aside)
            place = self.path(step)
            _remove(place)
            os.replace(aside, place)
            _sync(self._folder)
        except BaseException:
            _remove(aside)
            raise

    def newest_whole(self, *, tell: Callable[[str], None]) -> Path | None:
        """The newest checkpoint whose files are what they were when it was written.

        Args:
            tell: Told of every newer one that is not, with the file.
        """
        for step in reversed(self.steps()):
            try:
                check(self.path(step))
            except FormatError as error:
                tell(f"{error}; an earlier checkpoint is looked for")
                continue
            return self.path(step)
        return None

    def prune(self, *, best: int | None) -> None:
        """Remove all but the newest and the best, and what a kill left half written."""
        steps = self.steps()
        for step in steps[: -self._keep]:
            if step != best:
                _remove(self.path(step))
        self.clear_partial()

    def clear_partial(self) -> None:
        """Remove what a kill left half written."""
        for path in self._folder.glob(".checkpoint-*.partial"):
            _remove(path)


def check(folder: Path) -> None:
    """Compare every file of a checkpoint with the sum it had.

    Raises:
        FormatError: a file is missing or has changed; names it.
    """
    listed = folder / _SUMS
    try:
        sums = json.loads(listed.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(
            message("resume", f"{listed} must list the sums of a checkpoint, but cannot be read")
        ) from error
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise FormatError(message("resume", f"{path} is missing"))
        if _sum(path) != expected:
            raise FormatError(message("resume", f"{path} has changed since it was written"))


def _write_sums(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        _sync(path)
    sums = {path.relative_to(folder).as_posix(): _sum(path) for path in files}
    listed = folder / _SUMS
    listed.write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
    _sync(listed)
    _sync(folder)


def _sum(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Have it on the disk before what comes after it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
