"""Adapters: how libraries that call attention in their own way are taught to a watch.

``regard.lens`` knows torch only. A package above it, such as ``regard.hf``, registers an adapter; it is imported when a
watched model contains a module of that library, so that neither the library nor the adapter is loaded for nothing.

Everything an adapter needs is here: it is attached to a ``Session``, hands it each call as an ``AttentionCall``, and
runs the model's own attention within ``quiet()``, so that the same call is not seen twice.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor, nn

from regard.lens._call import AttentionCall
from regard.lens._frames import quiet
from regard.lens._session import Session, changed_by
from regard.lens.kept import Output
from regard.ops import Mask

__all__ = [
    "Adapter",
    "AttentionCall",
    "KnownMask",
    "Output",
    "Session",
    "adapters_for",
    "changed_by",
    "quiet",
    "register_adapter",
]


@dataclass(frozen=True, eq=False)
class KnownMask:
    """What an adapter knows of a mask tensor that it saw being made.

    Args:
        mask: The mask as a value; None when everything is allowed.
        q_start: Absolute position of the first query.
        kv_start: Absolute position of the first key.
        kv_len: How many keys matter; later ones are masked for every query.
    """

    mask: Mask | None
    q_start: int
    kv_start: int
    kv_len: int


class Adapter(ABC):
    """One library's way in."""

    @abstractmethod
    def attach(self, session: Session, model: nn.Module) -> AbstractContextManager[object]:
        """Observe the session's model until the context ends; everything is as before afterwards."""

    @abstractmethod
    def known_mask(self, tensor: Tensor) -> KnownMask | None:
        """What is known about a mask tensor, if the library made it."""


# Library whose modules call for it → module of regard that registers the adapter when imported.
_PROVIDERS = {"transformers": "regard.hf"}
_registered: dict[str, Adapter] = {}


def register_adapter(library: str, adapter: Adapter) -> None:
    """Make an adapter known for models that contain modules of a library.

    Args:
        library: Top-level package name of the library.
        adapter: Replaces an earlier one of the same library.
    """
    _registered[library] = adapter


def adapters_for(model: nn.Module) -> tuple[Adapter, ...]:
    """The adapters of every library that the model's modules, or classes they derive from, come from."""
    roots = {base.__module__.partition(".")[0] for module in model.modules() for base in type(module).__mro__}
    for library in roots & _PROVIDERS.keys() - _registered.keys():
        importlib.import_module(_PROVIDERS[library])
    return tuple(_registered[library] for library in sorted(roots & _registered.keys()))
