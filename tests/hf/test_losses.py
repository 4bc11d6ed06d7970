"""The losses of the wrappers: every kind of label, and labels that none of them is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.errors import ConfigError, DTypeError, ShapeError
from regard.hf import (
    RegardEncoderConfig,
    RegardForImageClassification,
    RegardForQuestionAnswering,
    RegardForSequenceClassification,
    RegardVisionConfig,
)

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 1, "ff_dim": 48, "dropout_p": 0.0}


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(2))


def classifier(kind: str, **options: Any) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    if kind == "text":
        return RegardForSequenceClassification(RegardEncoderConfig(**TINY, **options)).eval(), words(2, 5)
    config = RegardVisionConfig(**TINY, image_size=8, patch_size=4, **options)
    return RegardForImageClassification(config).eval(), torch.randn(2, 1, 8, 8)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_one_class_is_a_regression(kind: str) -> None:
    model, given = classifier(kind, num_labels=1)
    for labels in (torch.tensor([0.5, 2.0]), torch.tensor([3, 2]), torch.tensor([[0.5], [2.0]])):
        output = model(given, labels=labels)
        torch.testing.assert_close(output.loss, functional.mse_loss(output.logits, labels.view(2, 1).float()))
    three, given = classifier(kind, num_labels=3, problem_type="regression")
    labels = torch.randn(2, 3)
    torch.testing.assert_close(three(given, labels=labels).loss, functional.mse_loss(three(given).logits, labels))
    half = three(given, labels=labels, num_items_in_batch=12).loss
    torch.testing.assert_close(half, three(given, labels=labels).loss / 2)


@pytest.mark.parametrize("kind", ["text", "image"])
def test_classes_that_do_not_exclude_each_other(kind: str) -> None:
    labels = torch.tensor([[1.0, 0, 1], [0, 1, 1]])
    for options, given_labels in (({"problem_type": "multi_label_classification"}, labels.long()), ({}, labels)):
        model, given = classifier(kind, num_labels=3, **options)
        output = model(given, labels=given_labels)
        torch.testing.assert_close(output.loss, functional.binary_cross_entropy_with_logits(output.logits, labels))


@pytest.mark.parametrize("kind", ["text", "image"])
def test_classes_that_exclude_each_other(kind: str) -> None:
    model, given = classifier(kind, num_labels=3)
    output = model(given, labels=torch.tensor([2, 0]))
    torch.testing.assert_close(output.loss, functional.cross_entropy(output.logits, torch.tensor([2, 0])))
    one = model(given, labels=torch.tensor([2, -100])).loss
    torch.testing.assert_close(one, functional.cross_entropy(output.logits[:1], torch.tensor([2])))
    assert model(given, labels=torch.tensor([-100, -100])).loss == 0


def test_labels_of_another_problem_are_refused() -> None:
    model, tokens = classifier("text", num_labels=3)
    with pytest.raises(ShapeError, match=r"`labels` must be of shape \(2,\), but is of shape \(2, 1\)"):
        model(tokens, labels=torch.tensor([[0], [1]]))
    with pytest.raises(ConfigError, match=r"`labels` must be classes from 0 to 2, but is 3 in row 1"):
        model(tokens, labels=torch.tensor([0, 3]))
    with pytest.raises(ShapeError, match=r"`labels` must be of shape \(2, 3\), but is of shape \(2,\)"):
        model(tokens, labels=torch.tensor([0.0, 1.0]))
    model, _ = classifier("text", num_labels=3, problem_type="single_label_classification")
    with pytest.raises(DTypeError, match=r"`labels` must be classes \(int64 or int32\), but is torch\.float32"):
        model(tokens, labels=torch.tensor([0.0, 1.0]))
    model, _ = classifier("text", num_labels=1)
    with pytest.raises(ShapeError, match=r"`labels` must be of shape \(2, 1\), but is of shape \(3, 1\)"):
        model(tokens, labels=torch.randn(3))


def finder() -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    tokens = words(3, 5)
    tokens[1, 3:] = 0
    return RegardForQuestionAnswering(RegardEncoderConfig(**TINY)).eval(), tokens


def test_both_ends_of_an_answer_are_counted() -> None:
    model, tokens = finder()
    starts, ends = torch.tensor([0, 1, 4]), torch.tensor([2, 2, 4])
    output = model(tokens, start_positions=starts, end_positions=ends)
    first = functional.cross_entropy(output.start_logits, starts)
    torch.testing.assert_close(output.loss, (first + functional.cross_entropy(output.end_logits, ends)) / 2)
    starts[1] = ends[1] = -100
    kept = torch.tensor([0, 2])
    found = model(tokens, start_positions=starts, end_positions=ends).loss
    alone = model(tokens[kept], start_positions=starts[kept], end_positions=ends[kept]).loss
    torch.testing.assert_close(found, alone)


@pytest.mark.usefixtures("unchecked")
def test_an_answer_without_an_end_or_at_padding_is_refused() -> None:
    model, tokens = finder()
    places = torch.tensor([0, 1, 2])
    for given, missing in (("start_positions", "end_positions"), ("end_positions", "start_positions")):
        wanted = rf"`{missing}` must be given where the other end of the answer is, but is None"
        with pytest.raises(ConfigError, match=wanted):
            model(tokens, **{given: places})
    with pytest.raises(ConfigError) as caught:
        model(tokens, start_positions=places, end_positions=torch.tensor([0, 3, 2]))
    assert str(caught.value) == (
        "RegardForQuestionAnswering(): `end_positions` must be positions of real tokens, but is 3 in row 1.\n"
        "  hint: -100 leaves a row out"
    )
    for outside in (5, -1):
        with pytest.raises(ConfigError, match=rf"`start_positions` must be positions of real .* is {outside} in row 2"):
            model(tokens, start_positions=torch.tensor([0, 1, outside]), end_positions=places)
    with pytest.raises(ShapeError, match=r"`start_positions` must be of shape \(3,\), but is of shape \(3, 1\)"):
        model(tokens, start_positions=places[:, None], end_positions=places)
