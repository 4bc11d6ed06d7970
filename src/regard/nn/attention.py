"""Scaled dot-product attention and multi-head attention as modules."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.ops import Mask, attend, weights
from regard.ops.transforms import is_free_to_look_at


class ScaledDotProductAttention(nn.Module):
    """Attention as the textbook writes it: output and weights, always both.

        weights = softmax(query · keyᵀ / √d_k where the mask is not 0),   output = weights @ value

    Args:
        d_k: Width of queries and keys.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.d_k = d_k

    def forward(
        self,
        query: Float[Tensor, "*batch q_len d_k"],
        key: Float[Tensor, "*batch kv_len d_k"],
        value: Float[Tensor, "*batch kv_len value_dim"],
        mask: Mask | Tensor | None = None,
    ) -> tuple[Float[Tensor, "*batch q_len value_dim"], Float[Tensor, "*batch q_len kv_len"]]:
        """Attend.

        Args:
            query: 3-D [batch, q_len, d_k] or 4-D [batch, heads, q_len, d_k].
            key: As many dimensions as ``query``.
            value: As many dimensions as ``query``.
            mask: A mask, or a tensor in which only exact 0 (False) blocks; 2-D [q_len, kv_len], 3-D
                [batch, q_len, kv_len] or broadcastable to four dimensions.

        Returns:
            The output, and the weights in float32 (float64 for float64); a query that may see nothing has zeros in
            both.

        Raises:
            ShapeError: the width of ``query`` is not ``d_k``, or shapes do not fit each other.
            DTypeError: ``mask`` is neither a mask nor a tensor, or a dtype is not accepted.

        Cost:
            Quadratic memory: the weights are returned whole.
        """
        if query.dim() not in (3, 4) or query.shape[-1] != self.d_k:
            expected = f"of shape [batch, q_len, {self.d_k}] or [batch, heads, q_len, {self.d_k}]"
            problem = must_be("query", expected, f"of shape {tuple(query.shape)}")
            raise ShapeError(message("ScaledDotProductAttention", problem))
        single = query.dim() == 3
        if single:
            query, key, value = query[:, None], key[:, None], value[:, None]
        allowed = as_mask("ScaledDotProductAttention", mask)
        output, seen = attend(query, key, value, mask=allowed), weights(query, key, mask=allowed)
        return (output[:, 0], seen[:, 0]) if single else (output, seen)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each with its own projections, joined by one more.

        head_h = attend(query W_h^Q, key W_h^K, value W_h^V),   output = concat(head_1, …) W^O

    Args:
        d_model: Width of the queries and of the output.
        num_heads: Query heads; must divide ``d_model``.
        num_kv_heads: Heads of keys and values; must divide ``num_heads``, which is the default.
        kv_dim: Width of the keys and values; ``d_model`` by default.
        bias: Whether the projections add a bias.
        dropout_p: Share of the weights dropped from the output in training; what is returned is before dropout.

    Raises:
        ShapeError: if the heads do not divide evenly.
        ConfigError: if ``dropout_p`` is not between 0 and 1.

    Source:
        Vaswani et al. 2017, section 3.2.2; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        kv_dim: int | None = None,
        bias: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        for total, parts, names in (
            (d_model, num_heads, ("d_model", "num_heads")),
            (num_heads, kv_heads, ("num_heads", "num_kv_heads")),
        ):
            if parts < 1 or total % parts:
                problem = must_be(names[0], f"a multiple of {names[1]} ({parts})", total)
                raise ShapeError(message("MultiHeadAttention", problem))
        if not 0 <= dropout_p <= 1:
            raise ConfigError(message("MultiHeadAttention", must_be("dropout_p", "between 0 and 1", dropout_p)))
        self.num_heads, self.num_kv_heads, self.dropout_p = num_heads, kv_heads, dropout_p
        self.head_dim = d_model // num_heads
        width = d_model if kv_dim is None else kv_dim
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(width, kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(width, kv_heads * self.head_dim, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every projection anew: Glorot-uniform weights, zero biases."""
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        query: Float[Tensor, "batch q_len d_model"],
        key: Float[Tensor, "batch kv_len kv_dim"] | None = None,
        value: Float[Tensor, "batch kv_len kv_dim"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: Batch first, always.
            key: ``query`` by default (self-attention).
            value: ``key`` by default.
            mask: A mask (``Causal() & Padding(keep)``), or a tensor in which only exact 0 (False) blocks.
            need_weights: Whether to return the weights too; the output and its gradient stay the same.

        Returns:
            The output [batch, q_len, d_model]; with ``need_weights`` also the weights per head
            [batch, num_heads, q_len, kv_len] in float32, before dropout.

        Raises:
            ShapeError: a shape does not fit.
            DTypeError: ``mask`` is neither a mask nor a tensor, or a dtype is not accepted.

        Cost:
            Linear memory; quadratic with ``need_weights``.
        """
        key = query if key is None else key
        value = key if value is None else value
        for name, tensor, linear in (
            ("query", query, self.query),
            ("key", key, self.key),
            ("value", value, self.value),
        ):
            if tensor.dim() != 3 or tensor.shape[2] != linear.in_features:
                expected = f"of shape [batch, length, {linear.in_features}]"
                problem = must_be(name, expected, f"of shape {tuple(tensor.shape)}")
                hint = f"a single sequence is {name}[None]" if tensor.dim() == 2 else None
                raise ShapeError(message("MultiHeadAttention", problem, hint=hint))
        heads = self._split(self.query(query), self.num_heads)
        keys = self._split(self.key(key), self.num_kv_heads)
        values = self._split(self.value(value), self.num_kv_heads)
        allowed = as_mask("MultiHeadAttention", mask)
        dropout_p = self.dropout_p if self.training else 0.0
        joined = attend(heads, keys, values, mask=allowed, dropout_p=dropout_p).transpose(1, 2).flatten(2)
        output: Tensor = self.output(joined)
        return (output, weights(heads, keys, mask=allowed)) if need_weights else output

    def _split(self, joined: Tensor, heads: int) -> Tensor:
        """[batch, length, heads · head_dim] → [batch, heads, length, head_dim]."""
        batch, length, _ = joined.shape
        return joined.view(batch, length, heads, self.head_dim).transpose(1, 2)

    def extra_repr(self) -> str:
        """Show the heads in ``print(module)``."""
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, dropout_p={self.dropout_p}"


def as_mask(caller: str, mask: Mask | Tensor | None) -> Mask | Tensor | None:
    """Read a mask as textbooks write it: in a tensor of numbers only exact 0 blocks.

    Raises:
        DTypeError: if it is neither a mask nor a tensor, or holds negative numbers, as masks that are added do (there
            0 allows). Looked at only where that is free: eager mode, CPU.
    """
    if mask is None or isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):
        raise DTypeError(message(caller, must_be("mask", "a mask or a tensor", f"a {type(mask).__name__}")))
    if mask.dtype == torch.bool:
        return mask
    if is_free_to_look_at(mask) and bool((mask < 0).any()):
        problem = must_be("mask", "of zeros and ones, where 0 blocks", "one with negative numbers, as if it were added")
        raise DTypeError(message(caller, problem, hint="Allowed(mask == 0) if 0 means may attend"))
    return mask != 0
