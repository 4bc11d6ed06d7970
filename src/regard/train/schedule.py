"""The learning rate over a training that ends by updates or by time."""

from __future__ import annotations

import math

from regard.train.settings import TrainSettings

_LAST = 0.05  # share of the highest rate that cosine and line end at


def rate_share(settings: TrainSettings, step: int, fraction: float) -> float:
    """The share of the highest learning rate at one update.

    Args:
        settings: ``warmup`` and ``schedule``.
        step: Updates done.
        fraction: How much of the training is done, 0 to 1.

    Returns:
        Between 0 and 1.

    Source:
        Inverse square root: Vaswani et al. 2017, section 5.3; cosine: Loshchilov and Hutter 2017, arXiv:1608.03983.
    """
    update = step + 1
    if update < settings.warmup:
        return update / settings.warmup
    if settings.schedule == "inverse_sqrt":
        return math.sqrt(max(settings.warmup, 1) / max(update, settings.warmup, 1))
    done = min(max(fraction, 0.0), 1.0)
    if settings.schedule == "cosine":
        return _LAST + (1 - _LAST) * (1 + math.cos(math.pi * done)) / 2
    return _LAST + (1 - _LAST) * (1 - done) if settings.schedule == "linear" else 1.0
