"""Payload → one self-contained page."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, FormatError, message, must_be
from regard.records import Recording
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
        path: The file; replaced if it is there.
        title: As for ``page``.
        max_mb: As for ``page``.

    Returns:
        The path that was written.

    Raises:
        ConfigError: ``path`` is a folder, or not even the least detail fits into ``max_mb``.
        FormatError: The viewer that belongs to this package is missing or damaged.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ConfigError(message("write_page", must_be("path", "a file", f"a folder: {path}")))
    content = page(recording, title=title, max_mb=max_mb).encode("utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.parent / f".{target.name}.{secrets.token_hex(6)}.part"
    try:
        beside.write_bytes(content)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
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
