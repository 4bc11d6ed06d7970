"""The loss of parts of a text, against every part by itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from regard.train.objective import IGNORED, OneClassOfParts, SpanEnds, mean_of_parts

PARTS = torch.tensor([[IGNORED, 0, 0, 1, 2, IGNORED], [0, 1, 1, 1, IGNORED, IGNORED]])
LABELS = torch.tensor([[1, 0, IGNORED], [0, 1, IGNORED]])


def test_the_mean_is_that_of_the_tokens_of_a_part() -> None:
    values = torch.randn(2, 6, 3, dtype=torch.float64)
    found = mean_of_parts(values, PARTS, 4)
    for row in range(2):
        for part in range(4):
            tokens = values[row][PARTS[row] == part]
            expected = tokens.mean(dim=0) if len(tokens) else torch.zeros(3, dtype=torch.float64)
            torch.testing.assert_close(found[row, part], expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_sum_over_parts_with_a_class(smoothing: float) -> None:
    logits = torch.randn(2, 6, 2, dtype=torch.float64, requires_grad=True)
    objective, targets = OneClassOfParts(smoothing), {"parts": PARTS, "labels": LABELS}
    assert objective.count(targets).item() == 4
    expected = torch.zeros(2, dtype=torch.float64)
    for row, part, label in ((0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)):
        mean = logits[row][PARTS[row] == part].mean(dim=0)
        for place, smoothed in enumerate((smoothing, 0.0)):
            expected[place] += functional.cross_entropy(mean, torch.tensor(label), label_smoothing=smoothed)
    outputs = SimpleNamespace(logits=logits)
    torch.testing.assert_close(objective.loss(outputs, targets), expected[0])
    torch.testing.assert_close(objective.measure(outputs, targets)["loss"], expected[1])
    objective.loss(outputs, targets).backward()
    assert logits.grad is not None
    assert not logits.grad[0, [0, 4, 5]].any()
    assert not logits.grad[1, 4:].any()


def test_half_types_are_summed_in_float32() -> None:
    logits = torch.randn(2, 6, 2).bfloat16()
    loss = OneClassOfParts().loss(SimpleNamespace(logits=logits), {"parts": PARTS, "labels": LABELS})
    assert loss.dtype == torch.float32


def test_rounds_of_answers_are_compared_by_those_with_both_ends_right() -> None:
    outputs = SimpleNamespace(
        start_logits=torch.tensor([[0.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        end_logits=torch.tensor([[0.0, 0.0, 3.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    )
    targets = {"start_positions": torch.tensor([1, 0, 1]), "end_positions": torch.tensor([2, 2, 2])}
    objective = SpanEnds()
    found = objective.measure(outputs, targets)
    assert (objective.figure, objective.higher_is_better) == ("exact", True)
    assert int(found["exact"]) == 1
    torch.testing.assert_close(found["loss"], objective.loss(outputs, targets))
