"""Faithfulness: measures of a linear model are those computed by hand."""

from __future__ import annotations

from itertools import pairwise
from math import isnan

import pytest
import torch

from regard.errors import ConfigError, ShapeError
from regard.lens import faithfulness
from regard.lens.faithfulness import kendall

WEIGHTS = torch.tensor([4.0, 2.0, 1.0, 0.0, -1.0], dtype=torch.float64)


def linear(keep):
    return keep.double() @ WEIGHTS


def test_a_linear_model_by_hand():
    found = faithfulness(linear, {"right": WEIGHTS, "reversed": -WEIGHTS}, fractions=(0.2, 0.4), steps=5)
    right, wrong = found["right"], found["reversed"]
    assert right.comprehensiveness == pytest.approx((4 + 6) / 2)  # the top one, the top two
    assert right.sufficiency == pytest.approx((6 - 4 + 6 - 6) / 2)
    curve = [6, 2, 0, -1, -1, 0]
    assert right.deletion_auc == pytest.approx(sum((a + b) / 2 for a, b in pairwise(curve)) / 5)
    assert right.infidelity == pytest.approx(0, abs=1e-12)
    assert right.leave_one_out == pytest.approx(1)
    assert wrong.comprehensiveness == pytest.approx((-1 - 1) / 2)
    assert wrong.leave_one_out == pytest.approx(-1)
    assert wrong.infidelity == pytest.approx(0, abs=1e-12)  # up to a factor it adds up as well
    assert found["leave-one-out"] == right


def test_permuted_scores_are_as_good_as_drawn_ones():
    torch.manual_seed(0)
    weights = torch.randn(40, dtype=torch.float64)
    shuffled = {f"permuted {number}": weights[torch.randperm(40)] for number in range(40)}
    found = faithfulness(lambda keep: keep.double() @ weights, {"right": weights, **shuffled}, samples=200)
    permuted = [found[name] for name in shuffled]
    for measure in ("comprehensiveness", "sufficiency", "deletion_auc", "leave_one_out"):
        values = torch.tensor([getattr(one, measure) for one in permuted])
        error = values.std() * (1 / len(values) + 1 / 16) ** 0.5
        assert abs(values.mean() - getattr(found["random"], measure)) < 4 * error
    assert found["right"].comprehensiveness > found["random"].comprehensiveness
    assert found["right"].infidelity < found["random"].infidelity / 10


def test_controls_are_what_they_say():
    found = faithfulness(linear, {"right": WEIGHTS})
    assert set(found) == {"right", "random", "uniform", "leave-one-out"}
    assert found["uniform"].comprehensiveness == found["random"].comprehensiveness
    assert isnan(found["uniform"].leave_one_out)
    assert found["right"].infidelity < found["uniform"].infidelity
    drawn = [faithfulness(linear, {"right": WEIGHTS}, seed=seed)["random"] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3], [1, 2, 3], 1),
        ([1, 2, 3], [3, 2, 1], -1),
        ([1, 2, 3, 4], [1, 3, 2, 4], 4 / 6),
        ([1, 1, 2], [1, 2, 3], 2 / 6**0.5),
    ],
)
def test_kendall_by_hand(first, second, tau):
    found = kendall(torch.tensor(first).double(), torch.tensor(second).double())
    assert found == pytest.approx(tau)


def test_ties_alone_have_no_order():
    assert isnan(kendall(torch.ones(3).double(), torch.arange(3).double()))


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="`explanations` must be a name and scores for each, but is empty"):
        faithfulness(linear, {})
    with pytest.raises(ConfigError, match=r"`explanations` must be named apart from the controls, but is \['random'\]"):
        faithfulness(linear, {"random": WEIGHTS})
    with pytest.raises(ConfigError, match="the scores of 'mine' must be finite"):
        faithfulness(linear, {"mine": [1.0, float("nan")]})
    with pytest.raises(ShapeError, match=r"the same number of them everywhere, but is of lengths \[2, 5\]"):
        faithfulness(linear, {"mine": [1.0, 2.0], "yours": WEIGHTS})
    with pytest.raises(ConfigError, match="`fractions` must be above 0 and at most 1"):
        faithfulness(linear, {"mine": WEIGHTS}, fractions=[0, 0.5])
    with pytest.raises(ShapeError, match="`value` must return one number for each of the 1 cases, but returned 2"):
        faithfulness(lambda keep: torch.zeros(2), {"mine": WEIGHTS})
