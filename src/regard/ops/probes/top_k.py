"""The keys each query attends to most, in exact order, and how much of the row they leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._fused import Answer, Asked, Question
from regard.ops.probes._row import RowProbe, scaled, weighted_sum
from regard.ops.probes._select import largest, sum_without


@dataclass(frozen=True, eq=False)
class TopKValue:
    """The k keys with the largest weights of each query.

    Args:
        indices: Absolute key positions, the best first; −1 where fewer than k keys are allowed.
        weights: Their weights; 0 where there is no key.
        rest: Mass of the row outside these k keys, without the sink's share.
    """

    indices: Int[Tensor, "batch heads q k"]
    weights: Float[Tensor, "batch heads q k"]
    rest: Float[Tensor, "batch heads q"]


@dataclass(frozen=True)
class TopK(RowProbe):
    """Which keys a query attends to most: the k largest weights, where they are, and what is left.

    Ordered by score (logit, descending), then by lowest position. The order is that of the scores, so it is right even
    where weights underflow to the same zero. A NaN score counts as larger than any number.

    Args:
        k: How many keys per query.
        name: Name of the result; "top_k" if None.

    Numerics:
        ``rest`` adds up the weights that were left out (it is not 1 − Σ), so a small rest is accurate. Deterministic.

    Cost:
        For long rows one pass over the scores and one over the weights, and a small part of the strip in extra memory.
        Rows in which more keys share the last of the k scores than there is room for take another pass.
    """

    k: int
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.integer("k", least=1)
        arguments.done()

    def question(self, geometry: Geometry) -> Question:
        """The k largest, in order."""
        return Question(Asked.TOP_K, self.k)

    def answered(self, answer: Answer) -> TopKValue:
        """The same, by name."""
        assert answer.keys is not None
        assert answer.rest is not None
        return TopKValue(answer.keys, answer.values, answer.rest)

    def define(self, strip: Strip) -> TopKValue:
        """Sort every row stably, take the first k, add up the others."""
        scores, order = torch.sort(strip.logits, dim=-1, descending=True, stable=True)
        weights = strip.weights.gather(-1, order)
        chosen = order.masked_fill(scores == -torch.inf, -1)[..., : self.k]
        return self._value(strip, chosen, weights[..., self.k :].sum(-1))

    def rows(self, strip: Strip) -> TopKValue:
        """The same, by way of the largest of each group of keys."""
        chosen = largest(strip.logits, min(self.k, strip.logits.shape[-1]))
        return self._value(strip, chosen, sum_without(strip.weights, chosen))

    def _value(
        self, strip: Strip, chosen: Int[Tensor, "batch heads r k"], rest: Float[Tensor, "batch heads r"]
    ) -> TopKValue:
        """Look up the chosen columns, −1 for none, and fill up to k."""
        present = chosen >= 0
        weights = strip.weights.gather(-1, chosen.clamp(min=0))
        first = strip.geometry.kv_start + strip.key
        missing = (0, self.k - chosen.shape[-1])
        return TopKValue(
            indices=functional.pad(torch.where(present, chosen + first, -1), missing, value=-1),
            weights=functional.pad(torch.where(present, weights, 0), missing),
            rest=rest,
        )

    def merge(
        self,
        values: Sequence[TopKValue],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> TopKValue:
        """The largest of all shards' largest, by weight · share, then lowest position.

        Scores are not kept: keys whose weights underflow to zero in the whole row are ordered by position, and equal
        scores in different shards by the rounding of their shares.
        """
        indices = torch.cat([value.indices for value in values], dim=-1)
        weights = torch.cat([scaled(value.weights, share) for value, share in zip(values, shares, strict=True)], -1)
        by_position = indices.argsort(dim=-1)
        indices, weights = indices.gather(-1, by_position), weights.gather(-1, by_position)
        rank = torch.sort(torch.where(indices < 0, -1, weights), dim=-1, descending=True, stable=True).indices
        indices, weights = indices.gather(-1, rank), weights.gather(-1, rank)
        left_out = weighted_sum([value.rest for value in values], shares) + weights[..., self.k :].sum(-1)
        return TopKValue(indices[..., : self.k], weights[..., : self.k], left_out)
