"""Which encoding bytes are in: by their mark, by where their NULs lie, and by what would decode them."""

from __future__ import annotations

import codecs
import unicodedata

# Longest marks first: that of UTF-32LE begins with that of UTF-16LE.
_MARKS = {
    b"\xff\xfe\0\0": "UTF-32LE",
    b"\0\0\xfe\xff": "UTF-32BE",
    b"\xff\xfe": "UTF-16LE",
    b"\xfe\xff": "UTF-16BE",
}
UTF8_MARK = b"\xef\xbb\xbf"
_NO_CHARACTERS = ("Cn", "Co", "Cs")
_CONTROLS_OF_TEXT = 0.3  # a wider encoding's high bytes are controls in UTF-8: from half of a text upwards
_SAMPLE = 1 << 16
_CANDIDATES = ("utf-8", "gb18030", "big5", "shift_jis", "euc_kr", "cp1251", "cp1252")
_SHOWN = 24


def marked(data: bytes, *, whole: bool = True) -> str | None:
    """The encoding whose byte order mark a file begins with, if the rest of it is that.

    Args:
        data: What the file holds, or how it begins.
        whole: Whether that is all of it.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark) and _is_text(data, encoding, whole=whole, marked=True):
            return encoding
    return None


def mark_of(encoding: str) -> bytes:
    """The byte order mark of an encoding that ``marked`` names."""
    return next(mark for mark, name in _MARKS.items() if name == encoding)


def unmarked(data: bytes, *, valid: bool, whole: bool = True) -> str | None:
    """The wider encoding that a file without a mark is in: NULs lie where its high bytes are.

    Args:
        data: What the file holds, or how it begins.
        valid: Whether it is valid UTF-8 too, so that it must look less like text as that.
        whole: Whether that is all of it.
    """
    zeros = [data[start::4].count(0) for start in range(4)]
    if not sum(zeros) or (valid and _share_of_controls(data) < _CONTROLS_OF_TEXT):
        return None
    low_first = zeros[1] + zeros[3] > zeros[0] + zeros[2]
    names = ("UTF-32LE", "UTF-16LE") if low_first else ("UTF-32BE", "UTF-16BE")
    return next((encoding for encoding in names if _is_text(data, encoding, whole=whole)), None)


def would_decode(data: bytes, *, around: int) -> dict[str, str]:
    """The encodings that decode all of a file, each with what it makes of the place that another one could not.

    Args:
        data: What the file holds.
        around: The byte that could not be decoded.
    """
    start = data.rfind(b"\n", 0, around) + 1
    end = data.find(b"\n", around)
    line = data[start : len(data) if end < 0 else end]
    found = {}
    for encoding in _CANDIDATES:
        try:
            data.decode(encoding)
            before, after = len(line[: around - start].decode(encoding, "ignore")), line.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in after:
            continue
        found[encoding] = after[max(before - _SHOWN // 2, 0) : before + _SHOWN].strip()
    return found


def _share_of_controls(data: bytes) -> float:
    return sum(byte < 0x20 for byte in data[:_SAMPLE]) / len(data[:_SAMPLE])


def _is_text(data: bytes, encoding: str, *, whole: bool, marked: bool = False) -> bool:
    """Whether bytes are in an encoding and, where no mark says so, hold characters that Python knows."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return "\0" not in text and (marked or not any(unicodedata.category(c) in _NO_CHARACTERS for c in text[:_SAMPLE]))
