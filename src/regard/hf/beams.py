"""Following a beam search: probe values move with the hypotheses they belong to.

Rows of a step belong to beam slots. After each step ``generate`` picks the hypotheses that go on and reorders the
cache; the layers of that step are reordered alike. Hypotheses that finish early are carried along, so that at the end
a layer's batch rows are the sequences that ``generate`` returns.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationMixin

from regard.lens.adapters import Session


@dataclass(eq=False)
class _Search:
    """One running beam search: which finished hypotheses are carried, by their history of slots, in which order."""

    sessions: list[Session]
    carried: dict[tuple[int, ...], int] = field(default_factory=dict)
    next_carried: dict[tuple[int, ...], int] = field(default_factory=dict)
    keep: Tensor | None = None


_listening: list[BeamFollower] = []


def is_followed() -> bool:
    """Whether a watch is open: it follows the searches of transformers, and those alone."""
    return bool(_listening)


class BeamFollower:
    """Listens to beam searches and to caches being reordered.

    Args:
        sessions_of: The sessions that know a module.
    """

    def __init__(self, sessions_of: Callable[[nn.Module], list[Session]]) -> None:
        self._sessions_of = sessions_of
        self._here = threading.local()
        self._originals: list[tuple[type, str, Any]] = []

    def latest(self, module: nn.Module) -> None:
        """Remember which module attended last in this thread: a reordering that follows belongs to its model."""
        self._here.module = module

    def listen(self) -> None:
        """Begin to listen."""
        _listening.append(self)
        self._replace(Cache, "reorder_cache", self._reordering)
        self._replace(GenerationMixin, "_beam_search", self._searching)
        self._replace(GenerationMixin, "_update_finished_beams", self._finishing)

    def unlisten(self) -> None:
        """Leave everything as it was."""
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals.clear()
        _listening.remove(self)

    def _replace(self, owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
        # _beam_search and _update_finished_beams are not public; without them only running hypotheses are followed
        original = owner.__dict__.get(name)
        if original is not None:
            self._originals.append((owner, name, original))
            setattr(owner, name, functools.wraps(original)(wrap(original)))

    def _reordering(self, original: Any) -> Any:
        def reorder_cache(cache: Cache, beam_idx: Tensor) -> Any:
            search: _Search | None = getattr(self._here, "search", None)
            if search is not None:
                for session in search.sessions:
                    session.reorder(beam_idx, search.keep)
                search.carried = search.next_carried
            elif (module := getattr(self._here, "module", None)) is not None:
                for session in self._sessions_of(module):
                    session.reorder(beam_idx)
            return original(cache, beam_idx)

        return reorder_cache

    def _searching(self, original: Any) -> Any:
        def _beam_search(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            before = getattr(self._here, "search", None)
            sessions = {id(each): each for module in model.modules() for each in self._sessions_of(module)}
            self._here.search = _Search(list(sessions.values()))
            try:
                result = original(model, *args, **kwargs)
                self._finish(kwargs.get("generation_config"))
                return result
            finally:
                self._here.search = before

        return _beam_search

    def _finish(self, config: Any) -> None:
        """Keep the hypotheses that are returned: the first of each batch item's finished ones."""
        search: _Search = self._here.search
        if search.keep is None or config is None:
            return
        beams, returned = config.num_beams, config.num_return_sequences
        live = search.keep.numel()  # as many finished hypotheses are carried as there are slots
        rows = torch.arange(live).view(-1, beams)[:, :returned].flatten() + live
        for session in search.sessions:
            session.finish(rows)

    def _finishing(self, original: Any) -> Any:
        def _update_finished_beams(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            search: _Search | None = getattr(self._here, "search", None)
            if search is not None and "cur_len" in kwargs:
                self._carry(search, result[2], kwargs["cur_len"] - kwargs["decoder_prompt_len"])
            return result

        return _update_finished_beams

    @staticmethod
    def _carry(search: _Search, beam_indices: Tensor, step: int) -> None:
        """Say where the rows of each finished hypothesis are now: in a slot of this step, or carried from before."""
        histories = [tuple(slot for slot in row if slot >= 0) for row in beam_indices.flatten(0, 1).tolist()]
        live = len(histories)
        rows = []
        for place, history in enumerate(histories):
            if len(history) == step + 1:
                rows.append(history[-1])
            else:
                rows.append(live + search.carried[history] if history in search.carried else place)
        search.keep = torch.tensor(rows)
        search.next_carried = {history: place for place, history in enumerate(histories) if history}
