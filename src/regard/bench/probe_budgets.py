"""How exact the probes of a call must be, in memory linear in its length.

    |result − exact| <= 2 · (largest |plain − exact| + one rounding band)

as for outputs: ``exact`` is the probe of float64 weights, ``plain`` the probe of weights that torch computed in the
dtype under test, and the band is eps·(1 + largest |logit|) times the sum of the absolute values of the terms that were
added up. The weights are made a few rows at a time. Which keys are the largest is not compared by number, because
rounding may swap two of nearly the same weight: the exact weights of the keys a side named must be the largest, within
what two errors allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.bench.rows import TOP_K
from regard.bench.sides import Found
from regard.ops.testing import Budget, dense_attention

Problems = dict[str, str]
Visible = Callable[[Tensor], Tensor | None]

_CHUNK_CELLS = 1 << 22  # 32 MiB of float64


def wrong_probes(tensors: dict[str, Tensor], visible: Visible, bins: int, found: dict[str, Found]) -> Problems:
    """Say which sides have a probe that is farther off than its budget.

    Args:
        tensors: query, key and value.
        visible: The dense mask of some queries, or None.
        bins: Rows and columns of the map.
        found: The probes of each side, of exactly these tensors.

    Returns:
        One line for each side that is wrong.
    """
    chosen = {side: result["top_k.indices"] for side, result in found.items()}
    exact, plain, at_chosen, condition = _walk(tensors, visible, bins, chosen)
    eps = torch.finfo(tensors["query"].dtype).eps
    magnitudes = {**exact, "entropy": exact["entropy"] + 1, "top_k.rest": torch.ones_like(exact["top_k.rest"])}
    problems: Problems = {}
    for name, truth in exact.items():
        band = 2 * ((plain[name] - truth).abs().max() + eps * condition * magnitudes[name])
        budget = Budget(truth, band + torch.finfo(torch.float32).tiny)
        for side, result in found.items():
            _note(problems, side, budget.problem(name, result[name]))
        if name == "top_k.weights":
            twice = Budget(truth, 2 * budget.allowed)
            for side, weights in at_chosen.items():
                _note(problems, side, twice.problem("the exact weights at top_k.indices", weights))
    return problems


def _note(problems: Problems, side: str, problem: str | None) -> None:
    if problem is not None:
        problems.setdefault(side, problem)


def _walk(tensors: dict[str, Tensor], visible: Visible, bins: int, chosen: Found) -> tuple[Found, Found, Found, float]:
    """Exact and plain probes, exact weights at each side's keys, and one more than the largest |logit|."""
    query, key = tensors["query"], tensors["key"]
    batch, heads, q_len, _ = query.shape
    sums: dict[torch.dtype, _Sums] = {dtype: _Sums(bins) for dtype in (torch.float64, query.dtype)}
    at_chosen: dict[str, list[Tensor]] = {side: [] for side in chosen}
    largest = 0.0
    step = max(1, _CHUNK_CELLS // (batch * heads * key.shape[2]))
    for start in range(0, q_len, step):
        rows = torch.arange(start, min(start + step, q_len), device=query.device)
        allowed = visible(rows)
        some: dict[str, Any] = {**tensors, "query": query[:, :, rows]}
        for dtype, total in sums.items():
            cast = {name: tensor.to(dtype) for name, tensor in some.items()}
            _, weights = dense_attention(**cast, allowed=allowed)
            total.add(weights.double())
            if dtype == torch.float64:
                for side, indices in chosen.items():
                    at_chosen[side].append(_weights_at(weights, indices[:, :, rows]))
                scores = cast["query"] @ cast["key"].repeat_interleave(heads // key.shape[1], 1).mT
                largest = max(largest, float(scores.abs().max()) * query.shape[3] ** -0.5)
    gathered = {side: torch.cat(pieces, 2) for side, pieces in at_chosen.items()}
    return sums[torch.float64].probes(), sums[query.dtype].probes(), gathered, 1 + largest


def _weights_at(weights: Tensor, at: Tensor) -> Tensor:
    """Weights at the keys a side named (0 for −1, none); NaN where there is no such key or one is named twice."""
    keys = weights.shape[-1]
    ordered = at.sort(-1).values
    twice = ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any(-1, keepdim=True)
    found = weights.gather(-1, at.clamp(0, keys - 1)).masked_fill(at < 0, 0)
    return found.masked_fill((at >= keys) | twice, torch.nan)


class _Sums:
    """The probes of a weight matrix that comes a few rows at a time."""

    def __init__(self, bins: int) -> None:
        self._bins = bins
        self._rows: dict[str, list[Tensor]] = {"entropy": [], "top_k.weights": [], "top_k.rest": [], "columns": []}
        self._key_mass: Tensor | None = None

    def add(self, weights: Tensor) -> None:
        """Take in some whole rows, float64 [batch, heads, rows, keys]."""
        best = weights.topk(min(TOP_K, weights.shape[-1]), dim=-1).values
        self._rows["entropy"].append(torch.special.entr(weights).sum(-1))
        self._rows["top_k.weights"].append(best)
        self._rows["top_k.rest"].append(weights.sum(-1) - best.sum(-1))
        self._rows["columns"].append(weights.view(*weights.shape[:3], self._bins, -1).sum(-1))
        mass = weights.sum(-2)
        self._key_mass = mass if self._key_mass is None else self._key_mass + mass

    def probes(self) -> Found:
        """Every probe of all rows."""
        rows = {name: torch.cat(pieces, 2) for name, pieces in self._rows.items()}
        assert self._key_mass is not None
        columns = rows.pop("columns")
        return {
            **rows,
            "key_mass": self._key_mass,
            "heat_map": columns.view(*columns.shape[:2], self._bins, -1, self._bins).mean(3),
        }
