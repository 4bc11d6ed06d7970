"""What a model without attention remembers of a text, in the shape in which ``generate`` carries a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import Cache

from regard.errors import ConfigError, UnsupportedError, message, must_be

Select = Callable[[Any, Tensor], Any]
"""(state, rows) → the state of these batch rows, in this order."""


class StateCache(Cache):
    """A state of fixed size that every call of the model replaces; beams reorder it.

    Args:
        select: How its rows are chosen.

    Attributes:
        state: Where the model is; None before the first token.
        length: How many tokens were read.
    """

    def __init__(self, select: Select) -> None:
        super().__init__(layers=[])
        self._select = select
        self.reset()

    @property
    def is_linear(self) -> list[bool]:
        """Not as transformers means it: prompts that were read before are left out by their length."""
        return [False]

    @property
    def is_croppable(self) -> bool:
        """Never."""
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens were read."""
        return self.length

    def reset(self) -> None:
        """Forget everything."""
        self.state: Any = None
        self.length = 0

    def put(self, state: Any, *, tokens: int) -> None:
        """Take the state after some more tokens."""
        self.state = state
        self.length += tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        if self.state is not None:
            self.state = self._select(self.state, beam_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: the state of some tokens ago is gone."""
        raise _impossible("crop")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refused: nothing of ours asks for it."""
        raise _impossible("batch_repeat_interleave")

    def batch_select_indices(self, indices: Tensor) -> None:
        """Refused: nothing of ours asks for it."""
        raise _impossible("batch_select_indices")


def _impossible(name: str) -> UnsupportedError:
    problem = "a state can be replaced and reordered, and no more."
    return UnsupportedError(message(f"StateCache.{name}", problem))


def check_cache(caller: str, cache: Any) -> None:
    """Refuse what is no state.

    Raises:
        ConfigError: names what it is.
    """
    if cache is not None and not isinstance(cache, StateCache):
        hint = "without attention there are no keys and values to keep; `model.new_cache()` makes what is kept"
        raise ConfigError(message(caller, must_be("cache", "a StateCache", f"a {type(cache).__name__}"), hint=hint))
