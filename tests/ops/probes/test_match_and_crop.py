"""Crop and MatchMass on a matrix small enough to read."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.ops import weights


def qk(length=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, 2, length, 4, generator=generator)


def test_a_crop_is_a_part_of_the_matrix():
    query, key = qk()
    _, seen = regard.observe(query, key, key, [regard.Crop((2, 5), (1, 9))], mask=regard.Causal())
    whole = weights(query, key, mask=regard.Causal())
    assert seen.crop.shape == (1, 2, 3, 8)
    torch.testing.assert_close(seen.crop[..., :5], whole[:, :, 2:5, 1:], atol=1e-6, rtol=0)
    assert (seen.crop[..., 5:] == 0).all()  # there are no such keys


def test_match_mass_is_a_sum_over_keys_with_the_same_id():
    query, key = qk()
    ids = [4, 7, 4, 7, 7, -1]
    probes = [regard.MatchMass(ids), regard.MatchMass(ids, [-1, *ids[:-1]], before_only=True, name="after")]
    _, seen = regard.observe(query, key, key, probes)
    whole = weights(query, key)[0]
    for i in range(6):
        same = [j for j in range(6) if j != i and ids[j] == ids[i] >= 0]
        after = [j for j in range(1, i) if ids[j - 1] == ids[i] >= 0]
        torch.testing.assert_close(seen.match_mass[0, :, i], whole[:, i, same].sum(-1), atol=1e-6, rtol=0)
        torch.testing.assert_close(seen.after[0, :, i], whole[:, i, after].sum(-1), atol=1e-6, rtol=0)


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    with pytest.raises(
        ConfigError, match=r"`rows` must be a range \(start, stop\) with 0 ≤ start ≤ stop, but is \(3, 1\)"
    ):
        regard.Crop((3, 1), (0, 2))
    with pytest.raises(ConfigError, match="`cols` must be a range"):
        regard.Crop((0, 1), 5)
    with pytest.raises(ConfigError, match="`query_ids` must be one or more integers, but is 'bank'"):
        regard.MatchMass("bank")
    with pytest.raises(ConfigError, match="`before_only` must be True or False, but is 1"):
        regard.MatchMass([1], before_only=1)
