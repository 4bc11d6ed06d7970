"""A stack of layers that writes, and the pair of a reader and a writer."""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, message, must_be
from regard.nn.block import DecoderLayer
from regard.nn.cache import KeyValueCache, LayerCache
from regard.nn.encoder import Encoder
from regard.nn.places import Places
from regard.ops import Mask


class Decoder(nn.Module):
    """Decoder layers one after the other.

    Args:
        layers: Each with parameters of its own (a layer given twice shares them).
        norm: Applied last: what pre-norm layers need, and post-norm layers do not.

    Raises:
        ConfigError: if there is no layer.
    """

    def __init__(self, layers: Iterable[DecoderLayer], *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if not self.layers:
            raise ConfigError(message("Decoder", "`layers` must hold at least one layer, but is empty."))
        if not isinstance(norm, nn.Module | None):
            raise ConfigError(message("Decoder", must_be("norm", "a module or None", repr(norm))))
        self.norm = norm

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        memory: Float[Tensor, "batch source_len kv_dim"] | None = None,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        kv_cache: KeyValueCache | None = None,
        places: Places | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Write.

        Args:
            x: Embeddings, positions included where they are absolute; with a cache those of the new tokens.
            memory: The source as its encoder left it, for layers with ``cross``; with a cache needed once.
            mask: The same for every layer: usually ``Causal() & Padding(keep)``.
            memory_mask: For the attention to the source: usually ``Padding(keep)`` of the source.
            kv_cache: What the layers have kept; it is filled.
            places: Where the tokens stand in each row, for attentions with positions of their own.
        """
        for index, layer in enumerate(self.layers):
            caches: dict[str, LayerCache] = {}
            if kv_cache is not None:
                caches = {"kv_cache": kv_cache.layer(index), "memory_cache": kv_cache.layer(index, "cross")}
            x = layer(x, memory, mask, memory_mask, places=places, **caches)
        return x if self.norm is None else self.norm(x)


class EncoderDecoder(nn.Module):
    """A stack that reads a source and a stack that writes with it in view.

    Args:
        encoder: Reads the source.
        decoder: Writes the target; its layers have ``cross``.

    Source:
        Vaswani et al. 2017, figure 1.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self,
        source: Float[Tensor, "batch source_len d_model"],
        target: Float[Tensor, "batch target_len d_model"],
        source_mask: Mask | Tensor | None = None,
        target_mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> Float[Tensor, "batch target_len d_model"]:
        """Read the source and write the target.

        Args:
            source: Embeddings of the source.
            target: Embeddings of the target so far.
            source_mask: Within the source: usually ``Padding(keep)``.
            target_mask: Within the target: usually ``Causal() & Padding(keep)``.
            memory_mask: From the target to the source: usually the ``source_mask`` again.
        """
        memory = self.encoder(source, source_mask)
        output: Tensor = self.decoder(target, memory, target_mask, memory_mask)
        return output
