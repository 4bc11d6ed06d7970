"""Whether the tokens a person gives are as many as the positions that were seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.errors import ConfigError, message
from regard.lens._layers import Layer
from regard.lens._recording import CHECKED_CELLS, program_of, sequence_names
from regard.records import Sequence as TokenSequence


def check_lengths(layers: Sequence[Layer], sequences: Sequence[Sequence[TokenSequence]], *, plain: bool) -> None:
    """Refuse sequences that cannot be what the layers read; one without any tokens says nothing and is taken.

    Args:
        layers: What was seen.
        sequences: Per batch item, what a person says was read.
        plain: Whether they were given as ``tokens``.

    Raises:
        ConfigError: Another number of items or of tokens; names both numbers.
    """
    if not layers or not sequences:
        return
    argument = "`tokens`" if plain else "`sequences`"
    batches = sorted({layer.batch for layer in layers})
    if len(sequences) not in batches:
        seen = " or ".join(map(str, batches))
        problem = f"{argument} must be of as many items as the batch that was seen ({seen}), but are of"
        raise ConfigError(message("recording", f"{problem} {len(sequences)}."))
    layers = [layer for layer in layers if layer.batch == len(sequences)]
    if plain and any(layer.kind == "cross" for layer in layers):
        problem = "`tokens` is for one text, but the model read one and wrote another."
        hint = "sequences=[[source, target]] takes both, as regard.records.Sequence"
        raise ConfigError(message("recording", problem, hint=hint))
    for item, given in enumerate(sequences):
        for sequence in given:
            if sequence.tokens:
                what = argument if plain else f"the tokens of {argument} {sequence.name!r}"
                where = f" of item {item}" if len(sequences) > 1 else ""
                _check_one(layers, given, sequence, what=what, where=where)


def _check_one(
    layers: Sequence[Layer], given: Sequence[TokenSequence], sequence: TokenSequence, *, what: str, where: str
) -> None:
    reached = _reached(layers, given, sequence.name)
    count = len(sequence.tokens)
    if not reached or count in reached:
        return
    longest = max(reached)
    writes = any(_may_write(layer) for layer in layers if layer.kind == "self" and layer.kv_end == longest)
    if writes and count == longest + 1:
        return
    seen = f"{longest}, or {longest + 1} with the one written last" if writes else str(longest)
    problem = f"{what} must be as many as the positions that were seen ({seen}), but are {count}{where}."
    raise ConfigError(message("recording", problem))


def _reached(layers: Sequence[Layer], given: Sequence[TokenSequence], name: str) -> set[int]:
    """How far each stack of layers reads into a sequence; with one sequence given, any stack may be its own."""
    if len(given) == 1:
        return {layer.kv_end for layer in layers}
    names = sequence_names(layers, [given])
    keys = {layer.kv_end for layer in layers if names[id(layer)][1] == name}
    queries = {layer.q_end for layer in layers if names[id(layer)][0] == name}
    return {max(keys | queries)} if keys | queries else set()


def _may_write(layer: Layer) -> bool:
    """Whether no query looks ahead, so that the model may have written one token more than it read."""
    step = layer.calls[0]
    size = (step.q_end - step.q_start) * (step.kv_end - step.kv_start)
    if len(layer.calls) > 1 or size <= 1 or size > CHECKED_CELLS:
        return True
    if step.mask is None:
        return not step.mask_kept
    program = program_of(layer, step)
    if program is None:
        return True
    queries, keys = np.arange(step.q_start, step.q_end)[None], np.arange(step.kv_start, step.kv_end)
    return not bool((program.allowed(queries, keys) & (keys > queries[..., None])).any())
