"""What all tasks share that read one text and write another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard import records
from regard.errors import ConfigError, all_problems, message, must_be
from regard.hf import (
    RegardForConditionalGeneration,
    RegardRecurrentForConditionalGeneration,
    RegardSeq2SeqConfig,
)
from regard.hf.loading import max_positions_of, quiet
from regard.hf.models import shifted_right
from regard.lens.attentions import from_attentions
from regard.tasks.encoding import batched, collate, cut, encode
from regard.tasks.tables import MEAN, named_table, word_table, words_of
from regard.tasks.task import Preset, check_texts, count_problems, fitting
from regard.tasks.trained import Trained
from regard.tasks.watching import reading_of, watched
from regard.text import continuation
from regard.train.data import RowData, TrainData

_BATCH_TOKENS = 2000
_LONGEST = 2.0  # targets are written up to this many times the length of their source, and a few tokens more
_MORE = 20
_IMPLY_CHANCE = ("temperature", "top_k", "top_p")
_ONE_TEXT = ("num_return_sequences", "return_dict_in_generate")
_WORDS = "Words and their sources"
_LOOKED = "The share of the cross-attention when the word was written"


@dataclass(frozen=True)
class Written:
    """A text a model wrote.

    Args:
        text: Without special tokens.
        ids: With them, from the first the decoder was given.
    """

    text: str
    ids: tuple[int, ...]


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

    Returns:
        One for each, in their order.

    Raises:
        ConfigError: a source is no text, or the options cannot be used.
    """
    check_texts(sources)
    rows = [cut(row, trained.info.max_tokens) for row in encode(trained.tokenizer, sources)]

    def run(batch: list[int]) -> list[Written]:
        return _generate(trained, [rows[index] for index in batch], options)

    return batched(rows, batch_tokens=options.pop("batch_tokens", _BATCH_TOKENS), run=run)


def observe_writing(trained: Trained, source: str, **options: Any) -> tuple[Written, records.Recording]:
    """Write one target, then read both again while the attention is watched: every head, every token.

    Args:
        trained: The model.
        source: As the model reads it: a longer one loses its end, and a note says so.
        **options: As for ``write``.

    Returns:
        (what was written, a recording with a table of words).

    Raises:
        ConfigError: as for ``write``, or the model has no attention.

    Cost:
        Three runs of the model: to write, to see all heads, and to add up words.
    """
    written = write(trained, [source], **options)[0]
    reading = reading_of(trained, source)
    read, inputs = reading.sequence, reading.inputs
    ids = [token for token in written.ids if token != trained.model.config.pad_token_id or token == written.ids[0]]
    target = continuation(trained.tokenizer, ids)
    passed = {name: value for name, value in inputs.items() if name != "token_type_ids"}

    if isinstance(trained.model, RegardRecurrentForConditionalGeneration):
        return written, replace(_aligned(trained, passed, ids, [(read, target)]), notes=reading.notes)

    def run() -> None:
        trained.model(**passed, decoder_input_ids=torch.tensor([ids]), use_cache=False)

    length = max(len(read.tokens), len(ids))
    recording = watched(trained, run, [(read, target)], length=length, notes=reading.notes)
    rows, columns, note = words_of(target), words_of(read), f"{_LOOKED}, {MEAN}."
    found = word_table(
        trained.model, run, kind="cross", rows=rows, columns=columns, name=_WORDS, note=note, shift=-1
    )  # what wrote a token is the row of the token before
    return written, replace(recording, tables=found)


@torch.no_grad()
def _aligned(
    trained: Trained,
    inputs: Mapping[str, torch.Tensor],
    ids: Sequence[int],
    sequences: Sequence[Sequence[records.Sequence]],
) -> records.Recording:
    """Where a recurrent decoder looked for the token after each: it returns what a watch cannot see."""
    weights = trained.model.alignments(decoder_input_ids=torch.tensor([ids]), **inputs)
    (read, target), *_ = sequences
    recording = from_attentions(
        None,
        target,
        cross_attentions={"decoder.cross": weights[:, None]},
        source_tokens=read,
        model_name=trained.name,
        architecture=type(trained.model).__name__,
    )
    rows, columns = words_of(target), words_of(read)
    if not rows or not columns:
        return recording
    groups = [[token - 1 for token in word.tokens] for word in rows], [[*word.tokens] for word in columns]
    values = records.between_groups(weights[0].double().numpy(), *groups)
    return replace(recording, tables=(named_table(values, rows, columns, name=_WORDS, note=f"{_LOOKED}."),))


def generated(model: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """What ``generate`` of transformers returns: one text for each input.

    Tokens are drawn by chance where a temperature above 0, ``top_k`` or ``top_p`` is given, or ``do_sample=True``.

    Args:
        model: The model.
        inputs: What it reads.
        options: Of ``generate``; ``seed`` (0) decides what is drawn by chance.

    Raises:
        ConfigError: they cannot be used: they are about chance where nothing is left to it, ask for more than one
            text, or for more tokens than the model has positions for.
    """
    chosen = _by_chance({name: value for name, value in options.items() if value is not None})
    problems = count_problems(options, ("num_beams", "max_new_tokens"))
    problems += [
        must_be(name, "as it is: one text for each input", repr(chosen[name]))
        for name in _ONE_TEXT
        if chosen.get(name, 1) not in (1, False)
    ]
    begun, limit = _begun(model, inputs), max_positions_of(model.config)
    if limit is not None and isinstance(asked := chosen.get("max_new_tokens"), int) and begun + asked > limit:
        problems.append(must_be("max_new_tokens", f"at most {limit - begun}: the model has {limit} positions", asked))
    if problems:
        raise all_problems("predict", problems)
    with quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(chosen.pop("seed", 0))
            return model.generate(**inputs, **chosen)
        except (TypeError, ValueError) as error:
            raise ConfigError(message("predict", f"the options cannot be used: {error}")) from error


def _by_chance(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with ``do_sample`` as the others imply it; at a temperature of 0 without those of chance."""
    plain = {name: value for name, value in options.items() if name not in (*_IMPLY_CHANCE, "seed")}
    if options.get("temperature") == 0:
        return {**plain, "do_sample": False}
    if options.get("do_sample", any(name in options for name in _IMPLY_CHANCE)):
        return {**options, "do_sample": True}
    if lost := [name for name in options if name not in plain]:
        hint = "a temperature above 0 draws by chance"
        problem = f"nothing is left to chance, and `{lost[0]}` would change nothing."
        raise ConfigError(message("predict", problem, hint=hint))
    return {**plain, "do_sample": False}


def _begun(model: Any, inputs: Mapping[str, Any]) -> int:
    """How many tokens there are before the first new one: the prompt, or the one that begins what is written."""
    prompt = inputs.get("input_ids")
    return 1 if prompt is None or model.config.is_encoder_decoder else int(prompt.shape[1])


def _generate(trained: Trained, rows: Sequence[Mapping[str, list[int]]], options: Mapping[str, Any]) -> list[Written]:
    inputs = collate(rows, trained.tokenizer)
    inputs.pop("token_type_ids", None)
    chosen = {
        "num_beams": 5,
        "max_new_tokens": min(max(map(_usual_length, rows)), trained.info.max_tokens - 1),
        **options,
    }
    written = generated(trained.model, inputs, chosen).tolist()
    if "max_new_tokens" not in options:  # a text that does not end is as long as it would be alone
        written = [ids[: 1 + _usual_length(row)] for ids, row in zip(written, rows, strict=True)]
    return read_back(trained.tokenizer, written)


def read_back(tokenizer: Any, written: Sequence[Sequence[int]]) -> list[Written]:
    """The texts of rows of ids that ``generated`` gave."""
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return [Written(text.strip(), tuple(ids)) for text, ids in zip(texts, written, strict=True)]


def _usual_length(row: Mapping[str, list[int]]) -> int:
    """The most tokens that are written for a source."""
    return int(_LONGEST * len(row["input_ids"])) + _MORE


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
