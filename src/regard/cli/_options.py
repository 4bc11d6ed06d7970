"""What a person types for layers and probes, turned into values; every problem is one clear line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from regard.errors import ConfigError, message

if TYPE_CHECKING:
    from regard.ops import Probe

SHORT = 128  # up to this many tokens the exact weights are kept


def layers_of(text: str, count: int | None) -> tuple[int, ...]:
    """Layer numbers out of ``0,3-5``.

    Args:
        text: Numbers and ranges, both ends included, separated by commas.
        count: How many layers the model has; None when that is not known.

    Returns:
        The numbers in order, each once.

    Raises:
        ConfigError: The text is something else, or names a layer the model lacks.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(message("look", f"--layers must look like 0,3-5, but is {text!r}."))
        chosen.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if count is not None and max(chosen) >= count:
        problem = f"--layers names layer {max(chosen)}, but the model has only layers 0 to {count - 1}."
        raise ConfigError(message("look", problem))
    return tuple(sorted(chosen))


def probes_for(length: int, *, total: int | None = None) -> tuple[Probe, ...]:
    """What is gathered when nobody chose: exact rows of a short text, a map and the largest weights of a long one.

    Args:
        length: How many tokens there are, or will be.
        total: For generation: the length the map must be ready for.
    """
    from regard.ops import Entropy, FirstKeys, HeatMap, KeyMass, Rows, TopK

    if length <= SHORT:
        return (Rows(), Entropy(), FirstKeys(1), KeyMass(), TopK(min(16, length)))
    return (Entropy(), TopK(16), FirstKeys(1), KeyMass(), HeatMap(256, 256, length=total))


def probes_of(text: str, *, total: int | None = None) -> tuple[Probe, ...]:
    """Probes out of ``entropy,topk=16,heatmap=256x256``.

    Raises:
        ConfigError: A name or a number is wrong; lists what there is.
    """
    makers = _makers(total)
    chosen = []
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        key = name.lower().replace("_", "").replace("-", "")
        if key not in makers:
            known = ", ".join(_SPELLINGS)
            raise ConfigError(message("look", f"--probes has no {name!r}; there are: {known}."))
        try:
            chosen.append(makers[key](_numbers(value)))
        except (TypeError, ValueError) as error:
            problem = f"--probes {part.strip()!r} must look like {_SPELLINGS[_keys().index(key)]}."
            raise ConfigError(message("look", problem)) from error
    return tuple(chosen)


_SPELLINGS = (
    "entropy",
    "topk=16",
    "firstkeys=1",
    "keymass",
    "heatmap=256x256",
    "rows",
    "distance",
    "logsumexp",
    "sinkshare",
)


def _keys() -> list[str]:
    return [spelling.partition("=")[0] for spelling in _SPELLINGS]


def _numbers(value: str) -> list[int]:
    return [int(number) for number in value.split("x")] if value else []


def _makers(total: int | None) -> dict[str, Callable[[Sequence[int]], Probe]]:
    from regard import ops

    return {
        "entropy": lambda numbers: ops.Entropy(*numbers),
        "topk": lambda numbers: ops.TopK(*(numbers or (16,))),
        "firstkeys": lambda numbers: ops.FirstKeys(*(numbers or (1,))),
        "keymass": lambda numbers: ops.KeyMass(*numbers),
        "heatmap": lambda numbers: _heat_map(numbers or (256, 256), total),
        "rows": lambda numbers: ops.Rows() if not numbers else _refuse(),
        "distance": lambda numbers: ops.Distance(*numbers),
        "logsumexp": lambda numbers: ops.LogSumExp(*numbers),
        "sinkshare": lambda numbers: ops.SinkShare(*numbers),
    }


def _heat_map(numbers: Sequence[int], total: int | None) -> Probe:
    from regard.ops import HeatMap

    rows, columns = numbers
    return HeatMap(rows, columns, length=total)


def _refuse() -> NoReturn:
    raise ValueError("takes no numbers")
