"""Scaled dot-product attention and multi-head attention as modules."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.nn.cache import LayerCache
from regard.nn.initial import reset_linear
from regard.nn.inputs import check_sequence
from regard.nn.options import check_options
from regard.nn.places import Places
from regard.nn.position_bias import ALiBi, RelativeBias
from regard.nn.rotary import Rotary
from regard.ops import ALiBi as AlibiRule
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


class Heads(NamedTuple):
    """What ``attend`` is given for one call of a module.

    Args:
        query: Projected and split; rotated where positions are rotary.
        key: The same, cached keys before the new ones.
        value: Projected and split.
        bias: What positions add to the scores.
        q_start: Position of the first query, or "end".
        kv_start: Position of the first key.
    """

    query: Float[Tensor, "batch num_heads q_len head_dim"]
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"]
    value: Float[Tensor, "batch num_kv_heads kv_len value_dim"]
    bias: AlibiRule | Tensor | None
    q_start: int | Literal["end"]
    kv_start: int


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each with its own projections, joined by one more.

        head_h = attend(query W_h^Q, key W_h^K, value W_h^V),   output = concat(head_1, …) W^O

    Args:
        d_model: Width of the queries and of the output.
        num_heads: Query heads; must divide ``d_model`` unless ``head_dim`` is given.
        num_kv_heads: Heads of keys and values; must divide ``num_heads``, which is the default.
        kv_dim: Width of the keys and values, ``d_model`` by default; a pair if they differ.
        head_dim: Width of a head's queries and keys; ``d_model / num_heads`` by default.
        value_dim: Width of a head's values; ``head_dim`` by default.
        bias: Whether the projections add a bias.
        scale: Multiplies q·k; head_dim^−½ by default.
        positions: ``Rotary``, ``ALiBi`` or ``RelativeBias``; one module may serve many layers.
        sinks: Whether every head has one more logit, learned, whose value is zero.
        dropout_p: Share of the weights dropped from the output in training; what is returned is before dropout.

    Raises:
        ShapeError: if the heads do not divide evenly.
        ConfigError: if a size is below 1, ``dropout_p`` is not between 0 and 1, or ``positions`` is no position scheme
            for attention, or one of another number of heads.

    Source:
        Vaswani et al. 2017, section 3.2.2; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        kv_dim: int | tuple[int, int] | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        positions: Rotary | ALiBi | RelativeBias | None = None,
        sinks: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        key_width, value_width = kv_dim if isinstance(kv_dim, tuple) else (d_model if kv_dim is None else kv_dim,) * 2
        given = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "value_dim": value_dim}
        widths = {"d_model": d_model, "kv_dim": key_width}
        if isinstance(kv_dim, tuple):
            widths["kv_dim[1]"] = value_width
        check_options(
            "MultiHeadAttention",
            {**widths, "num_heads": num_heads, **{name: size for name, size in given.items() if size is not None}},
            shares={"dropout_p": dropout_p},
        )
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None:
            _need_multiple("d_model", d_model, "num_heads", num_heads)
        _need_multiple("num_heads", num_heads, "num_kv_heads", self.num_kv_heads)
        _need_positions(positions, num_heads)
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        self.scale, self.dropout_p, self.positions = scale, dropout_p, positions
        self.query = nn.Linear(d_model, num_heads * self.head_dim, bias=bias)
        self.key = nn.Linear(key_width, self.num_kv_heads * self.head_dim, bias=bias)
        self.value = nn.Linear(value_width, self.num_kv_heads * self.value_dim, bias=bias)
        self.output = nn.Linear(num_heads * self.value_dim, d_model, bias=bias)
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every projection anew: Glorot-uniform weights, zero biases and sinks."""
        reset_linear(self.query, self.key, self.value, self.output)
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def forward(
        self,
        query: Float[Tensor, "batch q_len d_model"],
        key: Float[Tensor, "batch kv_len key_width"] | None = None,
        value: Float[Tensor, "batch kv_len value_width"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        need_weights: bool = False,
        kv_cache: LayerCache | None = None,
        places: Places | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: Batch first, always.
            key: ``query`` by default (self-attention).
            value: ``key`` by default.
            mask: A mask (``Causal() & Padding(keep)``), or a tensor in which only exact 0 (False) blocks. With a cache
                its keys are those of the cache and the new ones.
            need_weights: Whether to return the weights too; the output and its gradient stay the same.
            kv_cache: What the layer has kept. Without ``key`` the new tokens are appended to it; with ``key`` (another
                sequence) its projection is kept at the first call and used at later ones.
            places: Where the tokens stand in each row, for ``positions``; by default where they stand in the tensor.

        Returns:
            The output [batch, q_len, d_model]; with ``need_weights`` also the weights per head
            [batch, num_heads, q_len, kv_len] in float32, before dropout.

        Raises:
            ShapeError: a shape does not fit.
            DTypeError: ``mask`` is neither a mask nor a tensor, or a dtype is not accepted.

        Cost:
            Linear memory; quadratic with ``need_weights``.
        """
        heads = self.heads(query, key, value, kv_cache=kv_cache, places=places)
        options: dict[str, Any] = {
            "mask": as_mask("MultiHeadAttention", mask),
            "bias": heads.bias,
            "scale": self.scale,
            "sinks": self.sinks,
            "q_start": heads.q_start,
            "kv_start": heads.kv_start,
        }
        dropout_p = self.dropout_p if self.training else 0.0
        context = attend(heads.query, heads.key, heads.value, dropout_p=dropout_p, **options)
        output = self.join(context)
        return (output, weights(heads.query, heads.key, **options)) if need_weights else output

    def join(self, context: Float[Tensor, "batch num_heads q_len value_dim"]) -> Float[Tensor, "batch q_len d_model"]:
        """Lay the heads side by side and project them: everything after attention itself."""
        output: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return output

    def heads(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        kv_cache: LayerCache | None = None,
        places: Places | None = None,
    ) -> Heads:
        """Project, split into heads and place: everything before attention itself. Arguments as for a call."""
        to_queries = self.query
        _check("query", query, to_queries)
        if kv_cache is not None and not isinstance(kv_cache, LayerCache):
            problem = must_be("kv_cache", "the LayerCache of one layer", f"a {type(kv_cache).__name__}")
            raise DTypeError(message("MultiHeadAttention", problem, hint="KeyValueCache().layer(index) is one"))
        if places is not None:
            _need_rows(places, query)
        queries = split(to_queries(query), self.num_heads)
        if kv_cache is not None and kv_cache.source is not None:
            return Heads(queries, *kv_cache.source, None, "end", 0)
        if key is not None and key is not query:
            return self._heads_of_two(queries, key, value, kv_cache)
        to_keys, to_values, positions = self.key, self.value, self.positions
        value = query if value is None else value
        # the query, which is the key and mostly the value, too, has been looked at: only widths may differ
        if to_keys.in_features != query.shape[2]:
            _check("key", query, to_keys)
        if value is not query or to_values.in_features != query.shape[2]:
            _check("value", value, to_values)
        keys, values = split(to_keys(query), self.num_kv_heads), split(to_values(value), self.num_kv_heads)
        start = 0 if kv_cache is None else kv_cache.length
        if isinstance(positions, Rotary):
            if places is None:
                turns = positions.turns_from(start, query.shape[1], dtype=queries.dtype, device=query.device)
            else:
                turns = places.turns(positions, queries.dtype)
            queries, keys = positions.turn(queries, turns), positions.turn(keys, turns)
        kv_start = 0
        if kv_cache is not None:
            keys, values, kv_start = kv_cache.append(keys, values)
        if places is not None and isinstance(positions, ALiBi | RelativeBias):
            return Heads(queries, keys, values, places.bias(positions), start, kv_start)
        bias = self._bias(start, query.shape[1], kv_start, keys.shape[2], device=query.device)
        return Heads(queries, keys, values, bias, start, kv_start)

    def _heads_of_two(self, queries: Tensor, key: Tensor, value: Tensor | None, kv_cache: LayerCache | None) -> Heads:
        """Heads of a call whose keys are another sequence."""
        if self.positions is not None:
            problem = must_be("key", "None, as `positions` are for self-attention", f"of shape {tuple(key.shape)}")
            raise ConfigError(message("MultiHeadAttention", problem))
        value = key if value is None else value
        _check("key", key, self.key)
        _check("value", value, self.value)
        keys, values = split(self.key(key), self.num_kv_heads), split(self.value(value), self.num_kv_heads)
        if kv_cache is not None:
            kv_cache.source = keys, values
        return Heads(queries, keys, values, None, "end", 0)

    def _bias(
        self, q_start: int, q_len: int, kv_start: int, kv_len: int, *, device: torch.device
    ) -> AlibiRule | Tensor | None:
        if isinstance(self.positions, ALiBi):
            return self.positions.rule(device)
        if isinstance(self.positions, RelativeBias):
            queries = torch.arange(q_start, q_start + q_len, device=device)
            keys = torch.arange(kv_start, kv_start + kv_len, device=device)
            bias: Tensor = self.positions(queries, keys)
            return bias
        return None

    def extra_repr(self) -> str:
        """Show the heads in ``print(module)``."""
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, dropout_p={self.dropout_p}"


def split(joined: Float[Tensor, "batch length width"], heads: int) -> Float[Tensor, "batch heads length head_dim"]:
    """Give every head its part of the features."""
    batch, length, width = joined.shape
    return joined.view(batch, length, heads, width // heads).transpose(1, 2)


def _need_positions(positions: object, num_heads: int) -> None:
    if not isinstance(positions, Rotary | ALiBi | RelativeBias | None):
        found = f"a {type(positions).__name__}"
        hint = "SinusoidalPositions and LearnedPositions are added to the embeddings, before the first layer"
        problem = must_be("positions", "Rotary, ALiBi, RelativeBias or None", found)
        raise ConfigError(message("MultiHeadAttention", problem, hint=hint))
    if isinstance(positions, ALiBi | RelativeBias) and positions.num_heads != num_heads:
        name = type(positions).__name__
        problem = must_be("positions", f"{name} of num_heads ({num_heads})", f"of {positions.num_heads}")
        raise ConfigError(message("MultiHeadAttention", problem))


def _need_multiple(name: str, total: int, by: str, parts: int) -> None:
    if total % parts:
        raise ShapeError(message("MultiHeadAttention", must_be(name, f"a multiple of {by} ({parts})", total)))


def _check(name: str, given: Tensor, linear: nn.Linear) -> None:
    check_sequence("MultiHeadAttention", name, given, linear.in_features, linear.weight)


def _need_rows(places: Places, query: Tensor) -> None:
    rows, q_len = places.queries.shape
    if rows not in (1, query.shape[0]) or q_len != query.shape[1]:
        expected = f"of {query.shape[0]} row(s) of {query.shape[1]} new tokens"
        problem = must_be("places", expected, f"of shape {(rows, q_len)}")
        raise ShapeError(message("MultiHeadAttention", problem))


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
