"""The mass on keys that have something in common with the query, whatever their distance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.ops._strip import Strip
from regard.ops.probes._arguments import Arguments
from regard.ops.probes._row import RowProbe


@dataclass(frozen=True)
class MatchMass(RowProbe):
    """The mass on the keys whose id is that of the query: Σ w over keys j ≠ i with key_ids[j] = query_ids[i].

    With the tokens of a text as both ids it is the mass on other occurrences of the same token; with each key's id the
    token before it, it is the mass on what came after an earlier occurrence, as an induction head has it.

    Args:
        query_ids: An id for each absolute position of a query; negative ids, and positions beyond them, match nothing.
        key_ids: An id for each absolute position of a key; None for those of the queries.
        before_only: Whether only keys before the query count.
        name: Name of the result; "match_mass" if None.

    Source:
        Olsson et al. 2022, arXiv:2209.11895, for what it is used for.
    """

    query_ids: Iterable[int]
    key_ids: Iterable[int] | None = None
    before_only: bool = False
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        arguments = Arguments(self)
        arguments.ids("query_ids")
        if self.key_ids is not None:
            arguments.ids("key_ids")
        arguments.flag("before_only")
        arguments.done()

    def define(self, strip: Strip) -> Float[Tensor, "batch heads q"]:
        """Add up the weights of the keys that match."""
        query_ids = tuple(self.query_ids)
        key_ids = query_ids if self.key_ids is None else tuple(self.key_ids)
        rows, columns = strip.q_positions[:, :, None], strip.k_positions
        ids = _ids_at(query_ids, rows)
        others = columns < rows if self.before_only else columns != rows
        matches: Bool[Tensor, "batch_or_1 r c"] = (ids == _ids_at(key_ids, columns)) & (ids >= 0) & others
        return torch.where(matches[:, None], strip.weights, 0).sum(-1)


def _ids_at(ids: tuple[int, ...], positions: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """The id at each position; −1 beyond them."""
    table = torch.tensor([*ids, -1], device=positions.device)
    known = (positions >= 0) & (positions < len(ids))
    return table[torch.where(known, positions, len(ids))]
