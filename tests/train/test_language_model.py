"""Perplexity and bits per character."""

from __future__ import annotations

import json
import math

import pytest

from regard.errors import ConfigError
from regard.train.metrics import perplexity


def test_a_uniform_model_is_as_perplexed_as_there_are_choices():
    ours = perplexity(7 * math.log(50), 7, characters=14)
    assert ours.perplexity == pytest.approx(50)
    assert ours.nll_per_token == pytest.approx(math.log(50))
    assert ours.bits_per_character == pytest.approx(math.log2(50) / 2)


def test_a_coin_per_character_is_one_bit():
    assert perplexity(10 * math.log(2), 3, characters=10).bits_per_character == pytest.approx(1)


def test_certainty_is_one():
    ours = perplexity(0.0, 5)
    assert (ours.perplexity, ours.bits_per_character) == (1, None)


def test_what_no_float_holds_is_infinite_and_null_in_json():
    for nll in (1e6, math.inf):
        ours = perplexity(nll, 1)
        assert ours.perplexity == math.inf
        assert json.loads(json.dumps(ours.as_dict(), allow_nan=False))["perplexity"] is None


def test_it_reads_well():
    assert str(perplexity(10.0, 5)) == "perplexity 7.39 (2.0000 nats per token, 5 tokens)"
    assert str(perplexity(10.0, 5, characters=20)).endswith(", 0.7213 bits per character")


def test_all_problems_are_named_at_once():
    with pytest.raises(ConfigError) as raised:
        perplexity(math.nan, 0, characters=0)
    assert str(raised.value) == (
        "perplexity(): 3 problems:"
        "\n  - `nll` must be a sum of nats, 0 or more, but is nan."
        "\n  - `tokens` must be at least 1, but is 0."
        "\n  - `characters` must be at least 1, but is 0."
    )
    with pytest.raises(ConfigError, match=r"`nll` must be a sum of nats, 0 or more, but is -1\.0\."):
        perplexity(-1.0, 1)
