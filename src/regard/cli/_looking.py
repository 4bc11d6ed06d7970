"""What ``regard look`` does, step by step; nothing is written before everything is known to be right."""

from __future__ import annotations

import sys
from pathlib import Path

from regard.cli._page import check_places, save_recording, write
from regard.errors import ConfigError, message
from regard.text.reading import read_text


def run(
    *,
    text: str | None,
    file: str | None,
    pair: str | None,
    model: str | None,
    generate: int,
    layers: str | None,
    probes: str | None,
    silence: str | None,
    block: list[str] | None,
    out: str,
    open_page: bool,
    save: str | None,
) -> int:
    """Read, observe, print, write; see ``regard look --help`` for the arguments."""
    read = _text(text, file)
    if not read.strip() or (pair is not None and not pair.strip()):
        raise ConfigError(message("look", "the text must hold something to read, but is empty."))
    if generate < 0:
        raise ConfigError(message("look", f"--generate must be a number of tokens, but is {generate}."))
    check_places("look", out=out, save=save, read=file)
    from regard.cli._changes import Changes
    from regard.cli._observe import Request, observe
    from regard.cli._summary import print_summary

    changes = Changes(silence, block)
    request = Request(read, pair=pair, model=model, generate=generate, layers=layers, probes=probes, changes=changes)
    recording = observe(request, say=lambda note: print(f"note: {note}", file=sys.stderr))
    print_summary(recording)
    if save is not None:
        save_recording(recording, save)
    write(recording, out, open_page=open_page)
    return 0


def _text(text: str | None, file: str | None) -> str:
    if text is not None and file is not None:
        raise ConfigError(message("look", "a text and --file exclude each other; give one of them."))
    if file is not None:
        if not file:
            raise ConfigError(message("look", "--file must be the name of a file, but is empty."))
        return read_text(Path(file))
    if text is None:
        raise ConfigError(message("look", 'there is no text: regard look "a text in quotes", or --file NAME.'))
    return text
