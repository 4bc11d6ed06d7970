"""Attention flow: how much could reach a query from a token at most, through edges as wide as the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from regard.lens.kept import KeptLayer, kept_stack, places_of
from regard.lens.rollout import check_residual, mixing
from regard.lens.seen import Seen

_WIDE = 1 << 24  # edges of a layer from which on float32 is used
_SMALLEST, _SMALLEST_SINGLE = 1e-14, 1e-9  # what counts as nothing: far below any weight that matters


def flow(
    seen: Seen, row: int = -1, keys: Sequence[int] | None = None, *, modules: str | None = None, residual: float = 0.5
) -> Float64[Tensor, "batch keys"]:
    """The maximum flow between a query of the last layer and input tokens, with the weights as capacities.

    The graph has a node for each position before the first and after each layer, and an edge of capacity Â_l[i, j]
    (as in ``rollout``) from position i after layer l to position j before it. Each token is a sink by itself, so that
    the flows of several tokens do not add up.

    Args:
        seen: Of ``regard.watch(model, keep=True)``: one pass of self-attention over a text.
        row: Position of the query; −1 is the last.
        keys: Positions of tokens; None for all of them.
        modules: As for ``rollout``.
        residual: As for ``rollout``.

    Returns:
        Maximum flows, 0 to 1, in float64.

    Raises:
        ConfigError: as ``rollout``.

    Numerics:
        Exact up to rounding: capacities are float64, or float32 from 2^24 edges on. Deterministic.

    Cost:
        One maximum flow for each token: for long texts choose some. Memory for every edge twice (8 bytes for 2^24 edges
        or more), one batch row at a time: quadratic in the length, unlike everything else here.

    Source:
        Abnar and Zuidema 2020, arXiv:2005.00928, section 3; solved by preflow-push with exact distances (Goldberg and
        Tarjan 1988), all nodes of a layer at once.
    """
    check_residual(residual, caller="flow")
    layers = kept_stack(seen, caller="flow", modules=modules)
    (source,) = places_of([row], layers[-1].q_start, layers[-1].q_end, caller="flow", argument="row")
    length = layers[-1].kv_end
    wanted = [*range(length)] if keys is None else places_of(keys, 0, length, caller="flow", argument="keys")
    capacities = [_capacities(layer, residual) for layer in layers]
    rows = [
        [_Network([layer[item] for layer in capacities], source, sink).solve() for sink in wanted]
        for item in range(layers[0].batch)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _capacities(layer: KeptLayer, residual: float) -> Float[Tensor, "batch q keys"]:
    """Â of one layer, written out."""
    edges = layer.batch * layer.q_end * layer.kv_end
    dtype = torch.float64 if edges < _WIDE else torch.float32
    found = torch.zeros(layer.batch, layer.q_end, layer.kv_end, dtype=dtype, device=layer.device)
    for queries, keys, attention, own in mixing(layer, residual):
        found[:, queries, keys] += attention.to(dtype)
        diagonal = found.diagonal(dim1=1, dim2=2)
        diagonal[:, queries] += own.to(dtype)
    return found


class _Network:
    """A preflow in a layered graph, from one node of its highest level to one of its lowest.

    Level 0 is the input, level l + 1 what layer l puts out. ``left[l][i, j]`` is what still fits down the edge from
    node i of level l + 1 to node j of level l; ``sent[l][i, j]`` is what went down it and may come back.
    """

    def __init__(self, capacities: list[Tensor], source: int, sink: int) -> None:
        self.left = [layer.clone() for layer in capacities]
        self.sent = [torch.zeros_like(layer) for layer in capacities]
        self.sink = sink
        length = capacities[0].shape[1]
        self.excess = [
            torch.zeros(length, dtype=torch.float64, device=capacities[0].device) for _ in range(len(capacities) + 1)
        ]
        self.excess[-1][source] = 1.0
        self.smallest = _SMALLEST if capacities[0].dtype == torch.float64 else _SMALLEST_SINGLE

    def solve(self) -> float:
        """Push until nothing that is on its way can reach the sink."""
        while True:
            distance = self._distances()
            if not self._may_go_on(distance):
                return float(self.excess[0][self.sink])
            for layer in reversed(range(len(self.left))):
                self._push(layer + 1, layer, self.left[layer], self.sent[layer], distance)
            for layer in range(len(self.left)):
                self._push(layer, layer + 1, self.sent[layer].mT, self.left[layer].mT, distance)

    def _may_go_on(self, distance: list[Tensor]) -> bool:
        """Whether a node has something that can reach the sink from it."""
        waiting = [
            (excess > self.smallest) & away.isfinite() for excess, away in zip(self.excess, distance, strict=True)
        ]
        waiting[0][self.sink] = False
        return any(bool(nodes.any()) for nodes in waiting)

    def _distances(self) -> list[Tensor]:
        """The fewest edges with room from each node to the sink; infinite where there is no way."""
        distance = [torch.full_like(nodes, torch.inf) for nodes in self.excess]
        distance[0][self.sink] = 0
        changed = True
        while changed:
            changed = False
            for layer in range(len(self.left)):
                changed |= self._shorten(distance, layer + 1, layer, self.left[layer])
            for layer in reversed(range(len(self.left))):
                changed |= self._shorten(distance, layer, layer + 1, self.sent[layer].mT)
        return distance

    def _shorten(self, distance: list[Tensor], here: int, there: int, room: Tensor) -> bool:
        """One step over the edges from a level to another: whether a node is now nearer to the sink than was known."""
        near = torch.where(room > self.smallest, distance[there].to(room.dtype), torch.inf).amin(1) + 1
        shorter = near < distance[here]
        distance[here] = torch.where(shorter, near.to(torch.float64), distance[here])
        return bool(shorter.any())

    def _push(self, here: int, there: int, room: Tensor, back: Tensor, distance: list[Tensor]) -> None:
        """All nodes of a level push what they have one edge nearer to the sink, into one node after another."""
        active = (self.excess[here] > self.smallest) & distance[here].isfinite()
        if here == 0:
            active[self.sink] = False
        nodes = active.nonzero().flatten()
        if not len(nodes):
            return
        nearer = distance[there] == distance[here][nodes, None] - 1
        fits = torch.where(nearer & (room[nodes] > self.smallest), room[nodes], 0)
        before = fits.cumsum(1) - fits
        amount = torch.minimum(fits, (self.excess[here][nodes, None].to(fits.dtype) - before).clamp(min=0))
        room[nodes] -= amount
        back[nodes] += amount
        self.excess[here][nodes] -= amount.sum(1, dtype=torch.float64)
        self.excess[there] += amount.sum(0, dtype=torch.float64)
