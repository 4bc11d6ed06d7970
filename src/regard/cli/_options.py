"""What a person types for layers and probes, turned into values; every problem is one clear line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from regard.errors import ConfigError, message

if TYPE_CHECKING:
    from regard.ops import Probe

_MOST_LAYERS = 10_000  # for models that do not say how many they have
_MOST_BINS = 1024  # a map of a thousand rows is finer than a screen, and a hundred heads of it are 0.4 GB


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
    limit = _MOST_LAYERS if count is None else count
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(message("look", f"--layers must look like 0,3-5, but is {text!r}."))
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= limit:  # checked before the range is made: it may be longer than the memory
            has = f"the model has only layers 0 to {limit - 1}" if count is not None else f"no model has {last + 1}"
            raise ConfigError(message("look", f"--layers names layer {last}, but {has}."))
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def probes_of(text: str, *, total: int | None = None, longest: int | None = None) -> tuple[Probe, ...]:
    """Probes out of ``entropy,topk=16,heatmap=256x256``.

    Args:
        text: Names and numbers, separated by commas.
        total: For generation: the length the map must be ready for.
        longest: The longest sequence there will be: more strongest keys than tokens are not gathered.

    Returns:
        The probes in order.

    Raises:
        ConfigError: A name or a number is wrong, or a name comes twice; lists what there is.
    """
    makers = _makers(total, longest)
    chosen = []
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        key = name.lower().replace("_", "").replace("-", "")
        if key not in makers:
            known = ", ".join(_SPELLINGS)
            raise ConfigError(message("look", f"--probes has no {name!r}; there are: {known}."))
        try:
            chosen.append(makers[key](_numbers(value)))
        except _TooFineError as error:
            raise ConfigError(message("look", str(error))) from error
        except (TypeError, ValueError) as error:
            problem = f"--probes {part.strip()!r} must look like {_SPELLINGS[_keys().index(key)]}."
            raise ConfigError(message("look", problem)) from error
        if chosen[-1].attribute in {probe.attribute for probe in chosen[:-1]}:
            raise ConfigError(message("look", f"--probes must name each probe once, but has {name!r} twice."))
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


def _makers(total: int | None, longest: int | None) -> dict[str, Callable[[Sequence[int]], Probe]]:
    from regard import ops

    return {
        "entropy": lambda numbers: ops.Entropy(*numbers),
        "topk": lambda numbers: _top_k(*(numbers or (16,)), longest=longest),
        "firstkeys": lambda numbers: ops.FirstKeys(*(numbers or (1,))),
        "keymass": lambda numbers: ops.KeyMass(*numbers),
        "heatmap": lambda numbers: _heat_map(numbers or (256, 256), total),
        "rows": lambda numbers: ops.Rows() if not numbers else _refuse(),
        "distance": lambda numbers: ops.Distance(*numbers),
        "logsumexp": lambda numbers: ops.LogSumExp(*numbers),
        "sinkshare": lambda numbers: ops.SinkShare(*numbers),
    }


class _TooFineError(Exception):
    """A map that no memory holds."""


def _top_k(k: int, *, longest: int | None) -> Probe:
    from regard.ops import TopK

    return TopK(k if longest is None else min(k, longest))


def _heat_map(numbers: Sequence[int], total: int | None) -> Probe:
    from regard.ops import HeatMap

    rows, columns = numbers
    if max(rows, columns) > _MOST_BINS:
        raise _TooFineError(f"--probes heatmap must be at most {_MOST_BINS}x{_MOST_BINS}, but is {rows}x{columns}.")
    return HeatMap(rows, columns, length=total)


def _refuse() -> NoReturn:
    raise ValueError("takes no numbers")
