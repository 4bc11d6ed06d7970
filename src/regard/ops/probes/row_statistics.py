"""One number per query: the log of the denominator, the entropy, the mean distance, the sink's share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from regard.ops._strip import Geometry, Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._blocks import by_blocks
from regard.ops.probes._fused import Asked, Question
from regard.ops.probes._row import RowProbe, weighted_sum

_LONG = 2048  # keys from which on a product of all weights and distances is larger than the cache


@dataclass(frozen=True)
class LogSumExp(RowProbe):
    """How large the scores of a query are: log Σ exp(logit), the log of the softmax's denominator.

    The sink is part of the denominator. A query with no allowed key and no sink has −inf. Weights of any key can be
    recomputed from it: w = exp(logit − lse).

    Args:
        name: Name of the result; "log_sum_exp" if None.
    """

    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        Arguments(self).done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query."""
        return Question(Asked.LOG_SUM_EXP)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """Return the strip's lse, which every backend has at hand."""
        return strip.lse.clone()

    def merge(
        self,
        values: Sequence[Float[Tensor, "batch heads q"]],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> Float[Tensor, "batch heads q"]:
        """Log Σ exp(value): the values hold more than the shares, so only they are used."""
        return torch.logsumexp(torch.stack(tuple(values)), dim=0)


@dataclass(frozen=True)
class Entropy(RowProbe):
    """How spread a query's attention is: −Σ w log w over its keys, in nats.

    0 for one key with all the mass, log n for n equal ones, 0 for a query with no allowed key. With sinks the weights
    sum to less than one and the definition stays the same: the sink itself has no term. NaN weights give NaN.

    Args:
        name: Name of the result; "entropy" if None.

    Numerics:
        0 · log 0 = 0; weights below the smallest normal number count as good as 0. Taken from the weights, not from
        logits and lse, so its error does not grow with the scores.
    """

    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        Arguments(self).done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query."""
        return Question(Asked.ENTROPY)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """−Σ w log w of each row."""
        entropy: Tensor = torch.special.entr(strip.weights).sum(-1)
        return entropy

    def rows(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """The same, in blocks that stay in the cache."""
        return by_blocks(_entropy, strip.weights)[..., 0]

    def merge(
        self,
        values: Sequence[Float[Tensor, "batch heads q"]],
        shares: Sequence[Float[Tensor, "batch heads q"]],
        sink_shares: Sequence[Float[Tensor, "batch heads q"]] | None = None,
    ) -> Float[Tensor, "batch heads q"]:
        """Σ a·H − Σ (1 − s)·a·log a, with a a shard's share of the row and s the sink's share of the shard."""
        between = [torch.special.entr(share) for share in shares]
        if sink_shares is not None:
            between = [part * (1 - sink) for part, sink in zip(between, sink_shares, strict=True)]
        return weighted_sum(values, shares) + torch.stack(between).sum(0)


def _entropy(weights: Float[Tensor, "rows n"]) -> Float[Tensor, "rows 1"]:
    """−Σ w log w; the smallest normal number takes the place of 0 inside the log, and is multiplied by 0."""
    logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log_()
    return 0 - logs.mul_(weights).sum(-1, keepdim=True)  # no −0 for a row without choice


@dataclass(frozen=True)
class Distance(RowProbe):
    """How far a query looks: Σ w·|i − j|, with i and j the absolute positions of query and key.

    Args:
        name: Name of the result; "distance" if None.
    """

    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        Arguments(self).done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query."""
        return Question(Asked.DISTANCE)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """Σ w·|i − j| of each row."""
        distance = (strip.q_positions[:, :, None] - strip.k_positions).abs()
        return (strip.weights * distance.to(strip.weights.dtype)[:, None]).sum(-1)

    def rows(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """The same; one row of all heads after another where rows are long."""
        weights, positions, keys = strip.weights, strip.q_positions, strip.k_positions
        if weights.shape[3] < _LONG or weights.device.type != "cpu":
            return self.define(strip)
        out = torch.empty_like(strip.lse)
        for batch in range(positions.shape[0]):
            which = slice(None) if positions.shape[0] == 1 else slice(batch, batch + 1)
            for row in range(weights.shape[2]):
                distance = (positions[batch, row] - keys).abs().to(weights.dtype)
                out[which, :, row] = (weights[which, :, row] * distance).sum(-1)
        return out


@dataclass(frozen=True)
class SinkShare(RowProbe):
    """What the learned sink took of each query's attention: exp(sink − lse).

    0 without sinks; 1 for a query that has a sink and no allowed key. For the mass on the first tokens, which act as
    sinks in models without learned ones, see ``FirstKeys``.

    Args:
        name: Name of the result; "sink_share" if None.
    """

    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        Arguments(self).done()

    def question(self, geometry: Geometry) -> Question:
        """One number per query."""
        return Question(Asked.SINK_SHARE)

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """Return the strip's sink share, which every backend has at hand."""
        return strip.sink_share.clone()
