"""Reading a person's text file, with errors that say what to change."""

from __future__ import annotations

from pathlib import Path

from regard.errors import FormatError, message
from regard.text._encodings import marked, unmarked


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
        encoding = marked(data) or unmarked(data, valid=text is not None)
        if encoding is not None:
            problem = f"{path} must be UTF-8, but is {encoding}; convert it from {encoding} to UTF-8."
            raise FormatError(message("read_text", problem))
    if text is None:
        line = data.count(b"\n", 0, at) + 1
        problem = f"{path}, line {line}: must be UTF-8, but byte {at} is 0x{data[at]:02x}; save the file as UTF-8."
        raise FormatError(message("read_text", problem))
    return text.removeprefix("\ufeff")
