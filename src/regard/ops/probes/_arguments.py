"""Checks of probe arguments: every problem of a probe is collected and told at once."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Iterable
from typing import Any

from regard.errors import all_problems, must_be
from regard.ops._strip import LARGEST_POSITION

Span = tuple[int, int]
_SHOWN = 80


class Arguments:
    """Reads the arguments of one frozen probe, normalises them, and raises once for all that is wrong.

    Args:
        probe: The probe under construction; normalised values are written back to it.
    """

    def __init__(self, probe: Any) -> None:
        self._probe = probe
        self._problems: list[str] = []

    def integer(self, argument: str, *, least: int) -> None:
        """The argument must be an integer of at least ``least``."""
        value = getattr(self._probe, argument)
        number = _integer(value)
        if number is None or number < least:
            self._problems.append(must_be(argument, f"an integer ≥ {least}{_limit(value)}", repr(value)))
        else:
            object.__setattr__(self._probe, argument, number)

    def integers(self, argument: str, *, least: int | None = None) -> None:
        """The argument must be an iterable of different integers; it becomes a tuple."""
        value = getattr(self._probe, argument)
        numbers = [_integer(item) for item in _items(value)]
        bound = ("" if least is None else f" ≥ {least}") + _limit(*_items(value))
        if not numbers or any(number is None or (least is not None and number < least) for number in numbers):
            self._problems.append(must_be(argument, f"one or more integers{bound}", repr(value)))
        elif len(set(numbers)) < len(numbers):
            self._problems.append(must_be(argument, "integers that all differ", repr(value)))
        else:
            object.__setattr__(self._probe, argument, tuple(numbers))

    def ids(self, argument: str) -> None:
        """The argument must be an iterable of integers, which may repeat; it becomes a tuple."""
        value = getattr(self._probe, argument)
        numbers = [_integer(item) for item in _items(value)]
        if not numbers or None in numbers:
            expected = f"one or more integers{_limit(*_items(value))}"
            self._problems.append(must_be(argument, expected, _shortened(value)))
        else:
            object.__setattr__(self._probe, argument, tuple(numbers))

    def flag(self, argument: str) -> None:
        """The argument must be True or False."""
        value = getattr(self._probe, argument)
        if not isinstance(value, bool):
            self._problems.append(must_be(argument, "True or False", repr(value)))

    def span(self, argument: str) -> None:
        """The argument must be (start, stop) with 0 ≤ start ≤ stop; it becomes a tuple."""
        value = getattr(self._probe, argument)
        pair = tuple(_integer(item) for item in _items(value))
        if len(pair) != 2 or None in pair or not 0 <= pair[0] <= pair[1]:  # type: ignore[operator]
            self._problems.append(must_be(argument, "a range (start, stop) with 0 ≤ start ≤ stop", repr(value)))
        else:
            object.__setattr__(self._probe, argument, pair)

    def spans(self, argument: str) -> None:
        """The argument must be an iterable of (start, stop) with 0 ≤ start ≤ stop; it becomes a tuple of tuples."""
        value = getattr(self._probe, argument)
        pairs = [tuple(_integer(item) for item in _items(pair)) for pair in _items(value)]
        if not pairs or any(len(pair) != 2 or None in pair for pair in pairs):
            limit = _limit(*(item for pair in _items(value) for item in _items(pair)))
            expected = f"one or more pairs of integers (start, stop){limit}"
            self._problems.append(must_be(argument, expected, repr(value)))
            return
        spans: tuple[Span, ...] = tuple(pairs)  # type: ignore[arg-type]  # no None is left, as checked above
        wrong = [span for span in spans if not 0 <= span[0] <= span[1]]
        if wrong:
            self._problems.append(must_be(argument, "spans (start, stop) with 0 ≤ start ≤ stop", str(wrong[0])))
        else:
            object.__setattr__(self._probe, argument, spans)

    def done(self) -> None:
        """Check ``name`` too, then raise one ConfigError if anything was wrong."""
        name = self._probe.name
        if name is not None and not _is_attribute(name):
            self._problems.append(must_be("name", "a Python name without leading underscore", repr(name)))
        if self._problems:
            raise all_problems(type(self._probe).__name__, self._problems)


def _integer(value: object) -> int | None:
    """The value if it is an integer that can be a position."""
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # what is no integer raises TypeError
    except TypeError:
        return None
    return number if -LARGEST_POSITION <= number <= LARGEST_POSITION else None


def _limit(*values: object) -> str:
    """What to say of integers that no position can be."""
    too_large = any(isinstance(value, int) and abs(value) > LARGEST_POSITION for value in values)
    return " of at most 2^30 in size" if too_large else ""


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, Iterable) else []


def _is_attribute(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
