"""Faithfulness: how far an explanation may be trusted, by taking away what it says matters.

An explanation is a score for each feature (token, word, sentence, patch). What it claims is tested on the model itself:
``value(keep)`` is the prediction when only some features are left. Beside it stand controls: scores that are drawn, and
what other ways of explaining reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from regard.errors import ConfigError, ShapeError, message, must_be

Value = Callable[[Bool[Tensor, "cases features"]], Any]
"""The prediction for each case, given which features are left; a sequence or tensor of numbers."""

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
_RANDOM_ORDERS = 16


@dataclass(frozen=True)
class Faithfulness:
    """How faithful an explanation is.

    Args:
        comprehensiveness: What the prediction loses without the most important features; higher is better.
        sufficiency: What it loses when only they are left; lower is better.
        deletion_auc: Mean prediction while features are taken away, the most important first; lower is better.
        infidelity: Mean squared difference between what scores add up to and what the prediction loses, over random
            sets of features, scores scaled as fits best; lower is better.
        leave_one_out: Rank correlation (Kendall's τ-b) of the scores with what each feature's absence alone costs, −1
            to 1; higher is better. NaN where one of the two is the same for all features.
    """

    comprehensiveness: float
    sufficiency: float
    deletion_auc: float
    infidelity: float
    leave_one_out: float

    def __str__(self) -> str:
        return ", ".join(f"{field.name.replace('_', ' ')} {getattr(self, field.name):.3f}" for field in fields(self))


def faithfulness(
    value: Value,
    explanations: Mapping[str, Sequence[float] | Tensor],
    *,
    fractions: Sequence[float] = FRACTIONS,
    steps: int = 20,
    samples: int = 64,
    seed: int = 0,
) -> dict[str, Faithfulness]:
    """Judge explanations of one prediction, beside controls.

        comprehensiveness = mean over fractions r of f(all) − f(all without the top r)
        sufficiency       = mean over fractions r of f(all) − f(the top r alone)
        deletion AUC      = ∫ f(without the top share x) dx, by trapezoids over ``steps`` shares from 0 to 1
        infidelity        = mean over random sets I of (β · Σ_{i in I} s_i − (f(all) − f(all without I)))²,
                            β the factor that makes it least
        leave-one-out     = τ-b between s_i and f(all) − f(all without i)

    At least one feature counts as the top r. Of equal scores the earlier feature counts as the more important.

    Args:
        value: The prediction for each row of a [cases, features] tensor: True where a feature is left.
        explanations: For each explanation its score of each feature.
        fractions: Shares r of the features, above 0 and at most 1.
        steps: Shares at which the deletion curve is taken; no more than there are features.
        samples: Random sets of features for infidelity, each with half of the features on average.
        seed: Of the sets and of the random control.

    Returns:
        For each explanation its measures, and for three controls: "random" (the mean over 16 drawn scores), "uniform"
        (the same score for all, ties broken by drawing, so that only its infidelity is not that of "random") and
        "leave-one-out" (the effect of each feature's absence, taken as its score).

    Raises:
        ConfigError: No explanations, a name of a control, scores that are not finite, a number out of range.
        ShapeError: Scores of different lengths, or predictions that are not one for each case.

    Cost:
        features + samples + 1 predictions for all explanations together, and 2 · fractions + steps for each and for
        each of the 16 random ones.

    Source:
        DeYoung et al. 2020 (ERASER), section 4; Samek et al. 2017 (deletion); Yeh et al. 2019, arXiv:1901.09392
        (infidelity, with optimal scaling); Jain and Wallace 2019, arXiv:1902.10186 (leave-one-out).

    Example:
        >>> import torch
        >>> from regard.lens import faithfulness
        >>> weights = torch.tensor([3.0, 1.0, 0.0, 0.0])
        >>> found = faithfulness(lambda keep: keep.float() @ weights, {"the weights": weights})
        >>> round(found["the weights"].leave_one_out, 3), round(found["the weights"].infidelity, 3)
        (1.0, 0.0)
    """
    scores = _checked(explanations, fractions, steps, samples)
    judge = _Judge(value, next(iter(scores.values())).numel(), fractions, steps, samples, seed)
    found = {name: judge.measure(score) for name, score in scores.items()}
    generator = torch.Generator().manual_seed(seed)
    drawn = [judge.measure(torch.rand(judge.count, generator=generator).double()) for _ in range(_RANDOM_ORDERS)]
    means = {field.name: _mean([getattr(one, field.name) for one in drawn]) for field in fields(Faithfulness)}
    uniform = judge.infidelity(torch.ones(judge.count, dtype=torch.float64))
    controls = {
        "random": Faithfulness(**means),
        "uniform": Faithfulness(**{**means, "infidelity": uniform, "leave_one_out": float("nan")}),
        "leave-one-out": judge.measure(judge.alone),
    }
    return found | controls


class _Judge:
    """What all explanations of a prediction are held against."""

    def __init__(
        self, value: Value, count: int, fractions: Sequence[float], steps: int, samples: int, seed: int
    ) -> None:
        self.value, self.count = value, count
        self.fractions, self.steps = fractions, min(steps, count)
        everything = torch.ones(1, count, dtype=torch.bool)
        self.whole = float(self.predict(everything)[0])
        self.alone = self.whole - self.predict(~torch.eye(count, dtype=torch.bool))
        generator = torch.Generator().manual_seed(seed)
        self.sets = torch.rand(samples, count, generator=generator) < 0.5
        self.lost = self.whole - self.predict(~self.sets)

    def predict(self, keep: Bool[Tensor, "cases features"]) -> Float64[Tensor, "cases"]:
        """The prediction for each case."""
        found = torch.as_tensor(self.value(keep)).detach().double().cpu().flatten()
        if found.numel() != keep.shape[0]:
            expected = f"one number for each of the {keep.shape[0]} cases"
            raise ShapeError(message("faithfulness", f"`value` must return {expected}, but returned {found.numel()}."))
        return found

    def measure(self, scores: Float64[Tensor, "features"]) -> Faithfulness:
        """All measures of one explanation."""
        order = torch.sort(scores, descending=True, stable=True).indices
        rank = torch.empty_like(order)
        rank[order] = torch.arange(self.count)
        tops = torch.tensor([max(1, round(share * self.count)) for share in self.fractions])
        top = rank[None] < tops[:, None]
        ends = torch.linspace(0, self.count, self.steps + 1).round().long()
        left = rank[None] >= ends[:, None]
        found = self.predict(torch.cat([~top, top, left]))
        without, only, curve = torch.split(found, [len(tops), len(tops), len(ends)])
        shares = ends.double() / self.count
        return Faithfulness(
            comprehensiveness=float((self.whole - without).mean()),
            sufficiency=float((self.whole - only).mean()),
            deletion_auc=float(torch.trapezoid(curve, shares)),
            infidelity=self.infidelity(scores),
            leave_one_out=kendall(scores, self.alone),
        )

    def infidelity(self, scores: Float64[Tensor, "features"]) -> float:
        """How far sums of scores are from what the prediction loses."""
        said = self.sets.double() @ scores
        power = float((said * said).sum())
        scale = float((said * self.lost).sum()) / power if power else 0.0
        return float(((scale * said - self.lost) ** 2).mean())


def kendall(first: Float64[Tensor, "n"], second: Float64[Tensor, "n"]) -> float:
    """Kendall's τ-b: the agreement of two orders, −1 to 1; NaN where one of them is all ties.

    Cost:
        n² comparisons.
    """
    one = (first[:, None] - first).sign().double()
    two = (second[:, None] - second).sign().double()
    size = float((one * one).sum() * (two * two).sum()) ** 0.5
    return float((one * two).sum()) / size if size else float("nan")


def _checked(
    explanations: Mapping[str, Any], fractions: Sequence[float], steps: int, samples: int
) -> dict[str, Float64[Tensor, "features"]]:
    if not isinstance(explanations, Mapping) or not explanations:
        raise ConfigError(message("faithfulness", must_be("explanations", "a name and scores for each", "empty")))
    taken = sorted({"random", "uniform", "leave-one-out"} & set(explanations))
    if taken:
        raise ConfigError(message("faithfulness", must_be("explanations", "named apart from the controls", taken)))
    if not fractions or any(not 0 < share <= 1 for share in fractions):
        raise ConfigError(message("faithfulness", must_be("fractions", "above 0 and at most 1", repr(fractions))))
    for name, number in (("steps", steps), ("samples", samples)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigError(message("faithfulness", must_be(name, "a number of at least 1", repr(number))))
    scores = {name: torch.as_tensor(given).detach().double().cpu().flatten() for name, given in explanations.items()}
    lengths = sorted({score.numel() for score in scores.values()})
    if len(lengths) > 1 or lengths[0] == 0:
        expected = "one score for each feature, the same number of them everywhere"
        raise ShapeError(message("faithfulness", must_be("explanations", expected, f"of lengths {lengths}")))
    for name, score in scores.items():
        if not bool(score.isfinite().all()):
            raise ConfigError(message("faithfulness", f"the scores of {name!r} must be finite."))
    return scores


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
