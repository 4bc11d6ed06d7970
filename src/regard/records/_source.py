"""Where a recording's files are read from: a folder or a zip, with nothing outside it within reach."""

from __future__ import annotations

import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NoReturn

from regard.errors import FormatError, message
from regard.records import _schema


def refuse(file: object, problem: str, *, hint: str | None = None) -> NoReturn:
    """Raise the error for a file that is not what it should be."""
    raise FormatError(message("load", problem, arguments={"file": str(file)}, hint=hint))


class Source(ABC):
    """The files of one recording."""

    @abstractmethod
    def where(self, name: str) -> str:
        """What to call a file in an error."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Bytes in a file, or None if there is no such file."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All of a file."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""


class Folder(Source):
    """A recording in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def where(self, name: str) -> str:
        """What to call a file in an error."""
        return str(self.path / name)

    def size(self, name: str) -> int | None:
        """Bytes in a file, or None if there is no such file."""
        file = self.path / name
        return file.stat().st_size if file.is_file() else None

    def read(self, name: str) -> bytes:
        """All of a file."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            refuse(self.where(name), f"the file cannot be read: {error.strerror}.")

    def close(self) -> None:
        """Nothing is held open."""


class Zip(Source):
    """A recording in a zip, at its root or in its only folder. Nothing is ever unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError) as error:
            refuse(path, f"the file is neither a recording's folder nor its zip: {error}.")
        try:
            self._entries = self._checked()
        except BaseException:
            self._archive.close()
            raise

    def _checked(self) -> dict[str, zipfile.ZipInfo]:
        """Entries by name inside the recording, after refusing every name that reaches outside."""
        entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._archive.infolist():
            name = entry.filename
            parts = name.removesuffix("/").split("/")
            if (
                name.startswith("/")
                or "\\" in entry.orig_filename
                or ":" in parts[0]
                or not {"", ".", ".."}.isdisjoint(parts)
            ):
                refuse(self.path, f"the zip holds an entry that reaches outside it: {name!r}.")
            if stat.S_ISLNK(entry.external_attr >> 16):
                refuse(self.path, f"the zip holds a link: {name!r}.")
            if name in entries:
                refuse(self.path, f"the zip holds {name!r} twice.")
            entries[name] = entry
        roots = [name.removesuffix(_schema.MANIFEST) for name in entries if _is_manifest(name)]
        if len(roots) != 1:
            refuse(self.path, f"the zip must hold one {_schema.MANIFEST}, but holds {len(roots)}.")
        root = roots[0]
        return {name.removeprefix(root): entry for name, entry in entries.items() if name.startswith(root)}

    def where(self, name: str) -> str:
        """What to call a file in an error."""
        return f"{self.path}: {name}"

    def size(self, name: str) -> int | None:
        """Bytes in a file, or None if there is no such file."""
        entry = self._entries.get(name)
        return None if entry is None else entry.file_size

    def read(self, name: str) -> bytes:
        """All of a file; no more than the zip says it holds."""
        entry = self._entries[name]
        try:
            with self._archive.open(entry) as file:
                content = file.read(entry.file_size + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            RuntimeError,
            EOFError,
            OSError,
            ValueError,
        ) as error:
            refuse(self.where(name), f"the zip is damaged here: {error}.")
        if len(content) != entry.file_size:
            refuse(self.where(name), f"the zip holds {len(content)} bytes where it says {entry.file_size}.")
        return content

    def close(self) -> None:
        """Close the zip."""
        self._archive.close()


def _is_manifest(name: str) -> bool:
    """Whether a zip entry is a manifest at the root or in a top folder (a Mac's shadow files are not)."""
    parts = name.split("/")
    return parts[-1] == _schema.MANIFEST and len(parts) <= 2 and parts[0] != "__MACOSX"


def open_source(path: Path) -> Source:
    """Open a recording's folder or zip."""
    if path.is_dir():
        if not (path / _schema.MANIFEST).is_file():
            refuse(path, f"the folder is no recording: it holds no {_schema.MANIFEST}.")
        return Folder(path)
    if not path.exists():
        refuse(path, "there is no such file or folder.")
    return Zip(path)
