"""Reading a person's text file, with errors that say what to change."""

from __future__ import annotations

from pathlib import Path

from regard.errors import FormatError, message

_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_text(path: Path) -> str:
    """Read a whole UTF-8 text file; a byte order mark is dropped, line ends are kept as they are.

    Args:
        path: The file.

    Returns:
        Its text.

    Raises:
        OSError: The file cannot be read.
        FormatError: The file is not UTF-8; names the line and the byte.
    """
    data = path.read_bytes()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        at, looks_like = error.start, _MARKS.get(data[:2])
    if looks_like is not None:
        problem = f"{path} must be UTF-8, but looks like {looks_like}; save it as UTF-8."
    else:
        line = data.count(b"\n", 0, at) + 1
        problem = f"{path}, line {line}: must be UTF-8, but byte {at} is 0x{data[at]:02x}; save the file as UTF-8."
    raise FormatError(message("read_text", problem))
