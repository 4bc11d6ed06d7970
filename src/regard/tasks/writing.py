"""What all tasks share that read one text and write another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard import records
from regard.hf import (
    RegardForConditionalGeneration,
    RegardRecurrentForConditionalGeneration,
    RegardSeq2SeqConfig,
)
from regard.hf.loading import quiet
from regard.hf.models import shifted_right
from regard.lens.from_weights import recording_from_weights
from regard.tasks.encoding import batched, collate, encode
from regard.tasks.task import Preset, fitting
from regard.tasks.trained import Trained
from regard.tasks.watching import sequence_of, watched
from regard.text import continuation
from regard.train.data import RowData, TrainData

_BATCH_TOKENS = 2000
_LONGEST = 2.0  # targets are written up to this many times the length of their source, and a few tokens more
_MORE = 20


@dataclass(frozen=True)
class Written:
    """A text a model wrote.

    Args:
        text: Without special tokens.
        ids: With them, from the first the decoder was given.
        score: Log-probability by length, nats; None for a greedy search.
    """

    text: str
    ids: tuple[int, ...]
    score: float | None


def new_writer(preset: Preset, tokenizer: Any) -> Any:
    """The Transformer, with one table of embeddings for source and target."""
    return RegardForConditionalGeneration(RegardSeq2SeqConfig(**preset.settings_for(tokenizer)))


def writing_data(
    trained: Trained, sources: Sequence[str], targets: Sequence[str], places: Sequence[Any]
) -> tuple[TrainData, int]:
    """Ids of sources and targets, each with its end; and how many are too long."""
    start, pad_id = start_id(trained.model), trained.model.config.pad_token_id

    def batch_of(batch: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        tensors = collate(batch, trained.tokenizer)
        tensors["decoder_input_ids"] = shifted_right(tensors["labels"], start=start, pad_id=pad_id)
        return tensors  # padding is behind: no real token of a causal decoder sees it

    read, written = encode(trained.tokenizer, sources), _encode_targets(trained.tokenizer, targets)
    for source in read:
        source.pop("token_type_ids", None)  # a source is of one part
    rows = [{**source, "labels": target} for source, target in zip(read, written, strict=True)]
    kept = fitting(rows, trained.info.max_tokens)
    lengths = [(len(rows[index]["input_ids"]), len(rows[index]["labels"])) for index in kept]
    data = RowData([rows[index] for index in kept], lengths, batch_of, [str(places[index]) for index in kept])
    return data, len(rows) - len(kept)


def write(trained: Trained, sources: Sequence[str], **options: Any) -> list[Written]:
    """Write a target for every source.

    Args:
        trained: The model.
        sources: Longer ones than the model reads lose their end.
        **options: For ``generate``; by default five beams.
    """
    limit = trained.info.max_tokens
    rows = [
        {name: ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]] for name, ids in row.items()}
        for row in encode(trained.tokenizer, sources)
    ]

    def run(batch: list[int]) -> list[Written]:
        return _generate(trained, [rows[index] for index in batch], options)

    return batched(rows, batch_tokens=options.pop("batch_tokens", _BATCH_TOKENS), run=run)


def observe_writing(trained: Trained, source: str, **options: Any) -> tuple[Written, records.Recording]:
    """Write one target, then read both again while the attention is watched: every head, every token."""
    written = write(trained, [source], **options)[0]
    read, inputs = sequence_of(trained, source)
    ids = [token for token in written.ids if token != trained.model.config.pad_token_id or token == written.ids[0]]
    target = continuation(trained.tokenizer, ids)
    passed = {name: value for name, value in inputs.items() if name != "token_type_ids"}

    if isinstance(trained.model, RegardRecurrentForConditionalGeneration):
        return written, _aligned(trained, passed, ids, [(read, target)])

    def run() -> None:
        trained.model(**passed, decoder_input_ids=torch.tensor([ids]), use_cache=False)

    length = max(len(read.tokens), len(ids))
    return written, watched(trained, run, [(read, target)], length=length)


@torch.no_grad()
def _aligned(
    trained: Trained,
    inputs: Mapping[str, torch.Tensor],
    ids: Sequence[int],
    sequences: Sequence[Sequence[records.Sequence]],
) -> records.Recording:
    """Where a recurrent decoder looked for the token after each: it returns what a watch cannot see."""
    weights = trained.model.alignments(decoder_input_ids=torch.tensor([ids]), **inputs)
    return recording_from_weights(
        weights[:, None],
        name="decoder.cross",
        kind="cross",
        sequences=sequences,
        model_name=trained.name,
        architecture=type(trained.model).__name__,
    )


@torch.no_grad()
def _generate(trained: Trained, rows: Sequence[Mapping[str, list[int]]], options: Mapping[str, Any]) -> list[Written]:
    inputs = collate(rows, trained.tokenizer)
    inputs.pop("token_type_ids", None)
    longest = inputs["input_ids"].shape[1]
    chosen = {
        "num_beams": 5,
        "do_sample": False,
        "max_new_tokens": min(int(_LONGEST * longest) + _MORE, trained.info.max_tokens),
        **options,
    }
    with quiet():
        found = trained.model.generate(**inputs, **chosen, return_dict_in_generate=True, output_scores=False)
    scores = getattr(found, "sequences_scores", None)
    texts = trained.tokenizer.batch_decode(found.sequences, skip_special_tokens=True)
    return [
        Written(text.strip(), tuple(ids), None if scores is None else float(scores[index]))
        for index, (text, ids) in enumerate(zip(texts, found.sequences.tolist(), strict=True))
    ]


def _encode_targets(tokenizer: Any, targets: Sequence[str]) -> list[list[int]]:
    if not targets:
        return []
    ids: list[list[int]] = tokenizer(
        text_target=list(targets), truncation=False, padding=False, verbose=False
    ).input_ids
    return ids


def start_id(model: Any) -> int:
    """The token a decoder begins with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        if (found := getattr(model.config, name, None)) is not None:
            return int(found)
    return 0
