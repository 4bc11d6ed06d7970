"""Attention for PyTorch that runs at full speed and can be looked into.

    out = regard.attend(q, k, v, mask=regard.Causal())                          exact attention
    out, seen = regard.observe(q, k, v, [regard.Entropy(), regard.TopK(4)])      the same and probes of its weights
    with regard.watch(model) as seen: model(**inputs)                           probes of a model you already have
    regard.look(seen, tokens=[...])                                             a page that shows where attention went

Names are loaded when they are first used: importing ``regard`` imports neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` would cost more than all the rest here

if TYPE_CHECKING:
    from regard.errors import BackendUnavailableError as BackendUnavailableError
    from regard.errors import ConfigError as ConfigError
    from regard.errors import DTypeError as DTypeError
    from regard.errors import Error as Error
    from regard.errors import FormatError as FormatError
    from regard.errors import ShapeError as ShapeError
    from regard.errors import UnsupportedError as UnsupportedError
    from regard.lens import BlockSpans as BlockSpans
    from regard.lens import ForceWeights as ForceWeights
    from regard.lens import SilenceHeads as SilenceHeads
    from regard.lens.watch import watch as watch
    from regard.ops import ALiBi as ALiBi
    from regard.ops import Allowed as Allowed
    from regard.ops import Blocked as Blocked
    from regard.ops import Causal as Causal
    from regard.ops import Documents as Documents
    from regard.ops import Mask as Mask
    from regard.ops import Observation as Observation
    from regard.ops import Padding as Padding
    from regard.ops import Prefix as Prefix
    from regard.ops import SlidingWindow as SlidingWindow
    from regard.ops import Where as Where
    from regard.ops import attend as attend
    from regard.ops import explain_backend as explain_backend
    from regard.ops import observe as observe
    from regard.ops import weights as weights
    from regard.ops.probes import Crop as Crop
    from regard.ops.probes import Distance as Distance
    from regard.ops.probes import Entropy as Entropy
    from regard.ops.probes import FirstKeys as FirstKeys
    from regard.ops.probes import HeatMap as HeatMap
    from regard.ops.probes import KeyMass as KeyMass
    from regard.ops.probes import LogSumExp as LogSumExp
    from regard.ops.probes import MatchMass as MatchMass
    from regard.ops.probes import OffsetMass as OffsetMass
    from regard.ops.probes import Probe as Probe
    from regard.ops.probes import Rows as Rows
    from regard.ops.probes import SinkShare as SinkShare
    from regard.ops.probes import SpanMass as SpanMass
    from regard.ops.probes import TopK as TopK
    from regard.view import look as look

_HOMES = {
    "regard.ops": (
        *("attend", "explain_backend", "observe", "weights", "Observation"),
        *("ALiBi", "Allowed", "Blocked", "Causal", "Documents", "Mask", "Padding", "Prefix", "SlidingWindow", "Where"),
    ),
    "regard.ops.probes": (
        *("Crop", "Distance", "Entropy", "FirstKeys", "HeatMap", "KeyMass", "LogSumExp", "MatchMass", "OffsetMass"),
        *("Probe", "Rows", "SinkShare", "SpanMass", "TopK"),
    ),
    "regard.lens": ("BlockSpans", "ForceWeights", "SilenceHeads"),
    "regard.lens.watch": ("watch",),
    "regard.view": ("look",),
    "regard.errors": (
        *("BackendUnavailableError", "ConfigError", "DTypeError", "Error", "FormatError", "ShapeError"),
        "UnsupportedError",
    ),
}
_PACKAGES = ("bench", "errors", "hf", "lens", "models", "nn", "ops", "records", "text", "train", "view")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    """Import a package that is asked for, or the module a public name lives in, once, and keep the name here."""
    home = _HOME_OF.get(name)
    if name in _PACKAGES:
        return import_module(f"regard.{name}")
    if home is None:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
