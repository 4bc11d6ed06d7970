"""What ``regard look`` does, step by step; nothing is written before everything is known to be right."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.cli._page import check_place, write
from regard.errors import ConfigError, message
from regard.text.reading import read_text


def run(
    *,
    text: str | None,
    file: Path | None,
    pair: str | None,
    model: str | None,
    generate: int,
    layers: str | None,
    probes: str | None,
    out: Path,
    open_page: bool,
    save: Path | None,
) -> int:
    """Read, observe, print, write; see ``regard look --help`` for the arguments."""
    read = _text(text, file)
    if not read.strip() or (pair is not None and not pair.strip()):
        raise ConfigError(message("look", "the text must hold something to read, but is empty."))
    if generate < 0:
        raise ConfigError(message("look", f"--generate must be a number of tokens, but is {generate}."))
    check_place(out)
    if save is not None:
        _check_recording(save)
    from regard.cli._observe import Request, observe
    from regard.cli._summary import print_summary

    request = Request(read, pair=pair, model=model, generate=generate, layers=layers, probes=probes)
    recording = observe(request, say=lambda note: print(f"note: {note}", file=sys.stderr))
    print_summary(recording)
    if save is not None:
        recording.save(save)
        print(f"recording: {save}")
    write(recording, out, open_page=open_page)
    return 0


def _text(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise ConfigError(message("look", "a text and --file exclude each other; give one of them."))
    if file is not None:
        return read_text(file)
    if text is None:
        raise ConfigError(message("look", 'there is no text: regard look "a text in quotes", or --file NAME.'))
    return text


def _check_recording(save: Path) -> None:
    if not save.parent.is_dir():
        raise ConfigError(message("look", f"--save must lie in a folder that exists, but there is no {save.parent}."))
