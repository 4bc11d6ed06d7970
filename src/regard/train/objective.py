"""What a training makes small, and what it looks at to say that a round was better.

Losses are sums; the trainer divides by the number of targets of all batches whose gradients are added, on all
processes. So accumulated batches, and processes side by side, train as one batch would.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.hf.losses import IGNORED
from regard.train.cross_entropy import cross_entropy_sum

Batch = Mapping[str, Tensor]


class Objective(ABC):
    """A loss, and the figure that a validation decides by."""

    targets: ClassVar[tuple[str, ...]] = ("labels",)
    figure: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False

    @abstractmethod
    def count(self, batch: Batch) -> Tensor:
        """How many targets a batch has."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Batch) -> Tensor:
        """The sum of the losses of all targets."""

    def measure(self, outputs: Any, targets: Batch) -> dict[str, Tensor]:
        """Sums of what a validation reports, to be divided by ``count``."""
        return {"loss": self.loss(outputs, targets)}


class NextToken(Objective):
    """Cross-entropy of the token that comes next, for models that write.

        loss = −Σ log p(target),   smoothed: p(target) counts 1 − ε, all tokens together ε

    ``labels [batch, length]`` stand where their logits do (shifted already); −100 is left out.

    Args:
        smoothing: ε. Validations leave it out.

    Source:
        Szegedy et al. 2016, arXiv:1512.00567, section 7.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self._smoothing = smoothing

    def count(self, batch: Batch) -> Tensor:
        """Targets that are not left out."""
        return (batch["labels"] != IGNORED).sum()

    def loss(self, outputs: Any, targets: Batch) -> Tensor:
        """Summed over all targets, with smoothing."""
        return self._cross_entropy(outputs, targets, self._smoothing)

    def measure(self, outputs: Any, targets: Batch) -> dict[str, Tensor]:
        """Without smoothing: its mean is the logarithm of the perplexity."""
        return {"loss": self._cross_entropy(outputs, targets, 0.0)}

    def _cross_entropy(self, outputs: Any, targets: Batch, smoothing: float) -> Tensor:
        return cross_entropy_sum(outputs.logits.flatten(0, 1), targets["labels"].flatten(), smoothing=smoothing)


class OneClass(Objective):
    """Cross-entropy of the one right class; ``labels [batch]``.

    Args:
        smoothing: As for ``NextToken``.
    """

    figure = "accuracy"
    higher_is_better = True

    def __init__(self, smoothing: float = 0.0) -> None:
        self._smoothing = smoothing

    def count(self, batch: Batch) -> Tensor:
        """One for each row."""
        return torch.tensor(len(batch["labels"]))

    def loss(self, outputs: Any, targets: Batch) -> Tensor:
        """Summed over rows."""
        logits, labels = _wide(outputs.logits), targets["labels"]
        return functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=self._smoothing)

    def measure(self, outputs: Any, targets: Batch) -> dict[str, Tensor]:
        """The loss without smoothing, and how many rows are right."""
        logits, labels = _wide(outputs.logits), targets["labels"]
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        return {"loss": loss, "accuracy": (logits.argmax(dim=-1) == labels).sum()}


class SpanEnds(Objective):
    """Cross-entropy of the first and of the last token of an answer, the mean of both.

    Rounds are compared by how many answers have both right: the loss grows with the certainty of a few wrong ones long
    before fewer are right.
    """

    targets = ("start_positions", "end_positions")
    figure = "exact"
    higher_is_better = True

    def count(self, batch: Batch) -> Tensor:
        """One for each row."""
        return torch.tensor(len(batch["start_positions"]))

    def loss(self, outputs: Any, targets: Batch) -> Tensor:
        """Summed over rows."""
        first = functional.cross_entropy(_wide(outputs.start_logits), targets["start_positions"], reduction="sum")
        last = functional.cross_entropy(_wide(outputs.end_logits), targets["end_positions"], reduction="sum")
        return (first + last) / 2

    def measure(self, outputs: Any, targets: Batch) -> dict[str, Tensor]:
        """The loss, and of how many rows both ends are right."""
        first = outputs.start_logits.argmax(dim=-1) == targets["start_positions"]
        last = outputs.end_logits.argmax(dim=-1) == targets["end_positions"]
        return {"loss": self.loss(outputs, targets), "exact": (first & last).sum()}


class OneClassOfParts(Objective):
    """Cross-entropy of the class of every part of a text, such as a sentence.

        logits of a part = the mean of those of its tokens;  of a linear head, those of the mean of its states

    ``parts [batch, length]`` says which part a token belongs to, from 0; ``labels [batch, number of parts]`` are the
    classes. −100 in either is left out.

    Args:
        smoothing: As for ``NextToken``.
    """

    targets = ("parts", "labels")

    def __init__(self, smoothing: float = 0.0) -> None:
        self._smoothing = smoothing

    def count(self, batch: Batch) -> Tensor:
        """One for each part."""
        return (batch["labels"] != IGNORED).sum()

    def loss(self, outputs: Any, targets: Batch) -> Tensor:
        """Summed over all parts, with smoothing."""
        return self._cross_entropy(outputs, targets, self._smoothing)

    def measure(self, outputs: Any, targets: Batch) -> dict[str, Tensor]:
        """Without smoothing."""
        return {"loss": self._cross_entropy(outputs, targets, 0.0)}

    def _cross_entropy(self, outputs: Any, targets: Batch, smoothing: float) -> Tensor:
        labels = targets["labels"]
        means = mean_of_parts(_wide(outputs.logits), targets["parts"], labels.shape[1])
        real = labels != IGNORED
        return functional.cross_entropy(means[real], labels[real], reduction="sum", label_smoothing=smoothing)


def mean_of_parts(
    values: Float[Tensor, "batch length width"], parts: Int[Tensor, "batch length"], count: int
) -> Float[Tensor, "batch {count} width"]:
    """For every part of a text the mean over its tokens; zeros for a part without any.

    Args:
        values: Of every token.
        parts: Which part a token belongs to, from 0; −100 for none.
        count: Of parts.
    """
    belongs = functional.one_hot(parts.masked_fill(parts == IGNORED, count), count + 1)[..., :count].to(values.dtype)
    return belongs.mT @ values / belongs.sum(dim=1)[..., None].clamp(min=1)


def _wide(logits: Tensor) -> Tensor:
    """At least float32: probabilities of many tokens add up."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
