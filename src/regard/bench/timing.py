"""Times of several functions, taken in turn in one process, and what else the machine did meanwhile."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BUSY = 0.15
"""CPUs used by other processes from which a time is doubtful."""

_SHORTEST = 2e-3  # a sample shorter than this is mostly the clock's and the scheduler's noise
_FEWEST = 3
FEWEST_RUNS = 1 + _FEWEST
"""Runs of each side that ``interleave`` takes at least: one to see how long it is, and three rounds."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Spread:
    """Quartiles of a measured number."""

    quarter: float
    median: float
    three_quarters: float

    @classmethod
    def of(cls, numbers: list[float]) -> Spread:
        """The quartiles of at least two numbers."""
        return cls(*statistics.quantiles(numbers, n=4, method="inclusive"))


class OtherProcesses:
    """Counts the CPU that other processes used between ``begin`` and ``share``, from /proc/stat."""

    def __init__(self) -> None:
        self._start = self._read()
        self._time = time.perf_counter()

    def share(self) -> float | None:
        """CPUs in use by others on average; None where the system does not tell."""
        now, seconds = self._read(), time.perf_counter() - self._time
        if now is None or self._start is None or seconds <= 0:
            return None
        return max(0.0, (now - self._start) / seconds)

    @staticmethod
    def _read() -> float | None:
        """Seconds of CPU that all processes but this one have used so far."""
        try:
            with open("/proc/stat", encoding="ascii") as lines:
                # user nice system idle iowait irq softirq steal: without idling and waiting
                ticks = [int(word) for word in lines.readline().split()[1:9]]
        except OSError:
            return None
        own = os.times()
        return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS - own.user - own.system


def interleave(
    sides: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 9,
    seconds: float = 12.0,
    finish: Callable[[], Any] = lambda: None,
) -> dict[str, list[float]]:
    """Time functions in turn: a, b, c, a, b, c, …, so that what disturbs the machine disturbs all alike.

    Args:
        sides: The functions; each has been called once before.
        rounds: Samples to take of each; at least three.
        seconds: No further round is begun after so long, once there are three.
        finish: Called at the end of each sample, inside the time: waits for a device.

    Returns:
        Seconds per call, one number for each round. Calls shorter than two milliseconds are repeated within a sample.
    """
    repeats: dict[str, int] = {}
    for name, side in sides.items():
        once = _sample(side, 1, finish)
        repeats[name] = max(1, math.ceil(_SHORTEST / max(once, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    began = time.perf_counter()
    for number in range(max(rounds, _FEWEST)):
        if number >= _FEWEST and time.perf_counter() - began > seconds:
            break
        for name, side in sides.items():
            times[name].append(_sample(side, repeats[name], finish))
    return times


def _sample(side: Callable[[], Any], repeats: int, finish: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        side()
    finish()
    return (time.perf_counter() - start) / repeats
