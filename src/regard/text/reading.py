"""Reading a person's text file, with errors that say what to change."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from regard.errors import FormatError, message

# Longest marks first: that of UTF-32LE begins with that of UTF-16LE.
_MARKS = {
    b"\xff\xfe\0\0": "UTF-32LE",
    b"\0\0\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
_NO_CHARACTERS = ("Cn", "Co", "Cs")
_CONTROLS_OF_TEXT = 0.3  # a wider encoding's high bytes are controls in UTF-8: from half of a text upwards
_SAMPLE = 1 << 16


def read_text(path: Path) -> str:
    """Read a whole UTF-8 text file; a byte order mark is dropped, line ends are kept as they are.

    Args:
        path: The file.

    Returns:
        Its text.

    Raises:
        OSError: The file cannot be read.
        FormatError: The file is not UTF-8; names its encoding where that can be told, else the line and the byte.
    """
    data = path.read_bytes()
    text, at = None, 0
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
    if text is None or "\0" in text:
        encoding = _marked(data) or _unmarked(data, valid=text is not None)
        if encoding is not None:
            problem = f"{path} must be UTF-8, but is {encoding}; convert it from {encoding} to UTF-8."
            raise FormatError(message("read_text", problem))
    if text is None:
        line = data.count(b"\n", 0, at) + 1
        problem = f"{path}, line {line}: must be UTF-8, but byte {at} is 0x{data[at]:02x}; save the file as UTF-8."
        raise FormatError(message("read_text", problem))
    return text.removeprefix("\ufeff")


def _marked(data: bytes) -> str | None:
    """The encoding whose byte order mark a file begins with, if the rest of it is that."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark) and _is_text(data, encoding):
            return encoding
    return None


def _unmarked(data: bytes, *, valid: bool) -> str | None:
    """The wider encoding that a file without a mark is in: NULs lie where its high bytes are.

    Args:
        data: What the file holds.
        valid: Whether it is valid UTF-8 too, so that it must look less like text as that.
    """
    zeros = [data[start::4].count(0) for start in range(4)]
    if not sum(zeros) or (valid and _share_of_controls(data) < _CONTROLS_OF_TEXT):
        return None
    low_first = zeros[1] + zeros[3] > zeros[0] + zeros[2]
    names = ("UTF-32LE", "UTF-16LE") if low_first else ("UTF-32BE", "UTF-16BE")
    return next((encoding for encoding in names if _is_text(data, encoding)), None)


def _share_of_controls(data: bytes) -> float:
    return sum(byte < 0x20 for byte in data[:_SAMPLE]) / len(data[:_SAMPLE])


def _is_text(data: bytes, encoding: str) -> bool:
    """Whether bytes are in an encoding, and hold characters in it."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return "\0" not in text and not any(unicodedata.category(c) in _NO_CHARACTERS for c in text[:_SAMPLE])
