"""Beam search over any model that can go on from a state; with one beam it is greedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError, ShapeError, all_problems, message, must_be
from regard.nn.options import is_number, is_whole

Advance = Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor | None, Any]]
"""(tokens [rows], parents [rows], state) → (logits [rows, vocab_size], weights [rows, source_len] or None, state).

Row r goes on from row ``parents[r]`` of the state with ``tokens[r]``; rows are batch · num_beams,
beams side by side."""


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One decoded text.

    Args:
        tokens: Its ids, without the special ones.
        score: Log-probability of the text and its end, divided by (number of tokens, end included) ** length_penalty.
        weights: Attention of each token over the source; None for a model without.
    """

    tokens: tuple[int, ...]
    score: float
    weights: Float[Tensor, "length source_len"] | None = None


@dataclass
class _Step:
    """What was kept at one step, for each beam: the beam it goes on from, its token, where it looked."""

    parents: Tensor
    tokens: Tensor
    weights: Tensor | None


@torch.no_grad()
def beam_search(
    advance: Advance,
    state: Any,
    *,
    batch: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_new_tokens: int,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Search the best continuations of ``bos_id``.

    At every step the ``num_beams`` best texts are kept by score, finished ones among them; it ends when all are
    finished. A text cut off at ``max_new_tokens`` counts as it is, without an end.

    Args:
        advance: The model (see ``Advance``).
        state: What ``advance`` is given first, with batch · num_beams rows.
        batch: How many texts.
        bos_id: What every text begins with; never chosen, the others share its probability.
        eos_id: What ends a text.
        pad_id: Never chosen either.
        max_new_tokens: The longest text.
        num_beams: Texts kept; 1 is greedy.
        length_penalty: Score = log-probability / length ** length_penalty; 0 prefers short texts, above 0 less so.
        device: Where the state is.

    Returns:
        For each text the hypotheses, best first: ``num_beams`` of them, or fewer where there are no more.

    Raises:
        ShapeError: if ``advance`` returns logits of another shape.
        ConfigError: if an option is out of range, or no text could end, as ``eos_id`` is not in the vocabulary.

    Cost:
        Every step reads all beams, finished ones included.
    """
    check_search("beam_search", max_new_tokens, num_beams, length_penalty)
    rows = torch.arange(batch * num_beams, device=device)
    first = (rows // num_beams * num_beams).view(batch, num_beams)
    tokens, parents = torch.full_like(rows, bos_id), rows
    sums = torch.full((batch, num_beams), float("-inf"), device=device)
    sums[:, 0] = 0  # all beams begin alike: only one of them counts at first
    lengths = torch.zeros_like(sums)
    finished = torch.zeros_like(sums, dtype=torch.bool)
    steps: list[_Step] = []
    for _ in range(max_new_tokens):
        logits, weights, state = advance(tokens, parents, state)
        _check_logits(logits, batch * num_beams, eos_id)
        gains = _gains(logits.view(batch, num_beams, logits.shape[-1]), finished, bos_id, eos_id, pad_id)
        longer = lengths + ~finished
        candidates = (sums[..., None] + gains).flatten(1)
        ranks = ((sums[..., None] + gains) / longer[..., None].clamp(min=1) ** length_penalty).flatten(1)
        chosen = ranks.topk(num_beams, dim=1).indices
        beams, ids = chosen // gains.shape[-1], chosen % gains.shape[-1]
        sums, lengths = candidates.gather(1, chosen), longer.gather(1, beams)
        finished = finished.gather(1, beams) | (ids == eos_id)
        parents, tokens = (first + beams).flatten(), ids.flatten()
        steps.append(_Step(parents, tokens, None if weights is None else weights.index_select(0, parents)))
        if bool((finished | sums.isinf()).all()):
            break
    scores = sums / lengths.clamp(min=1) ** length_penalty
    return [
        [
            _read_back(steps, row * num_beams + int(beam), float(scores[row, beam]), {bos_id, eos_id, pad_id})
            for beam in scores[row].argsort(descending=True, stable=True)
            if not scores[row, beam].isinf()
        ]
        for row in range(batch)
    ]


def _gains(logits: Tensor, finished: Tensor, bos_id: int, eos_id: int, pad_id: int) -> Tensor:
    """Log-probability of every next id; a finished text goes on with its end only, at no cost."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    logits = logits.float().masked_fill((ids == bos_id) | (ids == pad_id), float("-inf"))
    ended = torch.full_like(ids, float("-inf"), dtype=torch.float32).masked_fill(ids == eos_id, 0)
    return torch.where(finished[..., None], ended, logits.log_softmax(dim=-1))


def _check_logits(logits: Tensor, rows: int, eos_id: int) -> None:
    if logits.dim() != 2 or logits.shape[0] != rows:
        expected = f"a function to logits of shape [{rows}, vocab_size]"
        raise ShapeError(message("beam_search", must_be("advance", expected, f"one to {tuple(logits.shape)}")))
    if not 0 <= eos_id < logits.shape[1]:
        problem = must_be("eos_id", f"an id of the vocabulary (0 to {logits.shape[1] - 1})", eos_id)
        raise ConfigError(message("beam_search", problem))


def _read_back(steps: list[_Step], row: int, score: float, special: set[int]) -> Hypothesis:
    """Follow a beam from the last step to the first."""
    tokens, seen = [], []
    for step in reversed(steps):
        token = int(step.tokens[row])
        if token not in special:
            tokens.append(token)
            if step.weights is not None:
                seen.append(step.weights[row])
        row = int(step.parents[row])
    weights = None
    if steps and steps[0].weights is not None:
        source = steps[0].weights
        weights = torch.stack(seen[::-1]) if seen else source.new_zeros(0, source.shape[1])
    return Hypothesis(tuple(reversed(tokens)), score, weights)


def check_search(caller: str, max_new_tokens: Any, num_beams: Any, length_penalty: Any) -> None:
    """Refuse options no search can have.

    Raises:
        ConfigError: with every problem.
    """
    problems = []
    if not is_whole(max_new_tokens) or max_new_tokens < 0:
        problems.append(must_be("max_new_tokens", "an integer of at least 0", repr(max_new_tokens)))
    if not is_whole(num_beams) or num_beams < 1:
        problems.append(must_be("num_beams", "an integer of at least 1", repr(num_beams)))
    if not is_number(length_penalty) or not abs(length_penalty) < float("inf"):
        problems.append(must_be("length_penalty", "a finite number", repr(length_penalty)))
    if problems:
        raise all_problems(caller, problems)
