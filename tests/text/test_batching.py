"""Batches of like length: every example once, within the limit, the same number in every epoch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError
from regard.text import LengthBuckets
from regard.text.batching import bucket_of

lengths = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 70)), min_size=1, max_size=60)


@given(lengths, st.integers(1, 400), st.integers(0, 5), st.integers(0, 3))
def test_every_example_comes_once_and_batches_stay_within_the_limit(rows, batch_tokens, seed, epoch):
    batches = LengthBuckets(rows, batch_tokens=batch_tokens, seed=seed)
    batches.set_epoch(epoch)
    found = list(batches)
    assert sorted(index for batch in found for index in batch) == list(range(len(rows)))
    assert len(found) == len(batches)
    for batch in found:
        padded = len(batch) * sum(max(rows[index][side] for index in batch) for side in (0, 1))
        assert padded <= batch_tokens or len(batch) == 1


@given(lengths, st.integers(1, 5))
def test_a_batch_has_at_most_so_many_rows(rows, batch_rows):
    assert all(len(batch) <= batch_rows for batch in LengthBuckets(rows, batch_tokens=10**6, batch_rows=batch_rows))


@given(lengths, st.integers(20, 400))
def test_every_epoch_has_as_many_batches(rows, batch_tokens):
    batches = LengthBuckets(rows, batch_tokens=batch_tokens, seed=1)
    counts = set()
    for epoch in range(3):
        batches.set_epoch(epoch)
        counts.add(len(list(batches)))
    assert counts == {len(batches)}


def test_the_order_is_that_of_seed_and_epoch():
    rows = [(n % 30 + 1, n % 17 + 1) for n in range(500)]

    def order(seed, epoch):
        batches = LengthBuckets(rows, batch_tokens=300, seed=seed)
        batches.set_epoch(epoch)
        return list(batches)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2) != order(1, 2)


def test_who_is_together_changes_from_epoch_to_epoch():
    batches = LengthBuckets([(20 + n % 4,) for n in range(200)], batch_tokens=220)
    together = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        together.append({frozenset(batch) for batch in batches})
    assert not together[0] & together[1]


def test_processes_share_the_batches_and_have_as_many():
    rows = [(n % 30 + 1,) for n in range(101)]
    whole = list(LengthBuckets(rows, batch_tokens=64, seed=3))
    parts = [list(LengthBuckets(rows, batch_tokens=64, seed=3, rank=rank, world_size=3)) for rank in range(3)]
    assert len({len(part) for part in parts}) == 1
    dealt = [parts[turn % 3][turn // 3] for turn in range(3 * len(parts[0]))]
    assert dealt[: len(whole)] == whole
    assert dealt[len(whole) :] == whole[: len(dealt) - len(whole)]


def test_there_is_little_padding():
    draw = np.random.default_rng(0)
    source = draw.gamma(4, 4, 20_000).astype(int) + 1
    target = (source * draw.uniform(0.7, 1.4, 20_000)).astype(int) + 1
    rows = list(zip(source.tolist(), target.tolist(), strict=True))
    real = sum(map(sum, rows))
    padded = sum(
        len(batch) * sum(max(rows[index][side] for index in batch) for side in (0, 1))
        for batch in LengthBuckets(rows, batch_tokens=3000)
    )
    assert padded < 1.15 * real


def test_buckets_are_at_most_an_eighth_longer():
    assert [bucket_of(n) for n in (0, 1, 16, 17, 31, 33, 65, 1000)] == [0, 1, 16, 18, 32, 36, 72, 1024]
    assert all(n <= bucket_of(n) <= n * 9 / 8 for n in range(1, 5000))


def test_what_cannot_work_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        LengthBuckets([], batch_tokens=0, batch_rows=0, rank=2, world_size=2)
    assert str(caught.value).split("\n")[1:] == [
        "  - `lengths` must be those of at least one example, but is empty.",
        "  - `batch_tokens` must be at least 1, but is 0.",
        "  - `batch_rows` must be at least 1, or None, but is 0.",
        "  - `rank` must be between 0 and world_size - 1 (1), but is 2.",
    ]
