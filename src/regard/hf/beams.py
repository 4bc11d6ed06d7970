"""Following a beam search: probe values move with the hypotheses they belong to."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import Cache

from regard.lens._session import Session


class BeamFollower:
    """Listens for caches being reordered and reorders what sessions gathered in the same step.

    Args:
        sessions_of: The sessions that know a module.
    """

    def __init__(self, sessions_of: Callable[[nn.Module], list[Session]]) -> None:
        self._sessions_of = sessions_of
        self._latest = threading.local()
        self._reorder: Any = None

    def latest(self, module: nn.Module) -> None:
        """Remember which module attended last in this thread: a reordering that follows belongs to its model."""
        self._latest.module = module

    def listen(self) -> None:
        """Begin to listen."""
        original = self._reorder = Cache.__dict__["reorder_cache"]
        follower = self

        @functools.wraps(original)
        def reorder_cache(self: Cache, beam_idx: Tensor) -> Any:
            follower._follow(beam_idx)
            return original(self, beam_idx)

        Cache.reorder_cache = reorder_cache  # type: ignore[method-assign]

    def unlisten(self) -> None:
        """Leave everything as it was."""
        Cache.reorder_cache = self._reorder  # type: ignore[method-assign]

    def _follow(self, beam_idx: Tensor) -> None:
        module = getattr(self._latest, "module", None)
        for session in self._sessions_of(module) if module is not None else []:
            session.reorder(beam_idx)
