"""The attentions that recurrent models were given: additive scores, and dot products of two widths."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import ShapeError, message, must_be
from regard.nn.attention import as_mask
from regard.nn.initial import reset_linear
from regard.nn.inputs import check_floats, check_sequence
from regard.nn.options import check_options
from regard.ops import Mask, attend, dense_mask, weights

Score = Literal["dot", "general"]


class AdditiveAttention(nn.Module):
    """Attention whose scores come from a small network instead of a product.

        score_ij = v · tanh(W query_i + U key_j),   weights = softmax_j(score),   output = weights @ value

    Args:
        query_dim: Width of queries (the decoder's state).
        key_dim: Width of keys (the encoder's states).
        attention_dim: Width of the network between them.

    Raises:
        ConfigError: if a width is below 1.

    Numerics:
        Sum, tanh, scores and softmax in float32 (float64 for float64), under autocast too. What no query may see has
        no influence, NaN and Inf included, forward and backward.

    Cost:
        batch · q_len · kv_len · attention_dim numbers are kept for the gradient: for short inputs, or for one query
        at a time as a decoder asks.

    Source:
        Bahdanau, Cho and Bengio 2015, arXiv:1409.0473, equations 5 and 6 and appendix A.1.2.

    Example:
        >>> import torch
        >>> attention = AdditiveAttention(3, 5, 4)
        >>> output, weights = attention(torch.zeros(2, 1, 3), torch.zeros(2, 6, 5))
        >>> tuple(output.shape), tuple(weights.shape)
        ((2, 1, 5), (2, 1, 6))
    """

    def __init__(self, query_dim: int, key_dim: int, attention_dim: int) -> None:
        super().__init__()
        widths = {"query_dim": query_dim, "key_dim": key_dim, "attention_dim": attention_dim}
        check_options("AdditiveAttention", widths)
        self.query = nn.Linear(query_dim, attention_dim, bias=False)
        self.key = nn.Linear(key_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every weight anew: Glorot-uniform."""
        reset_linear(self.query, self.key, self.score)

    def project(self, key: Float[Tensor, "batch kv_len key_dim"]) -> Float[Tensor, "batch kv_len attention_dim"]:
        """U key, which a decoder computes once and hands to ``forward`` at every step."""
        projected: Tensor = self.key(key)
        return projected

    def forward(
        self,
        query: Float[Tensor, "batch q_len query_dim"],
        key: Float[Tensor, "batch kv_len key_dim"],
        value: Float[Tensor, "batch kv_len value_dim"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        projected: Float[Tensor, "batch kv_len attention_dim"] | None = None,
    ) -> tuple[Float[Tensor, "batch q_len value_dim"], Float[Tensor, "batch q_len kv_len"]]:
        """Attend.

        Args:
            query: Batch first, always.
            key: What is scored.
            value: What is averaged; ``key`` by default.
            mask: A mask (``Padding(keep)``), or a tensor in which only exact 0 (False) blocks.
            projected: ``project(key)``, if it is known already; then nothing behind the mask may be NaN or Inf.

        Returns:
            The output, and the weights in float32 (float64 for float64); a query that may see nothing has zeros in
            both, and gives no gradient.

        Raises:
            ShapeError: a shape does not fit.
            DTypeError: a dtype does not fit, or ``mask`` is neither a mask nor a tensor.
        """
        value = key if value is None else value
        widths = self.query.in_features, self.key.in_features
        _check_shapes("AdditiveAttention", query, key, value, *widths, self.query.weight)
        if projected is not None:
            _check_projected("AdditiveAttention", projected, key, self.key.out_features)
        allowed = None
        if (given := as_mask("AdditiveAttention", mask)) is not None:
            allowed, unseen = _allowed(given, query, key)
            key, value = key.masked_fill(unseen, 0), value.masked_fill(unseen, 0)
        projected = self.project(key) if projected is None else projected
        found = self.weigh(query, projected, allowed)
        return found.to(value.dtype) @ value, found

    def weigh(self, query: Tensor, projected: Tensor, allowed: Tensor | None) -> Float[Tensor, "batch q_len kv_len"]:
        """The weights alone, from projected keys and a filled-in mask, unchecked: what a decoder repeats.

        Args:
            query: [batch, q_len, query_dim].
            projected: ``project(key)``.
            allowed: True where a query may see a key, broadcastable to [batch, q_len, kv_len].
        """
        asked = self.query(query)
        with torch.autocast(query.device.type, enabled=False):
            dtype = torch.promote_types(self.score.weight.dtype, torch.float32)
            hidden = (asked.to(dtype)[:, :, None] + projected.to(dtype)[:, None]).tanh()
            scores = functional.linear(hidden, self.score.weight.to(dtype))[..., 0]
        return masked_softmax(scores, allowed)


class DotAttention(nn.Module):
    """Attention of one head as recurrent decoders use it: a product of query and key, unscaled.

        dot      score_ij = query_i · key_j
        general  score_ij = query_i · W key_j
        weights = softmax_j(score),   output = weights @ value

    Args:
        query_dim: Width of queries (the decoder's state).
        key_dim: Width of keys (the encoder's states).
        score: "dot" needs both widths equal and learns nothing; "general" learns W.

    Raises:
        ConfigError: if a width is below 1, the score is unknown, or "dot" is given two widths.

    Numerics:
        As ``regard.attend``, which it calls: scores and softmax in float32 (float64 for float64).

    Source:
        Luong, Pham and Manning 2015, arXiv:1508.04025, section 3.1.

    Example:
        >>> import torch
        >>> attention = DotAttention(3, 5, score="general")
        >>> output, weights = attention(torch.zeros(2, 1, 3), torch.zeros(2, 4, 5))
        >>> weights[0, 0].tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, query_dim: int, key_dim: int, *, score: Score = "dot") -> None:
        super().__init__()
        problems = []
        if score not in get_args(Score):
            problems.append(must_be("score", '"dot" or "general"', repr(score)))
        elif score == "dot" and query_dim != key_dim:
            problems.append(must_be("key_dim", f'query_dim ({query_dim}) for score="dot"', key_dim))
        check_options("DotAttention", {"query_dim": query_dim, "key_dim": key_dim}, more=problems)
        self.query_dim, self.key_dim = query_dim, key_dim
        self.key = nn.Linear(key_dim, query_dim, bias=False) if score == "general" else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W anew, if there is one: Glorot-uniform."""
        if isinstance(self.key, nn.Linear):
            reset_linear(self.key)

    def project(self, key: Float[Tensor, "batch kv_len key_dim"]) -> Float[Tensor, "batch kv_len query_dim"]:
        """W key, which a decoder computes once and hands to ``forward`` at every step."""
        projected: Tensor = self.key(key)
        return projected

    def forward(
        self,
        query: Float[Tensor, "batch q_len query_dim"],
        key: Float[Tensor, "batch kv_len key_dim"],
        value: Float[Tensor, "batch kv_len value_dim"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        projected: Float[Tensor, "batch kv_len query_dim"] | None = None,
    ) -> tuple[Float[Tensor, "batch q_len value_dim"], Float[Tensor, "batch q_len kv_len"]]:
        """Attend.

        Args:
            query: Batch first, always.
            key: What is scored.
            value: What is averaged; ``key`` by default.
            mask: A mask (``Padding(keep)``), or a tensor in which only exact 0 (False) blocks.
            projected: ``project(key)``, if it is known already.

        Returns:
            The output, and the weights in float32 (float64 for float64); a query that may see nothing has zeros in
            both, and gives no gradient.

        Raises:
            ShapeError: a shape does not fit.
            DTypeError: a dtype does not fit, or ``mask`` is neither a mask nor a tensor.
        """
        value = key if value is None else value
        weight = self.key.weight if isinstance(self.key, nn.Linear) else query
        _check_shapes("DotAttention", query, key, value, self.query_dim, self.key_dim, weight)
        if projected is not None:
            _check_projected("DotAttention", projected, key, self.query_dim)
        allowed = as_mask("DotAttention", mask)
        if allowed is not None and projected is None and isinstance(self.key, nn.Linear):
            # attend keeps what is unseen out of scores; the gradient of W would still meet it
            key = key.masked_fill(_allowed(allowed, query, key)[1], 0)
        keys = (self.project(key) if projected is None else projected)[:, None]
        one_head = query[:, None]
        output = attend(one_head, keys, value[:, None], mask=allowed, scale=1.0)[:, 0]
        return output, weights(one_head, keys, mask=allowed, scale=1.0)[:, 0]

    def weigh(self, query: Tensor, projected: Tensor, allowed: Tensor | None) -> Float[Tensor, "batch q_len kv_len"]:
        """The weights alone, from projected keys and a filled-in mask, unchecked: what a decoder repeats.

        Args:
            query: [batch, q_len, query_dim].
            projected: ``project(key)``.
            allowed: True where a query may see a key, broadcastable to [batch, q_len, kv_len].
        """
        with torch.autocast(query.device.type, enabled=False):
            dtype = torch.promote_types(query.dtype, torch.float32)
            scores = query.to(dtype) @ projected.to(dtype).mT
        return masked_softmax(scores, allowed)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the last axis of what is allowed; a row that may see nothing is zeros, with zero gradient."""
    if allowed is None:
        return scores.softmax(-1)
    # the lowest number instead of −inf: an empty row is then finite all the way, and emptied at the end
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0)


def _allowed(mask: Mask | Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """The mask filled in, [batch or 1, q_len, kv_len], and the keys that no query may see, [batch or 1, kv_len, 1]."""
    allowed = dense_mask(mask, (query.shape[0], 1, query.shape[1], key.shape[1]), device=query.device)[:, 0]
    return allowed, ~allowed.any(dim=1)[..., None]


def _check_shapes(
    caller: str, query: Tensor, key: Tensor, value: Tensor, query_dim: int, key_dim: int, weight: object
) -> None:
    check_sequence(caller, "query", query, query_dim, weight)
    check_sequence(caller, "key", key, key_dim, weight)
    check_floats(caller, "value", value, weight)
    if key.shape[0] != query.shape[0]:
        problem = f"`key` must have the batch of `query` ({query.shape[0]}), but has {key.shape[0]}."
        raise ShapeError(message(caller, problem))
    if value.dim() != 3 or value.shape[:2] != key.shape[:2]:
        expected = f"of shape [batch, kv_len, value_dim] with {tuple(key.shape[:2])} of `key`"
        raise ShapeError(message(caller, must_be("value", expected, f"of shape {tuple(value.shape)}")))


def _check_projected(caller: str, projected: Tensor, key: Tensor, width: int) -> None:
    check_floats(caller, "projected", projected, None)
    expected = (*key.shape[:2], width)
    if tuple(projected.shape) != expected:
        problem = must_be("projected", f"of shape {expected}, as project(key) is", f"of shape {tuple(projected.shape)}")
        raise ShapeError(message(caller, problem))
