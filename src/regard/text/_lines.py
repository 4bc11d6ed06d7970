"""A person's file as lines: unpacked, decoded, and numbered as an editor numbers them."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from regard.errors import FormatError, message
from regard.text._encodings import UTF8_MARK, mark_of, marked, unmarked, would_decode
from regard.text.options import ReadOptions

_GZIP = b"\x1f\x8b"
_NOT_TEXT = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet)",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstandard",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"%PDF": "a PDF",
}
_HEAD = 1 << 16
_CHUNK = 1 << 20


def open_unpacked(path: Path, *, caller: str) -> BufferedIOBase:
    """Open a file for reading bytes; what gzip packed is unpacked, whatever the file is called."""
    stream = path.open("rb")
    packed = stream.read(len(_GZIP)) == _GZIP
    stream.seek(0)
    return _Unpacked(stream, path, caller) if packed else stream


class _Unpacked(gzip.GzipFile):
    """A gzip stream that names its file when it is damaged."""

    def __init__(self, stream: BufferedIOBase, path: Path, caller: str) -> None:
        super().__init__(fileobj=stream)
        self._packed, self._path, self._caller = stream, path, caller

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"{self._path} must be a whole gzip file, but is damaged: {error}"
            raise FormatError(message(self._caller, problem)) from error

    def close(self) -> None:
        super().close()
        self._packed.close()


class TextFile:
    r"""A file of text, read from its beginning as often as asked for.

    A line ends at ``\n`` or ``\r\n`` and nowhere else: U+2028, form feeds and lone carriage returns are characters.

    Args:
        path: The file; it may be packed by gzip.
        options: How it is written.
        caller: The public function, for errors.
    """

    def __init__(self, path: Path, *, options: ReadOptions, caller: str) -> None:
        self.path, self._caller = path, caller
        with open_unpacked(path, caller=caller) as stream:
            self._head = stream.read(_HEAD)
            self._whole = not stream.read(1)
        self._refuse_other_kinds()
        self.encoding, self._mark = self._encoding(options.encoding)
        self.note = "" if self.encoding == "utf-8" else f"{path.name} was read as {self.encoding}"

    def fail(self, problem: str, *, hint: str | None = None) -> FormatError:
        """Build the error of this file: what comes after "must be"."""
        return FormatError(message(self._caller, f"{self.path} must be {problem}", hint=hint))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of every line; what follows the last line end is a line only if it holds something."""
        number, parts = 0, list[str]()
        for chunk in self._chunks():
            first, *others = chunk.split("\n")
            parts.append(first)
            for other in others:
                number += 1
                yield number, "".join(parts).removesuffix("\r")
                parts = [other]
        rest = "".join(parts)
        if rest:
            yield number + 1, rest.removesuffix("\r")

    def text(self) -> str:
        """All of it, line ends as they are."""
        return "".join(self._chunks())

    def sample(self) -> list[str]:
        """Its first lines, as far as they are easily read; a line that is longer than that is cut."""
        decoder = codecs.getincrementaldecoder(self.encoding)("ignore")
        text = decoder.decode(self._head[len(self._mark) :])
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        return lines if self._whole or len(lines) == 1 else lines[:-1]

    def _refuse_other_kinds(self) -> None:
        for beginning, kind in _NOT_TEXT.items():
            if self._head.startswith(beginning) and b"\0" in self._head:
                raise self.fail(f"text, or text packed by gzip, but is {kind}.", hint="unpack or export it first.")

    def _encoding(self, named: str | None) -> tuple[str, bytes]:
        """The encoding that was named, or UTF-8 unless a mark says otherwise; and the mark to leave out."""
        found = marked(self._head, whole=self._whole)
        if found is None and self._head.startswith(UTF8_MARK):
            found = "utf-8"
        mark = b"" if found is None else UTF8_MARK if found == "utf-8" else mark_of(found)
        if named is not None:
            name = codecs.lookup(named).name
            if found is not None and not codecs.lookup(found).name.startswith(name.removesuffix("-sig")):
                problem = f"{named}, as `encoding` says, but begins with the byte order mark of {found.upper()}."
                raise self.fail(problem)
            return (found or name, mark) if found is not None else (name, b"")
        if found is None:
            self._refuse_unmarked()
        return found or "utf-8", mark

    def _refuse_unmarked(self) -> None:
        if b"\0" not in self._head:
            return
        try:
            codecs.getincrementaldecoder("utf-8")().decode(self._head, final=self._whole)
            valid = True
        except UnicodeDecodeError:
            valid = False
        found = unmarked(self._head, valid=valid, whole=self._whole)
        if found is not None:
            problem = f"UTF-8, or have a byte order mark, but is {found} without one."
            raise self.fail(problem, hint=f"ReadOptions(encoding={found.lower()!r}) reads it.")

    def _chunks(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        done, lines = 0, 0
        with open_unpacked(self.path, caller=self._caller) as stream:
            stream.read(len(self._mark))
            done += len(self._mark)
            while True:
                data = stream.read(_CHUNK)
                done += len(data)
                try:
                    text = decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    raise self._undecodable(error, done - len(error.object) + error.start, lines) from error
                lines += text.count("\n")
                yield text
                if not data:
                    return

    def _undecodable(self, error: UnicodeDecodeError, at: int, lines: int) -> FormatError:
        """Name the line and the byte, and what each encoding that reads the whole file would make of that place."""
        before = error.object[: error.start].decode(self.encoding, "ignore")
        with open_unpacked(self.path, caller=self._caller) as stream:
            data = stream.read()
        possible = would_decode(data, around=at)
        name = self.encoding.upper() if self.encoding.startswith("utf") else self.encoding
        line = lines + before.count("\n") + 1
        problem = f"{self.path}, line {line}: must be {name}, but byte {at} is 0x{data[at]:02x}."
        shown = {encoding: f"would read: {text}" for encoding, text in possible.items()}
        hint = "ReadOptions(encoding=…) names the one that reads right." if shown else "no encoding tried reads it all."
        return FormatError(message(self._caller, problem, arguments=shown, hint=hint))
