"""Who is told how a training goes: every few updates, after every round, and of whatever a person should know."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, TextIO

_EVERY_ON_SCREEN = 0.5
_EVERY_IN_PIPE = 10.0


@dataclass(frozen=True)
class Moment:
    """How a training goes.

    Args:
        step: Updates done.
        epoch: Passes over the examples done.
        loss: Of a target in nats: the mean over the updates since the last moment.
        learning_rate: That of the last update.
        tokens_per_second: Targets, since the last moment.
        seconds: Spent so far.
        seconds_left: An estimate; None where there is none.
    """

    step: int
    epoch: float
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {spoken(self.seconds_left)} left"
        rate = f"{self.tokens_per_second:,.0f} targets/s"
        return f"step {self.step} (epoch {self.epoch:.1f}): loss {self.loss:.3f}, {rate}{left}"


class Watcher:
    """Hears everything and says nothing; what others are derived from."""

    def moment(self, moment: Moment) -> None:
        """Called every few updates."""

    def round(self, figures: dict[str, Any], *, best: bool) -> None:
        """Called after every validation."""

    def note(self, text: str) -> None:
        """Called with a sentence that a person should know."""


class Printer(Watcher):
    """Prints to a stream: on a terminal the moment is rewritten in place, elsewhere it comes every ten seconds.

    Args:
        stream: Where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._screen = self._stream.isatty()
        self._last = 0.0

    def moment(self, moment: Moment) -> None:
        """One line, if it is time for one."""
        now = time.monotonic()
        if now - self._last < (_EVERY_ON_SCREEN if self._screen else _EVERY_IN_PIPE):
            return
        self._last = now
        self._write(f"\r{moment}\x1b[K" if self._screen else f"{moment}\n")

    def round(self, figures: dict[str, Any], *, best: bool) -> None:
        """One line."""
        named = ", ".join(f"{name} {_short(value)}" for name, value in figures.items())
        self._line(f"round: {named}{' (best so far)' if best else ''}")

    def note(self, text: str) -> None:
        """One line."""
        self._line(text)

    def _line(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self._screen else f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def spoken(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
