"""One byte per weight, and maps of bin means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ShapeError
from regard.records import narrow, widen
from regard.records.quantise import FLOOR_LOG2, RELATIVE_ERROR, pool, pool_map, quantise, restore


@given(st.floats(0, 1, width=32))
@settings(deadline=None)
def test_error_bound(weight):
    level = quantise(np.array([weight], dtype=np.float32))
    back = float(restore(level)[0])
    if weight == 0:
        assert (level[0], back) == (0, 0)
    elif weight < 2.0**FLOOR_LOG2:
        assert (level[0], back) == (1, 2.0**FLOOR_LOG2)
    else:
        assert abs(back - weight) <= (RELATIVE_ERROR + 1e-6) * weight


def test_ends_order_and_oddities():
    assert quantise(np.array([0.0, 2.0**-24, 1.0, 1.0000001, np.nan, 1e-40, -0.0])).tolist() == [
        0,
        1,
        255,
        255,
        0,
        1,
        0,
    ]
    assert quantise(np.float32([1e-45])).tolist() == [1]
    assert restore(np.array([0, 1, 255], dtype=np.uint8)).tolist() == [0, 2.0**-24, 1]
    levels = np.arange(256, dtype=np.uint8)
    assert quantise(restore(levels)).tolist() == levels.tolist()
    assert 0.03 < RELATIVE_ERROR < 0.034


@given(
    q=st.integers(1, 9), k=st.integers(1, 9), rows=st.integers(1, 12), cols=st.integers(1, 12), seed=st.integers(0, 50)
)
@settings(deadline=None)
def test_pool_is_the_heat_map(q, k, rows, cols, seed):
    weights = np.random.default_rng(seed).random((2, q, k))
    expected = np.zeros((2, rows, cols))
    for b in range(2):
        for r in range(rows):
            inside = [i for i in range(q) if i * rows // q == r]
            for c in range(cols):
                total = sum(weights[b, i, j] for i in inside for j in range(k) if j * cols // k == c)
                expected[b, r, c] = total / max(len(inside), 1)
    np.testing.assert_allclose(pool(weights, rows=rows, cols=cols), expected, atol=1e-14)


@given(
    q=st.integers(1, 30), k=st.integers(1, 30), rows=st.integers(1, 4), by=st.integers(1, 4), seed=st.integers(0, 20)
)
@settings(deadline=None)
def test_a_map_of_a_map_is_the_smaller_map(q, k, rows, by, seed):
    weights = np.random.default_rng(seed).random((q, k))
    large = pool(weights, rows=rows * by, cols=rows * by)
    np.testing.assert_allclose(
        pool_map(large, q_len=q, rows=rows, cols=rows), pool(weights, rows=rows, cols=rows), atol=1e-13
    )


def test_pool_of_nothing_and_refusals():
    assert pool(np.zeros((0, 5)), rows=2, cols=2).tolist() == [[0, 0], [0, 0]]
    assert pool(np.zeros((5, 0)), rows=2, cols=2).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ShapeError, match="at least 1"):
        pool(np.zeros((2, 2)), rows=0, cols=2)
    with pytest.raises(ShapeError, match="from 1 to 4 and 4"):
        pool_map(np.zeros((4, 4)), q_len=4, rows=5, cols=2)


def test_a_map_of_a_map_keeps_the_mass_where_bins_do_not_divide():
    rows = np.full((10, 10), 0.1)
    np.testing.assert_allclose(pool_map(pool(rows, rows=5, cols=5), q_len=10, rows=3, cols=2).sum(-1), 1, atol=1e-12)


@given(st.floats(width=32))
@settings(deadline=None)
def test_bfloat16_bits(value):
    array = np.array([value], dtype=np.float32)
    bits = narrow(array)
    back = widen(bits)
    assert narrow(back).tolist() == bits.tolist()
    if np.isnan(value):
        assert np.isnan(back[0])
    elif abs(value) < 3.3e38 and abs(value) > 1e-37:
        assert abs(float(back[0]) - value) <= abs(value) * 2.0**-8


def test_bfloat16_matches_torch():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert narrow(values).tolist() == expected.view(torch.uint16).numpy().tolist()
    assert widen(narrow(values)).tolist() == expected.float().numpy().tolist()
