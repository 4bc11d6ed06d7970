"""States that outlive a call: growing and sliding caches, beams, and what they refuse."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.errors import ConfigError, ShapeError, UnsupportedError
from regard.ops.probes import Entropy, HeatMap, KeyMass, Rows, SpanMass, TopK
from tests.ops.probes.strips import Dense


def call(q_len: int, kv_len: int, *, q_start: int, kv_start: int = 0, batch: int = 1, seed: int = 0) -> Dense:
    logits = np.random.default_rng(seed).normal(size=(batch, 1, q_len, kv_len))
    return Dense(logits, q_start + np.arange(q_len)[None], kv_start)


def shown(probe, *calls: Dense, dtype=torch.float64):
    state = probe.begin()
    for one in calls:
        for strip in one.strips(2, dtype):
            state.update(strip)
    return state


def test_key_mass_keeps_keys_that_a_sliding_cache_dropped():
    first, second = call(3, 3, q_start=0), call(1, 3, q_start=3, kv_start=1)
    value = shown(KeyMass(), first, second).value()
    wanted = np.zeros(4)
    wanted[:3] += first.weights.sum(axis=2)[0, 0]
    wanted[1:] += second.weights.sum(axis=2)[0, 0]
    np.testing.assert_allclose(value[0, 0], wanted, rtol=1e-14)


def test_a_cache_that_had_slid_before_the_first_call_starts_there():
    one = call(1, 3, q_start=9, kv_start=7)
    assert shown(KeyMass(), one).value().shape[-1] == 3
    np.testing.assert_allclose(shown(Rows(), one).value(), one.weights)


def test_rows_of_early_calls_are_padded_with_zeros():
    first, second = call(2, 2, q_start=0), call(1, 3, q_start=2)
    for probe in (Rows(), Rows([0, 1, 2])):
        value = shown(probe, first, second).value()
        np.testing.assert_array_equal(value[:, :, :2, :2], first.weights)
        assert value[:, :, :2, 2].abs().sum() == 0
        np.testing.assert_array_equal(value[:, :, 2:], second.weights)


def test_a_position_that_comes_twice_keeps_the_later_row():
    first, second = call(2, 5, q_start=0), call(1, 2, q_start=1, seed=1)
    value = shown(Rows([1]), first, second).value()
    np.testing.assert_array_equal(value[0, 0, 0], [*second.weights[0, 0, 0], 0, 0, 0])


def test_key_mass_is_added_up_in_float64():
    one = Dense(np.log(np.array([[[[1e-9, 1.0]]]])), np.arange(40_000)[None]).strip(slice(0, 1), slice(0, 2))
    many = {
        "logits": one.logits.expand(1, 1, 5000, 2),
        "weights": one.weights.expand(1, 1, 5000, 2),
        "lse": one.lse.expand(1, 1, 5000),
        "sink_share": one.sink_share.expand(1, 1, 5000),
    }
    state = KeyMass().begin()
    for row in range(0, 40_000, 5000):
        state.update(dataclasses.replace(one, row=row, **{name: part.float() for name, part in many.items()}))
    wanted = 40_000 * one.weights.float().double()[0, 0, 0]
    np.testing.assert_allclose(state.value()[0, 0], wanted, rtol=1e-12)


def test_strip_heights_change_no_bit_of_key_mass():
    one = call(20, 30, q_start=10)
    values = []
    for height in (1, 3, 20):
        state = KeyMass().begin()
        for strip in one.strips(height, torch.float32):
            state.update(strip)
        values.append(state.value())
    assert torch.equal(values[0], values[1])
    assert torch.equal(values[0], values[2])


def test_a_heat_map_needs_a_length_for_a_second_call():
    one = call(4, 4, q_start=0)
    for second in (call(1, 5, q_start=4), one):
        with pytest.raises(ConfigError) as error:
            shown(HeatMap(2, 3), one, second)
        assert str(error.value) == (
            "HeatMap(): a second call needs `length`, the total length of all calls.\n"
            "  hint: HeatMap(2, 3, length=…) bins absolute positions."
        )


def test_a_heat_map_refuses_what_lies_outside_its_length():
    with pytest.raises(ConfigError, match=r"`length` must hold every position, but is 4 and query positions reach"):
        shown(HeatMap(2, 2, length=4), call(2, 2, q_start=3))
    with pytest.raises(ConfigError, match=r"`length` must hold every position, but is 4 and key positions reach"):
        shown(HeatMap(2, 2, length=4), call(2, 6, q_start=0))


def test_a_static_cache_may_be_longer_than_the_length_where_it_is_masked():
    one = call(2, 6, q_start=2)
    one.logits[..., 4:] = -np.inf
    one.logits[:, :, 0, 0] = -np.inf
    one = Dense(one.logits, one.q_positions)
    state = HeatMap(2, 2, length=4).begin()
    state.update(one.strip(slice(0, 2), slice(0, 6)))
    np.testing.assert_allclose(state.value()[0, 0].sum(-1), [0, 1])


def test_rows_of_a_heat_map_sum_to_their_mean_mass():
    one = Dense(call(13, 29, q_start=16).logits, 16 + np.arange(13)[None], sinks=np.array([0.5]))
    value = shown(HeatMap(5, 7), one).value()
    for row in range(5):
        inside = [i for i in range(13) if i * 5 // 13 == row]
        mass = np.mean([1 - one.sink_share[0, 0, i] for i in inside])
        assert value[0, 0, row].sum().item() == pytest.approx(mass, rel=1e-13)


@pytest.mark.parametrize(
    "probe", [Entropy(), TopK(2), KeyMass(), Rows(), Rows([0]), HeatMap(2, 2, length=9), SpanMass([(0, 2)], [(0, 9)])]
)
def test_batch_rows_that_change_without_select_are_refused(probe):
    with pytest.raises(ShapeError, match=r"`batch` must be 1, as in the calls before, but is 2"):
        shown(probe, call(2, 2, q_start=0), call(1, 3, q_start=2, batch=2))


def test_a_state_that_saw_nothing_says_so():
    with pytest.raises(ConfigError) as error:
        Entropy().begin().value()
    assert str(error.value) == ("Entropy(): nothing was observed yet.\n  hint: call observe() or measure() first.")


@pytest.mark.parametrize("probe", [KeyMass(), HeatMap(2, 2), Rows(), SpanMass([(0, 1)], [(0, 1)])])
def test_what_is_no_row_probe_refuses_to_merge_by_shares(probe):
    with pytest.raises(UnsupportedError, match=r"merge\(\): it is a (column|either) probe, which merges in two phases"):
        probe.merge([torch.zeros(1, 1, 1)], [torch.ones(1, 1, 1)])
