"""A cache of transformers, as ``generate`` makes and reorders it, in the shape our models fill."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer, StaticLayer

from regard.errors import ConfigError, message, must_be
from regard.nn import CachedKeys, KeyValueCache, LayerCache


class TransformersCache(KeyValueCache):
    """Hands on to a ``Cache`` what our layers append: growing, static or sliding, and the pair of an encoder–decoder.

    Args:
        cache: What ``generate`` made; it owns the tensors and reorders them for beams.
        window: Keys a query may see, where the cache's layers slide.
    """

    def __init__(self, cache: Cache, *, window: int | None = None) -> None:
        super().__init__()
        self.cache = cache
        self.own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        slides = any(bool(getattr(layer, "is_sliding", False)) for layer in self.own.layers)
        self.window = window if slides else None

    def layer(self, index: int, part: Literal["self", "cross"] = "self") -> LayerCache:
        """What one attention of one layer keeps."""
        return _SourceLayer(self.cache, index) if part == "cross" else _GrowingLayer(self.own, index)

    @property
    def length(self) -> int:
        """How many tokens the model has seen."""
        return int(self.own.get_seq_length())


class _GrowingLayer(LayerCache):
    """One layer's attention within the text."""

    source: tuple[Tensor, Tensor] | None = None

    def __init__(self, cache: Cache, index: int) -> None:
        self.cache, self.index = cache, index
        self.length = int(cache.get_seq_length(index))

    def append(self, key: Tensor, value: Tensor) -> CachedKeys:
        """Take in new tokens; a static cache's room that is still empty is cut off."""
        end = self.length + key.shape[2]
        key, value = self.cache.update(key, value, self.index)
        key, value = key[:, :, :end], value[:, :, :end]
        self.length = end
        return CachedKeys(key, value, end - key.shape[2])


class _SourceLayer(LayerCache):
    """One layer's attention to another sequence, projected once."""

    length = 0

    def __init__(self, cache: Any, index: int) -> None:
        self.cache, self.index = cache, index

    @property
    def source(self) -> tuple[Tensor, Tensor] | None:
        """The projected keys and values, once there are any."""
        if not isinstance(self.cache, EncoderDecoderCache) or not self.cache.is_updated.get(self.index):
            return None
        kept: Any = self.cache.cross_attention_cache.layers[self.index]
        return kept.keys, kept.values

    @source.setter
    def source(self, projected: tuple[Tensor, Tensor] | None) -> None:
        if projected is not None and isinstance(self.cache, EncoderDecoderCache):
            cross: Any = self.cache.cross_attention_cache
            if self.index < len(cross.layers):
                cross.layers[self.index] = _whole(cross.layers[self.index], projected[0].shape[2])
            cross.update(*projected, self.index)
            self.cache.is_updated[self.index] = True


def _whole(layer: Any, length: int) -> Any:
    """The layer, or one of its kind that keeps a source of this length, all of it and nothing else.

    transformers makes the layers for a source as it makes those for the text, which slide where there is a window.
    """
    slides, room = layer.is_sliding, getattr(layer, "max_cache_len", None)
    if room is not None:
        return StaticLayer(length) if slides or room != length else layer
    return DynamicLayer() if slides else layer


def transformers_cache(caller: str, cache: Any, config: Any) -> TransformersCache | None:
    """What our models fill, for a cache that a wrapper was given.

    Raises:
        ConfigError: it is no cache of transformers.
    """
    if cache is None:
        return None
    if not isinstance(cache, Cache):
        problem = must_be("cache", "a Cache of transformers", f"a {type(cache).__name__}")
        hint = "a KeyValueCache is for the model inside: `model.model`" if isinstance(cache, KeyValueCache) else None
        raise ConfigError(message(caller, problem, hint=hint))
    return TransformersCache(cache, window=config.window)
