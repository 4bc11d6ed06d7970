"""What the configurations of all models check, every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from regard.errors import ConfigError, all_problems, message, must_be
from regard.nn.options import is_number, is_whole, share_problems, size_problems

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer", is_whole),
    "int | None": ("an integer or None", lambda value: value is None or is_whole(value)),
    "float": ("a number", is_number),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "tuple[int, ...]": (
        "a tuple of integers",
        lambda value: isinstance(value, tuple) and all(map(is_whole, value)),
    ),
}


def check_config(
    config: Any,
    *,
    sizes: Sequence[str],
    ids: Sequence[str],
    shares: Sequence[str] = ("dropout_p",),
    choices: Mapping[str, Sequence[str]] | None = None,
    more: Callable[[], Sequence[str]] | None = None,
) -> None:
    """Refuse a configuration with all its problems.

    Args:
        config: A dataclass with ``vocab_size``.
        sizes: Fields that must be at least 1, where they are not None.
        ids: Fields that must be ids of the vocabulary; ``pad_id``, if it is among them, the first and like no other.
        shares: Fields that must be between 0 and 1.
        choices: Fields, and the words they may be.
        more: Finds what else is wrong, with one field and another; asked if every field is of its type.

    Raises:
        ConfigError: if there is any problem.
    """
    types = _type_problems(config)

    def typed(names: Sequence[str]) -> dict[str, Any]:
        given = {name: getattr(config, name) for name in names if name not in types}
        return {name: value for name, value in given.items() if value is not None}

    problems = [*types.values(), *size_problems(typed(sizes)), *share_problems(typed(shares))]
    for name, words in (choices or {}).items():
        if (found := getattr(config, name)) not in words:
            problems.append(must_be(name, " or ".join(f'"{word}"' for word in words), repr(found)))
    if "vocab_size" not in types:
        problems += _id_problems(typed(ids), config.vocab_size)
    if more is not None and not types:
        problems += more()
    if problems:
        raise all_problems(type(config).__name__, problems)


def _type_problems(config: Any) -> dict[str, str]:
    """Field to sentence for what is not of the type it is declared with."""
    problems = {}
    for field in fields(config):
        declared = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        expected, fits = _TYPES.get(declared, ("", lambda value: True))
        if not fits(value := getattr(config, field.name)):
            problems[field.name] = must_be(field.name, expected, repr(value))
    return problems


def _id_problems(ids: Mapping[str, int], vocab_size: int) -> list[str]:
    """Ids must be in the vocabulary, and padding must be told from all others."""
    problems = [
        must_be(name, f"an id of the vocabulary (0 to {vocab_size - 1})", found)
        for name, found in ids.items()
        if not 0 <= found < vocab_size
    ]
    return problems + [
        must_be("pad_id", f"another id than `{name}`", found)
        for name, found in ids.items()
        if name != "pad_id" and found == ids.get("pad_id")
    ]


def need_config(caller: str, config: object, kind: type) -> None:
    """Refuse the settings of another family; a person's own subclass is of the family it comes from.

    Raises:
        ConfigError: as said.
    """
    family = next((one for one in type(config).__mro__ if one.__module__.startswith("regard.")), None)
    if family is not kind:
        problem = must_be("config", f"of class {kind.__name__}", f"of class {type(config).__name__}")
        raise ConfigError(message(caller, problem))
