"""Where tokens stand, where that is not where they stand in the tensor: rows with padding before or between them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError, message, must_be
from regard.nn.position_bias import ALiBi, RelativeBias
from regard.nn.rotary import Rotary, Turns


class Places:
    """Positions of every key of a call, row by row, for attentions that know positions.

    A model makes one for a call and hands it to all layers, which share what is computed from it. Without it a token's
    position is where it stands in the tensor, which is right for rows without padding, and costs less.

    Args:
        keys: Absolute position of each key, those of a cache included.
        q_len: How many of them, the last, are the new tokens, which ask; all by default.

    Raises:
        ShapeError: if ``keys`` is no [batch, kv_len].

    Cost:
        Biases are written out, for every row: quadratic memory. Rotary positions cost nothing more.

    Example:
        >>> import torch
        >>> from regard.nn import MultiHeadAttention, Places, Rotary
        >>> attention, x = MultiHeadAttention(8, 2, positions=Rotary(4)), torch.randn(1, 3, 8)
        >>> moved = attention(x, places=Places(torch.tensor([[7, 8, 9]])))
        >>> bool(torch.allclose(moved, attention(x), atol=1e-6))
        True
    """

    def __init__(self, keys: Int[Tensor, "batch kv_len"], q_len: int | None = None) -> None:
        if keys.dim() != 2:
            problem = must_be("keys", "of shape [batch, kv_len]", f"of shape {tuple(keys.shape)}")
            raise ShapeError(message("Places", problem))
        self.keys = keys
        self.queries = keys if q_len is None else keys[:, keys.shape[1] - q_len :]
        self._made: dict[Any, Any] = {}

    def turns(self, rotary: Rotary, dtype: torch.dtype) -> Turns:
        """Cosines and sines for the new tokens, computed for the first layer that asks."""
        asked = (rotary.dim, rotary.base, rotary.scaling, dtype)
        if asked not in self._made:
            self._made[asked] = rotary.turns(self.queries, torch.promote_types(dtype, torch.float32))
        turns: Turns = self._made[asked]
        return turns

    def bias(self, scheme: ALiBi | RelativeBias) -> Float[Tensor, "batch num_heads q_len kv_len"]:
        """What ``scheme`` adds to the scores, written out; that of ``ALiBi``, which learns nothing, only once."""
        if isinstance(scheme, RelativeBias):
            learned: Tensor = scheme(self.queries, self.keys)
            return learned
        if scheme.num_heads not in self._made:
            self._made[scheme.num_heads] = scheme(self.queries, self.keys)
        bias: Tensor = self._made[scheme.num_heads]
        return bias
