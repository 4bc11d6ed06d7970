"""What attention layers keep of the tokens they have seen, so that the next token costs one row and not the square."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.nn.options import check_options


class CachedKeys(NamedTuple):
    """What the queries of one call attend to.

    Args:
        key: Keys so far, the new ones included.
        value: Values so far.
        start: Absolute position of the first key; above 0 once a sliding cache has dropped some.
    """

    key: Float[Tensor, "batch kv_heads kv_len head_dim"]
    value: Float[Tensor, "batch kv_heads kv_len value_dim"]
    start: int


class LayerCache:
    """The keys and values of one attention layer; this one grows, and each append copies what there was.

    ``length`` is how many tokens the layer has seen: the position of the next one. ``source`` holds the projected keys
    and values of another sequence, for a layer that attends to one: they are computed once and never grow.
    """

    def __init__(self) -> None:
        self.length = 0
        self.key: Tensor | None = None
        self.value: Tensor | None = None
        self.source: tuple[Tensor, Tensor] | None = None

    def append(
        self,
        key: Float[Tensor, "batch kv_heads new_len head_dim"],
        value: Float[Tensor, "batch kv_heads new_len value_dim"],
    ) -> CachedKeys:
        """Take in the keys and values of new tokens.

        Returns:
            What the queries of these tokens attend to, their own keys included.

        Raises:
            ShapeError: if the batch size changed, or a static cache is full.
        """
        end = self.length + key.shape[2]
        if self.key is not None and self.value is not None:
            _check_batch(key, self.key)
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value, self.length = key, value, end  # all at once: a refused call leaves the cache as it was
        return CachedKeys(key, value, end - key.shape[2])

    def reorder(self, beam_indices: Int[Tensor, "new_batch"]) -> None:
        """Go on with these batch rows, some perhaps twice."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key.index_select(0, beam_indices), self.value.index_select(0, beam_indices)
        if self.source is not None:
            key, value = self.source
            self.source = key.index_select(0, beam_indices), value.index_select(0, beam_indices)


class _Static(LayerCache):
    """Writes into room for ``max_len`` tokens, taken at the first append; what is returned is a view of it."""

    def __init__(self, max_len: int) -> None:
        super().__init__()
        self.max_len = max_len

    def append(self, key: Tensor, value: Tensor) -> CachedKeys:
        start, end = self.length, self.length + key.shape[2]
        if end > self.max_len:
            raise ShapeError(
                message("KeyValueCache", must_be("max_len", f"at least {end} for this text", self.max_len))
            )
        if self.key is None or self.value is None:
            with torch.inference_mode(False):  # room taken in inference mode could not be written to outside of it
                self.key = key.new_zeros(*key.shape[:2], self.max_len, key.shape[3])
                self.value = value.new_zeros(*value.shape[:2], self.max_len, value.shape[3])
        _check_batch(key, self.key)
        self.key[:, :, start:end], self.value[:, :, start:end] = key, value
        self.length = end
        return CachedKeys(self.key[:, :, :end], self.value[:, :, :end], 0)


class _Sliding(LayerCache):
    """Keeps the last ``window`` − 1 tokens: with the next one that makes ``window`` keys."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def append(self, key: Tensor, value: Tensor) -> CachedKeys:
        seen = super().append(key, value)
        drop = max(seen.key.shape[2] - (self.window - 1), 0)
        self.key, self.value = seen.key[:, :, drop:], seen.value[:, :, drop:]
        return seen


class KeyValueCache:
    """The keys and values of every attention layer of a model while it reads or writes a text piece by piece.

        cache = KeyValueCache()                  grows with the text
        cache = KeyValueCache(max_len=512)       static: room for 512 tokens, taken once
        cache = KeyValueCache(window=256)        sliding: the last 255 and the new one, for layers with that window

    A model takes it as ``kv_cache=`` and fills it: one call with a prompt and one with each new token give what one
    call with all tokens gives. A call that is refused leaves it as it was.

    Args:
        max_len: Tokens there is room for; None for no limit.
        window: Keys a query may see, its own included: the size of the ``SlidingWindow`` beside ``Causal``; None to
            keep all.

    Raises:
        ConfigError: if both are given, or one is less than 1.

    Cost:
        batch · num_kv_heads · length · (head_dim + value_dim) numbers per layer. An append to a growing or sliding
        cache copies what is kept, to a static one only what is new. A static cache is for inference: it is written in
        place.
    """

    def __init__(self, *, max_len: int | None = None, window: int | None = None) -> None:
        if max_len is not None and window is not None:
            raise ConfigError(message("KeyValueCache", must_be("max_len", "None where `window` is given", max_len)))
        given = {"max_len": max_len, "window": window}
        check_options("KeyValueCache", {name: size for name, size in given.items() if size is not None})
        self.max_len, self.window = max_len, window
        self.keep: Tensor | None = None  # which tokens so far are real, where the model has met padding
        self.layers: dict[tuple[int, str], LayerCache] = {}

    def layer(self, index: int, part: Literal["self", "cross"] = "self") -> LayerCache:
        """What one attention of one layer keeps, made when it is first asked for.

        Args:
            index: Number of the layer in its stack.
            part: Its attention to the text itself, or to another sequence.
        """
        if (index, part) not in self.layers:
            self.layers[index, part] = self._new()
        return self.layers[index, part]

    def _new(self) -> LayerCache:
        if self.max_len is not None:
            return _Static(self.max_len)
        return LayerCache() if self.window is None else _Sliding(self.window)

    @property
    def length(self) -> int:
        """How many tokens the model has seen: the position of the next one."""
        return max([0, *(layer.length for layer in self.layers.values())])

    @property
    def start(self) -> int:
        """Position of the first key that the next call will see; above 0 once a sliding cache has dropped some."""
        return 0 if self.window is None else max(self.length - (self.window - 1), 0)

    def reorder(self, beam_indices: Int[Tensor, "new_batch"]) -> None:
        """Go on with these batch rows, some perhaps twice, after a step of beam search.

        Args:
            beam_indices: For each row to come, the row it continues.
        """
        if self.keep is not None:
            self.keep = self.keep.index_select(0, beam_indices)
        for layer in self.layers.values():
            layer.reorder(beam_indices)


def _check_batch(new: Tensor, kept: Tensor) -> None:
    if new.shape[0] != kept.shape[0]:
        problem = f"a call with kv_cache must keep its batch size ({kept.shape[0]}), but has {new.shape[0]}."
        raise ShapeError(message("KeyValueCache", problem, hint="reorder(beam_indices) changes it"))
