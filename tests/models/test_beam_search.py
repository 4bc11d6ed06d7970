"""Beam search on a model that is a table, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.models import beam_search

A, B = 3, 4
CHANCES = {  # of end, A, B after each token: the first token, then A, then A A and whatever follows
    (1,): (0.4, 0.6, 0.0),
    (1, A): (0.4, 0.35, 0.25),
}


def advance(tokens: Tensor, parents: Tensor, texts: Any) -> tuple[Tensor, None, Any]:
    texts = [(*texts[parent], token) for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)]
    rows = [(0.1, 0.1, *CHANCES.get(text, (1.0, 0.0, 0.0))) for text in texts]
    return torch.tensor(rows).log(), None, texts


def search(penalty: float) -> list[tuple[tuple[int, ...], float]]:
    ids = {"bos_id": 1, "eos_id": 2, "pad_id": 0}
    options = {"num_beams": 2, "length_penalty": penalty, "max_new_tokens": 4}
    (found,) = beam_search(advance, [(), ()], batch=1, **ids, **options)
    return [(hypothesis.tokens, hypothesis.score) for hypothesis in found]


def test_without_a_penalty_both_short_texts_stay() -> None:
    (first, score), (second, other) = search(0.0)
    assert (first, second) == ((), (A,))
    torch.testing.assert_close([score, other], [math.log(0.4), math.log(0.6 * 0.4)])


def test_the_penalty_counts_while_searching() -> None:
    """At step 2 the finished empty text, best by probability alone, falls out: A A goes on and wins."""
    (first, score), (second, other) = search(2.0)
    assert (first, second) == ((A, A), (A,))
    torch.testing.assert_close([score, other], [math.log(0.6 * 0.35) / 9, math.log(0.6 * 0.4) / 4])
