"""The curves of a training: events for TensorBoard while it goes, one picture when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.train.watcher import Moment, Watcher


class Recorder(Watcher):
    """Keeps what a training tells, writes it for TensorBoard, and passes it on.

    Args:
        folder: Where the events go: ``tensorboard --logdir FOLDER`` shows them. Nothing is written where TensorBoard
            is not installed.
        told: Who else is told.
    """

    def __init__(self, folder: Path, told: Watcher) -> None:
        self.moments: list[Moment] = []
        self._told = told
        self._writer = _writer(folder)

    def moment(self, moment: Moment) -> None:
        """Loss, rate and speed."""
        self.moments.append(moment)
        self._write(
            moment.step, loss=moment.loss, rate=moment.learning_rate, targets_per_second=moment.tokens_per_second
        )
        self._told.moment(moment)

    def round(self, figures: dict[str, Any], *, best: bool) -> None:
        """What a validation found."""
        shown = {f"valid_{name}": value for name, value in figures.items() if name not in ("step", "minutes")}
        self._write(figures["step"], **shown)
        self._told.round(figures, best=best)

    def note(self, text: str) -> None:
        """Passed on."""
        self._told.note(text)

    def draw(self, path: Path, *, rounds: Sequence[Mapping[str, Any]]) -> None:
        """One picture: the loss of training and of validation, and the other figures of the validation beside it.

        Args:
            path: Where to.
            rounds: What all validations found, those before a resumption included.
        """
        from matplotlib.figure import Figure

        names = [name for name in (rounds[-1] if rounds else {}) if name not in ("step", "minutes", "loss")]
        figure = Figure(figsize=(5 * (1 + len(names)), 3.6), layout="constrained")
        axes = figure.subplots(1, 1 + len(names), squeeze=False)[0]
        axes[0].plot([m.step for m in self.moments], [m.loss for m in self.moments], label="training", linewidth=1)
        steps = [figures["step"] for figures in rounds]
        axes[0].plot(steps, [figures["loss"] for figures in rounds], label="validation", marker="o", markersize=3)
        axes[0].set(xlabel="step", ylabel="loss, nats per target")
        axes[0].legend(frameon=False)
        for axis, name in zip(axes[1:], names, strict=True):
            axis.plot(steps, [figures[name] for figures in rounds], marker="o", markersize=3)
            axis.set(xlabel="step", ylabel=f"validation {name}")
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=120)

    def _write(self, step: int, **figures: float) -> None:
        if self._writer is not None:
            for name, value in figures.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()


def _writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        return None
    writer: Any = SummaryWriter(str(folder / "events"))
    return writer
