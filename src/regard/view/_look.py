"""look(): from something that was seen to its page, in one call."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.errors import ConfigError, message, must_be
from regard.records import Recording
from regard.view._page import write_page


@runtime_checkable
class Recordable(Protocol):
    """Anything that can tell what it saw, as ``regard.watch`` yields it."""

    def recording(self, **options: Any) -> Recording:
        """What was seen, as data."""


def look(
    seen: Recording | Recordable,
    path: str | os.PathLike[str] = "attention.html",
    *,
    title: str | None = None,
    max_mb: float | None = None,
    open: bool = False,
    **options: Any,
) -> Path:
    """Write the page that shows where attention went.

    Args:
        seen: What ``regard.watch`` yielded, or a recording.
        path: The file; replaced if it is there, unless it is a recording.
        title: Of the page; the model's name and the beginning of the text by default.
        max_mb: Largest size of the page, in megabytes; 40 by default.
        open: Whether to show it in the browser.
        **options: For what ``regard.watch`` yielded: ``tokens=`` or ``sequences=``, ``model_name=``, ``notes=``.

    Returns:
        The path that was written.

    Raises:
        ConfigError: ``seen`` is neither, options are given for a recording, or ``path`` is no
            place for a file.

    Example:
        >>> import tempfile, torch, regard
        >>> model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with regard.watch(model, [regard.Rows(), regard.Entropy()]) as seen, torch.no_grad():
        ...     output = model(torch.randn(1, 3, 8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     regard.look(seen, f"{folder}/attention.html", tokens=["a", "b", "c"]).name
        'attention.html'
    """
    if isinstance(seen, Recording):
        if options:
            named = ", ".join(sorted(options))
            raise ConfigError(message("look", f"a recording already holds its text, but got options for it: {named}."))
        recording = seen
    elif isinstance(seen, Recordable):
        recording = seen.recording(**options)
    else:
        expected = "what regard.watch yielded, or a recording"
        raise ConfigError(message("look", must_be("seen", expected, f"a {type(seen).__name__}")))
    written = write_page(recording, path, title=title, max_mb=max_mb)
    if open:
        webbrowser.open(written.resolve().as_uri())
    return written
