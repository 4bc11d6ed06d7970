"""From texts to the rows a trainer reads, and from rows to batches; the same for tokenizers of ours and of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.hf.losses import IGNORED
from regard.text import without_lone_surrogates
from regard.train.data import Row, padded

_FILLED_WITH = {"attention_mask": 0, "token_type_ids": 0, "labels": IGNORED, "parts": IGNORED}


def encode(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[dict[str, list[int]]]:
    """What a model reads of each text, by the names of its inputs; nothing is cut off.

    Args:
        tokenizer: A fast tokenizer of transformers.
        texts: The texts.
        pairs: A second text for each.
    """
    first = [without_lone_surrogates(text)[0] for text in texts]
    second = None if pairs is None else [without_lone_surrogates(text)[0] for text in pairs]
    if not first:
        return []
    encoded = tokenizer(first, second, truncation=False, padding=False, verbose=False)
    names = [name for name in tokenizer.model_input_names if name in encoded]
    return [{name: encoded[name][index] for name in names} for index in range(len(first))]


def cut(row: Mapping[str, list[int]], limit: int) -> dict[str, list[int]]:
    """A row of at most so many tokens: the last one, an end, is kept.

    Args:
        row: By the names of a model's inputs.
        limit: The longest it may be.
    """
    return {name: [ids[place] for place in kept_of(len(ids), limit)] for name, ids in row.items()}


def kept_of(length: int, limit: int) -> list[int]:
    """The places that are kept of a row of this length."""
    return [*range(length)] if length <= limit else [*range(limit - 1), length - 1]


def unknown_share(tokenizer: Any, texts: Sequence[str]) -> float:
    """The share of the tokens of texts that the vocabulary lacks; 0 where it lacks none, or there are no tokens."""
    clean = [without_lone_surrogates(text)[0] for text in texts]
    rows: list[list[int]] = tokenizer(clean, add_special_tokens=False, verbose=False).input_ids if clean else []
    return sum(row.count(tokenizer.unk_token_id) for row in rows) / max(1, sum(map(len, rows)))


def collate(rows: Sequence[Row], tokenizer: Any) -> dict[str, Tensor]:
    """A batch of rows of different lengths, filled up at the end; single numbers become one tensor."""
    fill = {**_FILLED_WITH, "input_ids": padding_id(tokenizer)}
    return {
        name: torch.tensor([row[name] for row in rows])
        if isinstance(rows[0][name], int)
        else padded([row[name] for row in rows], fill=fill[name])
        for name in rows[0]
    }


def padding_id(tokenizer: Any) -> int:
    """What fills a row: the tokenizer's padding, or its end where it has none, which the mask hides."""
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return 0 if found is None else int(found)


def batched(
    rows: Sequence[Mapping[str, list[int]]], *, batch_tokens: int, run: Callable[[list[int]], Sequence[Any]]
) -> list[Any]:
    """Run a model over rows in batches of like length, and put what it gives back in the order of the rows.

    Args:
        rows: With ``input_ids``.
        batch_tokens: The most tokens of a batch.
        run: Given the numbers of a batch's rows, returns one result for each.
    """
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]["input_ids"]))
    results: list[Any] = [None] * len(rows)
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * len(rows[index]["input_ids"]) > batch_tokens:
            _place(results, batch, run(batch))
            batch = []
        batch.append(index)
    if batch:
        _place(results, batch, run(batch))
    return results


def _place(results: list[Any], batch: list[int], found: Sequence[Any]) -> None:
    for index, result in zip(batch, found, strict=True):
        results[index] = result
