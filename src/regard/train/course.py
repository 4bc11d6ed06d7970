"""The course of a training: how far it is, what it has seen, which round was best; kept in every checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from regard.train.settings import TrainSettings

_AVERAGED = 0.25  # the last part of a training, from which weights are averaged


@dataclass
class Course:
    """How far a training is.

    Args:
        settings: When it ends.
        steps_per_epoch: Updates in a pass over the examples.
        higher_is_better: Of the figure that decides which round is best.
        step: Updates done.
        seconds: Spent training up to the last update, validations and checkpoints before it included.
        tokens: Targets seen.
        best_step: The update after which the best round was.
        best_figure: Its validation figure.
        rounds_since_best: Rounds since then.
        averaged: States of the weights in the average.
        history: What each round found.
    """

    settings: TrainSettings
    steps_per_epoch: int
    higher_is_better: bool = False
    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    best_step: int | None = None
    best_figure: float | None = None
    rounds_since_best: int = 0
    averaged: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    def tick(self, *, step: int, seconds: float, tokens: int) -> None:
        """Take down an update.

        Args:
            step: Updates done.
            seconds: Spent so far, resumptions added; the same on all processes.
            tokens: Targets of this update.
        """
        self.step, self.seconds, self.tokens = step, seconds, self.tokens + tokens

    @property
    def last_step(self) -> int | None:
        """The update that ends it, if updates or epochs do."""
        limits = [] if self.settings.steps is None else [self.settings.steps]
        if self.settings.epochs is not None:
            limits.append(max(1, round(self.settings.epochs * self.steps_per_epoch)))
        return min(limits, default=None)

    @property
    def round_steps(self) -> int:
        """Updates between two validations."""
        return self.settings.round_steps or min(self.steps_per_epoch, 500)

    @property
    def fraction(self) -> float:
        """How much of the training is done, by whichever limit is nearer."""
        by_time = 0.0 if self.settings.minutes is None else self.seconds / (60 * self.settings.minutes)
        by_step = 0.0 if self.last_step is None else self.step / self.last_step
        return min(1.0, max(by_time, by_step))

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached, or nothing has become better for too long."""
        patience = self.settings.patience
        return self.fraction >= 1 or (patience is not None and self.rounds_since_best >= patience)

    def seconds_left(self) -> float | None:
        """An estimate by the speed so far; None before the first update."""
        return self.seconds * (1 / self.fraction - 1) if self.step and self.fraction > 0 else None

    def wants_average(self) -> bool:
        """Whether the weights of now belong into the average: so many, evenly spaced over the last quarter."""
        share = (self.fraction - (1 - _AVERAGED)) / _AVERAGED
        return self.settings.average > 0 and share * self.settings.average >= self.averaged + 1 - 1e-9

    def note_round(self, figure: float, **figures: Any) -> bool:
        """Take down a round.

        Args:
            figure: The validation figure that decides.
            **figures: What else was measured.

        Returns:
            Whether it is the best so far.
        """
        better = self.best_figure is None or (
            figure > self.best_figure if self.higher_is_better else figure < self.best_figure
        )
        if better:
            self.best_step, self.best_figure, self.rounds_since_best = self.step, figure, 0
        else:
            self.rounds_since_best += 1
        self.history.append({"step": self.step, "minutes": round(self.seconds / 60, 3), **figures})
        return better

    def as_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kept = asdict(self)
        for name in ("settings", "steps_per_epoch", "higher_is_better"):
            del kept[name]
        return kept

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        for name, value in kept.items():
            setattr(self, name, value)
        if self.fraction < 1 - _AVERAGED:  # it ends later than it was to: the last quarter is still to come
            self.averaged = 0
