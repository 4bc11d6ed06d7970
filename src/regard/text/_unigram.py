"""Training of a unigram language model of pieces that gives the same pieces every time.

The trainer of ``tokenizers`` visits words in the order of a hash map, and its pieces change from run to run. Here words
have an order. Pieces begin as those of byte-pair encoding; then, in turns, every word is cut in its likeliest way, the
pieces are counted anew, and those that are missed least are dropped (Kudo 2018, with the best segmentation in place of
the sum over all).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_WORDS = 300_000  # different words that are looked at, the most frequent first
_KEPT = 0.75  # share of the pieces that a round keeps
_TURNS = 2  # of cutting and counting, in a round
_UNKNOWN = "\ue000"  # takes the first id, which the model gives to what it does not know
_SEEN_AT_LEAST = 0.5  # what a piece that was not used counts: it may be needed again


def train_unigram(
    model: Callable[..., Any], words: Mapping[str, int], seeds: Sequence[str], *, size: int
) -> list[tuple[str, float]]:
    """Choose pieces and their log probabilities.

    Args:
        model: ``tokenizers.models.Unigram``, which cuts a word in its likeliest way.
        words: How often every word occurs.
        seeds: Pieces to choose from; single characters among them are always kept.
        size: How many pieces to keep.

    Returns:
        Pieces and natural logarithms of their probabilities, the likeliest first.
    """
    chosen = sorted(words.items(), key=lambda entry: (-entry[1], entry[0]))[:_WORDS]
    pieces = dict.fromkeys(seeds, 1.0 / len(seeds))
    scores = {piece: math.log(share) for piece, share in pieces.items()}
    single = sum(len(piece) == 1 for piece in scores)
    while True:
        for _ in range(_TURNS):
            counts = _counts(model, chosen, scores)
            total = math.log(sum(counts.values()))
            scores = {piece: math.log(count) - total for piece, count in counts.items()}
        if len(scores) <= max(size, single):
            return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
        scores = _pruned(scores, counts, max(size, single, int(_KEPT * len(scores))))


def _counts(
    model: Callable[..., Any], words: Sequence[tuple[str, int]], scores: Mapping[str, float]
) -> dict[str, float]:
    """How often each piece is used when every word is cut in its likeliest way."""
    cutter = model([(_UNKNOWN, 0.0), *scores.items()], unk_id=0)
    found = Counter[str]()
    for word, number in words:
        for token in cutter.tokenize(word):
            found[token.value] += number
    return {piece: max(float(found[piece]), _SEEN_AT_LEAST) for piece in scores}


def _pruned(scores: Mapping[str, float], counts: Mapping[str, float], size: int) -> dict[str, float]:
    """The pieces whose loss would cost most, and all single characters."""
    losses = {
        piece: counts[piece] * (score - _without(piece, scores)) for piece, score in scores.items() if len(piece) > 1
    }
    room = size - (len(scores) - len(losses))
    kept = set(sorted(losses, key=lambda piece: (-losses[piece], piece))[:room])
    return {piece: score for piece, score in scores.items() if len(piece) == 1 or piece in kept}


def _without(piece: str, scores: Mapping[str, float]) -> float:
    """Log probability of the likeliest way to write a piece by others."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            part = piece[start:end]
            if part in scores and part != piece:
                best[end] = max(best[end], best[start] + scores[part])
    return best[-1]
