"""What ``regard doctor --model`` does: load, run both ways, print."""

from __future__ import annotations

import sys

import torch

from regard.cli._progress import Progress
from regard.errors import ConfigError, message
from regard.hf import check_model, load
from regard.hf.loading import quiet
from regard.text import tokenize

_TEXT = "The bank is by the river bank, and the other bank is in the town."
_TOKENS = 32
_SPARE = 3  # positions that padding needs


def run(model: str, text: str | None) -> int:
    """Print what was found; 1 if something is wrong."""
    if text is not None and not text.strip():
        raise ConfigError(message("doctor", "the text must hold something to read, but is empty."))
    with Progress(f"loading {model}"), quiet():
        loaded = load(model)
    tokenized = tokenize(loaded.tokenizer, _TEXT if text is None else text)
    limit = _TOKENS if loaded.max_positions is None else min(_TOKENS, loaded.max_positions - _SPARE)
    ids = torch.tensor([tokenized.ids[: max(limit, 1)]])
    inputs = {"input_ids": ids}
    if loaded.kind == "encoder-decoder":
        config = loaded.model.config
        names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
        start = next((found for name in names if (found := getattr(config, name, None)) is not None), 0)
        inputs["decoder_input_ids"] = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
    found = check_model(loaded.model, inputs)
    print(f"{'model':<16} {loaded.name}")
    print(found)
    for note in loaded.notes:
        print(f"{'note':<16} {note}")
    if found.wrong:
        one = len(found.wrong) == 1
        print(f"regard: {len(found.wrong)} {'check' if one else 'checks'} failed", file=sys.stderr)
    return 1 if found.wrong else 0
