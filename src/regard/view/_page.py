"""Payload → one self-contained page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, FormatError, message, must_be
from regard.records import Recording
from regard.records.place import beside, check_file_place, named_after
from regard.view.payload import payload

TEMPLATE = Path(__file__).parent / "static" / "viewer.html"
SLOT = '<script type="application/json" id="regard-data">null</script>'
MAX_MB = 40.0

_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page(recording: Recording, *, title: str | None = None, max_mb: float | None = None) -> str:
    """The page that shows a recording: one HTML text that needs no other file and no network.

    Calls of at most 128 queries and keys carry every weight in float32. Longer ones carry a map of bin means in one
    byte per cell, and the exact top-k, entropy and masses that were recorded. Where all that is too large, detail is
    left out step by step; the page's notes say what.

    Args:
        recording: What to show.
        title: Title of the page; the model's name and the start of the text if None.
        max_mb: Largest size in megabytes of 10^6 bytes; 40 if None.

    Returns:
        HTML in ASCII, apart from what the viewer itself holds.

    Raises:
        ConfigError: Not even the least detail fits into ``max_mb``.
        FormatError: The viewer that belongs to this package is missing or damaged.
    """
    limit = MAX_MB if max_mb is None else max_mb
    if not limit > 0:
        raise ConfigError(message("page", must_be("max_mb", "more than 0", limit)))
    before, after = _template()
    room = limit * 1e6 - len(before.encode()) - len(after.encode())
    return before + _in_slot(escaped(payload(recording, title=title, max_characters=room))) + after


def write_page(
    recording: Recording, path: str | os.PathLike[str], *, title: str | None = None, max_mb: float | None = None
) -> Path:
    """Write the page to a file, beside it first and then renamed, so that nobody meets half a page.

    Args:
        recording: What to show.
        path: The file; replaced if it is there, unless it is a recording.
        title: As for ``page``.
        max_mb: As for ``page``.

    Returns:
        The path that was written.

    Raises:
        ConfigError: ``path`` is no place for a file (a folder, a recording, in a folder that is missing or cannot be
            written to), or not even the least detail fits into ``max_mb``.
        FormatError: The viewer that belongs to this package is missing or damaged.
        OSError: It could not be written after all (a full disk); names ``path``.
    """
    check_file_place(path, caller="write_page")
    content = page(recording, title=title, max_mb=max_mb).encode("utf-8")
    target = Path(os.path.realpath(path))
    part = beside(target)
    try:
        part.write_bytes(content)
        os.replace(part, target)
    except OSError as error:
        raise named_after(error, path) from error
    finally:
        part.unlink(missing_ok=True)
    return Path(path)


def escaped(data: dict[str, Any]) -> str:
    """JSON that is safe inside a script element: ASCII, and without a sign that HTML could take for its own."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _in_slot(data: str) -> str:
    return SLOT.replace("null", data)


def _template() -> tuple[str, str]:
    """The viewer before and after the place where the data goes."""
    try:
        text = TEMPLATE.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "Install regard again; in a working copy, build the viewer."
        raise FormatError(message("page", f"the viewer cannot be read: {error}.", hint=hint)) from error
    before, found, after = text.partition(SLOT)
    if not found or SLOT in after:
        problem = f"the viewer is damaged: it must hold the data slot once, but holds it {text.count(SLOT)} times."
        raise FormatError(message("page", problem, arguments={"file": str(TEMPLATE)}))
    return before, after
