"""What a class depends on, word by word, and how far each explanation of it may be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from regard import records
from regard.errors import ConfigError, message
from regard.lens import Faithfulness, explain, faithfulness, watch
from regard.tasks.tables import WordTokens, words_of
from regard.tasks.trained import Trained
from regard.tasks.watching import Reading

_BATCH_TOKENS = 8192


def explain_class(trained: Trained, reading: Reading, label: str) -> records.Explanation:
    """Explain the probability of a class.

    Scores are of words, each the sum of its tokens' scores. A word that is taken away becomes the token for masked
    words, or for unknown ones where the model learned with those in the place of words, or knows no other; the place
    stays.

    Args:
        trained: A model of classes.
        reading: The text, as the model reads it.
        label: The class.

    Raises:
        ConfigError: the text has no words, or the tokenizer knows neither masked nor unknown words.

    Cost:
        One backward, and some hundreds of predictions.
    """
    words = words_of(reading.sequence)
    if not words:
        raise ConfigError(message("explain", "the text must have words, but has none."))
    number, blank = trained.info.labels.index(label), _blank(trained)
    scores = {name: _by_word(found, words) for name, found in _explanations(trained, reading, number).items()}
    belongs = torch.zeros(len(words), len(reading.sequence.tokens), dtype=torch.bool)
    for place, word in enumerate(words):
        belongs[place, list(word.tokens)] = True

    def value(keep: Bool[Tensor, "cases words"]) -> Float64[Tensor, "cases"]:
        return _without(trained, reading, (~keep).float() @ belongs.float() > 0, blank)[:, number]

    measures = faithfulness(value, scores)
    return records.Explanation(
        prediction=f"probability of {label}",
        value=float(value(torch.ones(1, len(words), dtype=torch.bool))[0]),
        removal=f"a word that is taken away becomes {trained.tokenizer.convert_ids_to_tokens(blank)}",
        parts=tuple(word.text for word in words),
        scores={name: tuple(found.tolist()) for name, found in scores.items()},
        measures={name: _defined(found) for name, found in measures.items()},
    )


def _explanations(trained: Trained, reading: Reading, number: int) -> Mapping[str, Float64[Tensor, "tokens"]]:
    with torch.enable_grad(), _leaf_embeddings(trained.model) as embedded, watch(trained.model, keep=True) as seen:
        logits = trained.model(**reading.inputs).logits
    target = logits.double().log_softmax(dim=-1)[0, number]
    return explain(seen, target, embedded[0])


@contextmanager
def _leaf_embeddings(model: Any) -> Iterator[list[Tensor]]:
    """Where a pass begins: what the table of tokens gave, as tensors of their own with gradients."""
    found: list[Tensor] = []

    def detach(module: Any, inputs: Any, output: Tensor) -> Tensor:
        found.append(output.detach().requires_grad_())
        return found[-1]

    handle = model.get_input_embeddings().register_forward_hook(detach)
    try:
        yield found
    finally:
        handle.remove()


def _blank(trained: Trained) -> int:
    """What stands for a word that is taken away: what the model learned to do without words by."""
    tokenizer = trained.tokenizer
    masked, unknown = tokenizer.mask_token_id, tokenizer.unk_token_id
    first, second = (unknown, masked) if trained.info.details.get("hidden") else (masked, unknown)
    found = second if first is None else first
    if found is None:
        problem = "the tokenizer must have a token for masked or for unknown words, to take words away."
        raise ConfigError(message("explain", problem))
    return int(found)


@torch.no_grad()
def _without(
    trained: Trained, reading: Reading, hidden: Bool[Tensor, "cases tokens"], blank: int
) -> Float64[Tensor, "cases labels"]:
    """Probabilities without some tokens."""
    found = []
    for part in hidden.split(max(1, _BATCH_TOKENS // hidden.shape[1])):  # type: ignore[no-untyped-call]
        inputs = {name: given.expand(len(part), -1) for name, given in reading.inputs.items()}
        inputs["input_ids"] = inputs["input_ids"].masked_fill(part, blank)
        found.append(trained.model(**inputs).logits.double().softmax(dim=-1))
    return torch.cat(found)


def _by_word(scores: Float64[Tensor, "tokens"], words: Sequence[WordTokens]) -> Float64[Tensor, "words"]:
    return torch.stack([scores[word.tokens.start : word.tokens.stop].sum() for word in words])


def _defined(found: Faithfulness) -> dict[str, float | None]:
    return {name: None if math.isnan(number) else number for name, number in asdict(found).items()}
