"""How a model is trained: every number in one place, checked together, kept with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from regard.errors import all_problems, must_be

Schedule = Literal["inverse_sqrt", "cosine", "linear", "constant"]
Precision = Literal["auto", "bf16", "fp32"]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a training.

    It ends at the first of ``steps``, ``epochs``, ``minutes`` and ``patience`` that is reached.

    Args:
        steps: Updates of the weights.
        epochs: Passes over the examples.
        minutes: Time spent training, pauses between a stop and its resumption left out.
        patience: Rounds without a better validation figure before training stops; None to go on.
        batch_tokens: The most tokens of a batch, padding included.
        batch_rows: The most examples of a batch.
        accumulation: Batches whose gradients are added before the weights change; their loss is that of one batch.
        learning_rate: The highest.
        warmup: Updates over which the rate rises from 0.
        schedule: What the rate does after that: fall with the inverse square root of the update, along a cosine or a
            line to a twentieth at the end, or nothing.
        weight_decay: AdamW's, for matrices; its betas are 0.9 and 0.98.
        clip: The largest norm of a gradient; 0 for no limit.
        label_smoothing: Share of a target's probability that is given to all tokens alike.
        precision: "bf16" computes products in bfloat16 (autocast); "auto" does where the device is made for it.
        average: How many states of the weights from the last quarter are averaged; 0 for none. The better of the
            average and the best round's weights is kept, by the validation figure.
        round_steps: Updates between two validations, each followed by a checkpoint; by default an epoch, at most 500.
        checkpoints: How many are kept, beside the best one.
        seed: Decides the first weights, the order of examples, dropout, and which examples are held out.

    Raises:
        ConfigError: with every problem.
    """

    steps: int | None = None
    epochs: int | float | None = None
    minutes: int | float | None = None
    patience: int | None = None
    batch_tokens: int = 4096
    batch_rows: int | None = None
    accumulation: int = 1
    learning_rate: float = 1e-3
    warmup: int = 400
    schedule: Schedule = "inverse_sqrt"
    weight_decay: float = 0.01
    clip: float = 1.0
    label_smoothing: float = 0.0
    precision: Precision = "auto"
    average: int = 5
    round_steps: int | None = None
    checkpoints: int = 2
    seed: int = 1

    def __post_init__(self) -> None:
        problems = []
        if self.steps is None and self.epochs is None and self.minutes is None:
            problems.append("one of `steps`, `epochs` and `minutes` must be given, but none is.")
        for name in ("steps", "patience", "batch_rows", "round_steps"):
            if (value := getattr(self, name)) is not None and value < 1:
                problems.append(must_be(name, "at least 1, or None", value))
        for name in ("epochs", "minutes"):
            if (value := getattr(self, name)) is not None and not 0 < value < float("inf"):
                problems.append(must_be(name, "a number above 0, or None", value))
        for name in ("batch_tokens", "accumulation", "checkpoints"):
            if (value := getattr(self, name)) < 1:
                problems.append(must_be(name, "at least 1", value))
        for name in ("warmup", "average", "seed"):
            if (value := getattr(self, name)) < 0:
                problems.append(must_be(name, "at least 0", value))
        for name in ("weight_decay", "clip"):
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                problems.append(must_be(name, "a number of at least 0", value))
        if not 0 < self.learning_rate < float("inf"):
            problems.append(must_be("learning_rate", "a number above 0", self.learning_rate))
        if not 0 <= self.label_smoothing < 1:
            problems.append(must_be("label_smoothing", "at least 0 and below 1", self.label_smoothing))
        for name, words in (("schedule", get_args(Schedule)), ("precision", get_args(Precision))):
            if (value := getattr(self, name)) not in words:
                problems.append(must_be(name, " or ".join(f'"{word}"' for word in words), repr(value)))
        if problems:
            raise all_problems("TrainSettings", problems)
