"""What a person types to change a model's attention: heads to silence, and parts of the text that nobody sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard import records
from regard.errors import ConfigError, message
from regard.lens import BlockSpans, Change, SilenceHeads
from regard.text import find_span

_ENCODER = r"(?:^|\.)encoder\."


@dataclass(frozen=True)
class Changes:
    """What was asked for.

    Args:
        silence: ``1.3,2``: head 3 of layer 1, and all of layer 2; None for none.
        block: Parts of the text that no token sees, each in the text once.
    """

    silence: str | None = None
    block: Sequence[str] | None = None

    def __bool__(self) -> bool:
        return self.silence is not None or bool(self.block)

    def made(self, caller: str, sequence: records.Sequence | None, *, two_stacks: bool) -> list[Change]:
        """The changes, for a model and a text.

        Args:
            caller: The command.
            sequence: The text as the model reads it; None where parts of it cannot be found again.
            two_stacks: Whether an encoder reads the text, and a decoder looks back at it.

        Raises:
            ConfigError: what was typed cannot be read, or is not in the text.
        """
        found: list[Change] = [] if self.silence is None else _silenced(caller, self.silence)
        if not self.block:
            return found
        if sequence is None:
            raise ConfigError(message(caller, "--block is for classify, translate and generate."))
        spans = []
        for wanted in self.block:
            times = sequence.text.count(wanted) if wanted else 0
            if times != 1:
                problem = (
                    f"--block must be a part of the text that is in it once, but {wanted!r} is in it {times} times."
                )
                raise ConfigError(message(caller, problem))
            tokens = find_span(sequence, wanted).tokens
            spans.append((tokens.start, tokens.stop))
        if not two_stacks:
            return [*found, BlockSpans(key_spans=spans)]
        own = BlockSpans(key_spans=spans, kind="self", modules=_ENCODER)
        return [*found, own, BlockSpans(key_spans=spans, kind="cross")]

    def notes(self) -> list[str]:
        """What a page says of them."""
        found = [] if self.silence is None else [f"Changed: heads {self.silence} (layer.head) put out zeros."]
        return [*found, *(f"Changed: no token sees {wanted!r}." for wanted in self.block or ())]


def _silenced(caller: str, text: str) -> list[Change]:
    found: list[Change] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:\.(\d{1,4}))?\s*", part)
        if match is None:
            problem = f"--silence must look like 1.3,2 (head 3 of layer 1, all of layer 2), but is {text!r}."
            raise ConfigError(message(caller, problem))
        heads = None if match[2] is None else [int(match[2])]
        found.append(SilenceHeads(heads=heads, layers=[int(match[1])]))
    return found
