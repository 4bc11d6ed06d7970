"""A stack of layers that reads."""

from __future__ import annotations

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, message, must_be
from regard.nn.block import EncoderLayer
from regard.nn.places import Places
from regard.ops import Mask


class Encoder(nn.Module):
    """Encoder layers one after the other.

    Args:
        layers: Each with parameters of its own (a layer given twice shares them).
        norm: Applied last: what pre-norm layers need, and post-norm layers do not.

    Raises:
        ConfigError: if there is no layer.

    Example:
        >>> import torch
        >>> from regard.nn import Encoder, EncoderLayer, FeedForward, MultiHeadAttention
        >>> layers = [EncoderLayer(MultiHeadAttention(64, 4), FeedForward(64, 256)) for _ in range(2)]
        >>> Encoder(layers, norm=torch.nn.LayerNorm(64))(torch.randn(2, 7, 64)).shape
        torch.Size([2, 7, 64])
    """

    def __init__(self, layers: Iterable[EncoderLayer], *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if not self.layers:
            raise ConfigError(message("Encoder", "`layers` must hold at least one layer, but is empty."))
        if not isinstance(norm, nn.Module | None):
            raise ConfigError(message("Encoder", must_be("norm", "a module or None", repr(norm))))
        self.norm = norm

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | Tensor | None = None,
        *,
        places: Places | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Read.

        Args:
            x: Embeddings, positions included where they are absolute.
            mask: The same for every layer: usually ``Padding(keep)``.
            places: Where the tokens stand in each row, for attentions with positions of their own.
        """
        for layer in self.layers:
            x = layer(x, mask, places=places)
        return x if self.norm is None else self.norm(x)
