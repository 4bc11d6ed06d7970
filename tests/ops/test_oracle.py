"""The definition is right: `reference` in float64 equals a triple loop in Python floats (DESIGN §2, lines 1 to 6)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from regard.ops import attend, observe, weights
from regard.ops.probes import Entropy, LogSumExp, SinkShare
from regard.ops.testing import Budget, dense_attention, error_budget
from tests.ops.backends import play
from tests.ops.calls import Call, calls


def close_to_oracle(call: Call, name: str, result: torch.Tensor, exact: torch.Tensor) -> None:
    allowed = error_budget(call.query, call.key, call.value, **call.numbers)[name].allowed
    problem = Budget(exact, allowed).problem(name, result)
    assert problem is None, f"{problem}\n{call}\n{result}\n{exact}"


@given(call=calls(infinite_bias=True))
def test_reference_output_is_the_oracles(call: Call) -> None:
    output = attend(call.query, call.key, call.value, **call.options, backend="reference")
    close_to_oracle(call, "output", output, call.answer().output)


@given(call=calls())
def test_weights_are_the_oracles(call: Call) -> None:
    found, expected = weights(call.query, call.key, **call.options), call.answer()
    close_to_oracle(call, "weights", found, expected.weights)
    assert torch.equal(found == 0, ~expected.visible | (expected.weights == 0)), "masked weights are exactly 0"


@pytest.mark.parametrize("way", ["reference", "tiled in small blocks"])
@given(call=calls())
@settings(max_examples=25)
def test_log_sum_exp_entropy_and_sink_share_are_the_oracles(way: str, call: Call) -> None:
    probes = [LogSumExp(), Entropy(), SinkShare()]
    with play(way) as backend:
        _, seen = observe(call.query, call.key, call.value, probes, **call.options, backend=backend)
    expected = call.answer()
    torch.testing.assert_close(seen.log_sum_exp, expected.lse, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen.entropy, expected.entropy, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen.sink_share, expected.sink_share, rtol=1e-12, atol=1e-12)


@given(call=calls(infinite_bias=True))
def test_the_yardstick_of_the_contract_suite_is_the_oracles(call: Call) -> None:
    numbers = call.numbers
    output, found = dense_attention(call.query, call.key, call.value, **numbers)
    close_to_oracle(call, "output", output, call.answer().output)
    visible = call.answer().visible
    close_to_oracle(call, "weights", found.masked_fill(~visible, 0.0), call.answer().weights)


@given(call=calls())
def test_rows_of_weights_sum_to_one_less_the_sinks_share(call: Call) -> None:
    found, expected = weights(call.query, call.key, **call.options), call.answer()
    rows = torch.where(expected.lse == float("-inf"), 0.0, 1 - expected.sink_share)
    torch.testing.assert_close(found.sum(-1), rows, rtol=0, atol=1e-12)
