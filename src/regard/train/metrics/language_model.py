"""Perplexity, and bits per character, which does not depend on the tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.errors import all_problems, must_be
from regard.train.metrics.result import Result


@dataclass(frozen=True)
class Perplexity(Result):
    """How surprised a language model is by a text.

    Args:
        perplexity: e to the mean nats per token; comparable between models with the same tokens only.
        nll_per_token: Mean negative log-likelihood, in nats.
        tokens: How many were predicted.
        bits_per_character: Comparable between any models of the same text; None without a number of characters.
    """

    perplexity: float
    nll_per_token: float
    tokens: int
    bits_per_character: float | None = None

    def __str__(self) -> str:
        said = f"perplexity {self.perplexity:.2f} ({self.nll_per_token:.4f} nats per token, {self.tokens} tokens)"
        if self.bits_per_character is None:
            return said
        return f"{said}, {self.bits_per_character:.4f} bits per character"


def perplexity(nll: float, tokens: int, *, characters: int | None = None) -> Perplexity:
    """Perplexity of a text, from the sum of the losses of its tokens.

        perplexity = exp(nll / tokens),   bits per character = nll / (ln 2 · characters)

    Args:
        nll: Sum over all predicted tokens of −ln p(token), in nats: a sum, because means of batches of different sizes
            do not average to the mean.
        tokens: How many tokens were predicted.
        characters: How many characters (code points) these tokens stand for.

    Raises:
        ConfigError: Nothing was predicted, or the sum is negative or NaN.

    Numerics:
        Infinity where a token had no probability at all, and where e^x exceeds float64.
    """
    problems = [] if nll >= 0 else [must_be("nll", "a sum of nats, 0 or more", nll)]
    if tokens < 1:
        problems.append(must_be("tokens", "at least 1", tokens))
    if characters is not None and characters < 1:
        problems.append(must_be("characters", "at least 1", characters))
    if problems:
        raise all_problems("perplexity", problems)
    mean = nll / tokens
    try:
        value = math.exp(mean)
    except OverflowError:
        value = math.inf
    bits = nll / (math.log(2) * characters) if characters is not None else None
    return Perplexity(value, mean, tokens, bits)
