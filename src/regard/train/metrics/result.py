"""What a metric gives back: numbers with names, for a person, for a file, and for the next comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

NOT_REPORTED = {"reported": False}
"""Metadata of a field that is for computing on, and is left out of ``as_dict``."""


@dataclass(frozen=True)
class Result:
    """The base of what metrics return."""

    def as_dict(self) -> dict[str, Any]:
        """The numbers as JSON can hold them: lists for tuples, None where a number is not finite."""
        reported = (field.name for field in fields(self) if field.metadata.get("reported", True))
        return {name: _plain(getattr(self, name)) for name in reported}


@dataclass(frozen=True)
class Scored(Result):
    """The base of results that know a score of every segment.

    Args:
        segments: One score per segment, in the order they came in.
    """

    segments: tuple[float, ...]

    def worst(self, count: int = 5) -> tuple[int, ...]:
        """Indices of the segments with the lowest scores, the worst first, and of equals the first.

        Args:
            count: How many; fewer when there are not as many.
        """
        return tuple(sorted(range(len(self.segments)), key=lambda index: self.segments[index])[:count])


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.as_dict()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
