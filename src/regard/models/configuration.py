"""What the configurations of all models check, every problem at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import all_problems, must_be


def check_config(
    config: Any,
    *,
    sizes: Sequence[str],
    ids: Sequence[str],
    vocabulary: str = "vocab_size",
    choices: Mapping[str, Sequence[str]] | None = None,
    more: Sequence[str] = (),
) -> None:
    """Refuse a configuration with all its problems.

    Args:
        config: A dataclass with ``dropout_p``.
        sizes: Fields that must be at least 1.
        ids: Fields that must be ids of the vocabulary; ``pad_id``, if it is among them, the first and like no other.
        vocabulary: The field with the size of the vocabulary.
        choices: Fields, and the words they may be.
        more: Problems found elsewhere.

    Raises:
        ConfigError: if there is any problem.
    """
    problems = [must_be(name, "at least 1", size) for name in sizes if (size := getattr(config, name)) < 1]
    for name, words in (choices or {}).items():
        if (found := getattr(config, name)) not in words:
            problems.append(must_be(name, " or ".join(f'"{word}"' for word in words), repr(found)))
    if not 0 <= config.dropout_p <= 1:
        problems.append(must_be("dropout_p", "between 0 and 1", config.dropout_p))
    size = getattr(config, vocabulary)
    for name in ids:
        if not 0 <= getattr(config, name) < size:
            problems.append(must_be(name, f"an id of the vocabulary (0 to {size - 1})", getattr(config, name)))
    for name in ids[1:]:
        if "pad_id" in ids and getattr(config, name) == config.pad_id:
            problems.append(must_be("pad_id", f"another id than `{name}`", config.pad_id))
    problems += more
    if problems:
        raise all_problems(type(config).__name__, problems)
