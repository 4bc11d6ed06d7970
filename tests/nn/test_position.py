"""Positions that are added to embeddings, and biases for distances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard.nn import ALiBi, LearnedPositions, RelativeBias, SinusoidalPositions
from regard.ops import attend


def table(dim: int, *positions: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return SinusoidalPositions(dim)(torch.zeros(1, len(positions), dim, dtype=dtype), torch.tensor(positions))[0]


def test_i1_the_first_position_of_four_dimensions() -> None:
    torch.testing.assert_close(
        table(4, 1)[0], torch.tensor([0.841471, 0.540302, 0.0099998, 0.99995]).double(), atol=1e-6, rtol=0
    )


def test_i2_an_odd_width_ends_in_a_sine() -> None:
    wanted = torch.tensor([0.841471, 0.540302, 0.025116, 0.999685, 0.000631]).double()
    torch.testing.assert_close(table(5, 1)[0], wanted, atol=1e-6, rtol=0)
    assert table(1, 2)[0].tolist() == [math.sin(2)]


def test_every_entry_is_its_formula() -> None:
    found = table(10, 0, 3, 4000)
    for row, position in enumerate((0, 3, 4000)):
        for pair in range(5):
            angle = position / 10_000 ** (2 * pair / 10)
            assert math.isclose(float(found[row, 2 * pair]), math.sin(angle), abs_tol=1e-12)
            assert math.isclose(float(found[row, 2 * pair + 1]), math.cos(angle), abs_tol=1e-12)


@pytest.mark.parametrize("scheme", [SinusoidalPositions(6), LearnedPositions(9, 6)])
def test_i3_positions_vary_along_the_length_only(scheme: nn.Module) -> None:
    added = scheme(torch.zeros(3, 5, 6))
    assert torch.equal(added[0], added[1])
    assert not torch.equal(added[0, 0], added[0, 1])
    assert torch.equal(scheme(torch.zeros(2, 2, 6), torch.tensor([[0, 1], [1, 2]]))[1, 0], added[0, 1])


def test_i4_sinusoids_have_no_longest_sequence_and_a_table_names_its_own() -> None:
    assert SinusoidalPositions(4)(torch.zeros(1, 100_000, 4)).isfinite().all()
    learned = LearnedPositions(8, 4)
    with pytest.raises(ValueError, match=r"max_len \(8\).*length 9"):
        learned(torch.zeros(1, 9, 4))
    with pytest.raises(ValueError, match="from 0 to 7, but is from 0 to 8"):
        learned(torch.zeros(1, 2, 4), torch.tensor([0, 8]))


def test_a_cast_of_the_model_rounds_the_sum_once() -> None:
    exact = table(8, 1000, 1001)
    half = SinusoidalPositions(8).to(torch.bfloat16)(torch.zeros(1, 2, 8).bfloat16(), torch.tensor([1000, 1001]))[0]
    assert torch.equal(half, exact.bfloat16())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("scheme", "x", "positions", "text"),
    [
        (SinusoidalPositions(4), torch.zeros(2, 3, 5), None, r"batch, length, 4"),
        (LearnedPositions(9, 4), torch.zeros(3, 4), None, r"batch, length, 4"),
        (SinusoidalPositions(4), torch.zeros(2, 3, 4), torch.arange(2), "`positions` must be"),
    ],
)
def test_what_does_not_fit_is_named(scheme: nn.Module, x: torch.Tensor, positions: torch.Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        scheme(x, positions)


@pytest.mark.parametrize(
    "make", [lambda: SinusoidalPositions(0), lambda: LearnedPositions(0, 4), lambda: RelativeBias(0)]
)
def test_sizes_below_one_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match="at least 1, but is 0"):
        make()  # type: ignore[operator]


def test_the_rule_of_alibi_is_its_dense_bias() -> None:
    module, places = ALiBi(6), torch.arange(9)
    q, k, v = torch.randn(3, 2, 6, 9, 8).unbind()
    torch.testing.assert_close(attend(q, k, v, bias=module.rule()), attend(q, k, v, bias=module(places, places)))


def test_distances_share_buckets_that_widen() -> None:
    bias = RelativeBias(1, num_buckets=8, max_distance=16, bidirectional=False)
    with torch.no_grad():
        bias.table.weight.copy_(torch.arange(8.0)[:, None])
    row = bias(torch.tensor([40]), torch.arange(42))[0, 0, 0]
    assert row[[40, 39, 38, 37]].tolist() == [0, 1, 2, 3], "near distances have a bucket each"
    assert row[41] == 0, "keys after the query share the bucket of distance 0"
    assert row[0] == row[24] == 7, "far ones share the last"
    assert row[:41].flip(0).tolist() == sorted(row[:41].tolist()), "buckets grow with the distance"


def test_both_ways_tells_the_sides_apart() -> None:
    bias = RelativeBias(3, num_buckets=8, max_distance=16)(torch.arange(5), torch.arange(5))[0]
    assert not torch.equal(bias[:, 0, 1], bias[:, 1, 0])
    assert torch.equal(bias[:, 0, 1], bias[:, 3, 4]), "only the difference counts"


@pytest.mark.parametrize(("options", "text"), [({"num_buckets": 7}, "even"), ({"max_distance": 8}, "more than 8")])
def test_buckets_that_cannot_be_are_refused(options: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RelativeBias(2, **options)
