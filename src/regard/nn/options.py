"""What sizes and shares can be, said the same way by everything that takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

from regard.errors import all_problems, must_be


def is_whole(value: object) -> bool:
    """Whether a value is an integer; True and 2.0 are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a real number; True is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def size_problems(sizes: Mapping[str, object]) -> list[str]:
    """One sentence for each size that is no integer of at least 1."""
    problems = []
    for name, size in sizes.items():
        if not is_whole(size):
            problems.append(must_be(name, "an integer of at least 1", repr(size)))
        elif size < 1:  # type: ignore[operator]
            problems.append(must_be(name, "at least 1", size))
    return problems


def share_problems(shares: Mapping[str, object]) -> list[str]:
    """One sentence for each share that is no number from 0 to 1."""
    return [
        must_be(name, "between 0 and 1", share if is_number(share) else repr(share))
        for name, share in shares.items()
        if not (is_number(share) and 0 <= share <= 1)  # type: ignore[operator]
    ]


def check_options(
    caller: str,
    sizes: Mapping[str, object],
    *,
    shares: Mapping[str, object] | None = None,
    more: Sequence[str] = (),
) -> None:
    """Refuse the options of a module with all their problems.

    Args:
        caller: The module, for messages.
        sizes: Name to value of what must be at least 1.
        shares: Name to value of what must be between 0 and 1.
        more: Problems found elsewhere.

    Raises:
        ConfigError: if there is any problem.
    """
    problems = [*size_problems(sizes), *share_problems(shares or {}), *more]
    if problems:
        raise all_problems(caller, problems)
