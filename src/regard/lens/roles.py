"""Head roles: which heads do one of the things that heads are known to do, and how surely."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor, nn

from regard.errors import ConfigError, all_problems, message, must_be
from regard.lens._call import what_blocks
from regard.lens.kept import KeptCall
from regard.lens.watch import watch
from regard.ops import FirstKeys, MatchMass, Observation, OffsetMass, Probe, SinkShare, SpanMass, measure

_NEAR = {"previous": 0, "next": 1}
_OFFSETS = (-1, 1, -5, -4, -3, -2, 2, 3, 4, 5)
ROLES = ("previous", "next", "duplicate", "induction", "first_token", "separator", "offset")
"""Every role, in the order of tables."""

_MEANINGS = {
    "previous": "attends to the token before",
    "next": "attends to the token after",
    "duplicate": "attends to other occurrences of the same token",
    "induction": "attends to what came after an earlier occurrence of the same token",
    "first_token": "rests on the first token, or on a sink",
    "separator": "rests on separators",
    "offset": "attends at one fixed distance of 2 to 5 tokens",
}


@dataclass(frozen=True, eq=False)
class HeadRole:
    """One head and one role.

    Args:
        module: Dotted name of the attention module.
        head: Number of the head.
        role: Which role.
        score: The mean mass that the role asks for, over the queries that could have it; 0 to 1.
        chance: The same for a head that gives every key it may see the same.
        detail: The distance, for ``offset``.
    """

    module: str
    head: int
    role: str
    score: float
    chance: float
    detail: int | None = None

    @property
    def meaning(self) -> str:
        """What the role is, in words."""
        return _MEANINGS[self.role]

    def __str__(self) -> str:
        where = f" ({self.detail:+d})" if self.detail is not None else ""
        return f"{self.module} head {self.head}: {self.role}{where}, {self.score:.2f} (chance {self.chance:.2f})"


@dataclass(frozen=True, eq=False)
class HeadScores:
    """What every head does, by role.

    Args:
        scores: For each module and role the mean mass of each head, [heads]; NaN where no query could have it.
        chances: The same for heads that attend to all they may see alike.
        offsets: For each module the distance of the best ``offset`` of each head.
    """

    scores: Mapping[str, Mapping[str, Float64[Tensor, "heads"]]]
    chances: Mapping[str, Mapping[str, Float64[Tensor, "heads"]]]
    offsets: Mapping[str, Sequence[int]]

    def roles(self, *, at_least: float = 0.5, times_chance: float = 2.0) -> list[HeadRole]:
        """The heads that have a role: a head may have several, and most have none.

        Args:
            at_least: Mean mass from which on a head is said to have a role.
            times_chance: And how many times the mass of a uniform head it must be.

        Returns:
            In the order of the model, the strongest role of a head first.
        """
        found = []
        for module, by_role in self.scores.items():
            heads = len(next(iter(by_role.values())))
            for head in range(heads):
                of_head = [self._role(module, head, role) for role in by_role]
                having = [one for one in of_head if one.score >= max(at_least, times_chance * one.chance)]
                found += sorted(having, key=lambda one: -one.score)
        return found

    def _role(self, module: str, head: int, role: str) -> HeadRole:
        score, chance = float(self.scores[module][role][head]), float(self.chances[module][role][head])
        return HeadRole(module, head, role, score, chance, self.offsets[module][head] if role == "offset" else None)

    def summary(self) -> str:
        """How many heads have each role, and the strongest of each; one line per role."""
        roles = self.roles()
        total = sum(len(next(iter(by_role.values()))) for by_role in self.scores.values())
        lines = []
        for role in ROLES:
            having = sorted((one for one in roles if one.role == role), key=lambda one: -one.score)
            if all(bool(by_role[role].isnan().all()) for by_role in self.scores.values()):
                lines.append(f"{role:<12} cannot be told: no query of the text could have it")
                continue
            best = f"; strongest: {having[0]}" if having else ""
            lines.append(f"{role:<12} {len(having)} of {total} heads{best}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


def head_roles(
    model: nn.Module,
    run: Callable[[], Any],
    tokens: Sequence[int],
    *,
    separators: Iterable[int] = (),
    modules: str | None = None,
) -> HeadScores:
    """What every self-attention head of a model does on a text.

    Each role is a mean mass over the queries that could have it:

        previous, next   the key at distance −1, +1
        duplicate        other keys with the token of the query
        induction        keys that come right after an earlier occurrence of the token of the query
        first_token      the first key of the text, and a learned sink, for queries after it
        separator        keys whose token is one of ``separators``, for queries that are none
        offset           the key at one distance of ±2 to ±5: that which has most, of those half of the queries can have

    Args:
        model: The model.
        run: Runs it once on the text alone (a batch of one).
        tokens: The ids of the text as the model reads it. Repeated random ones show induction at its clearest.
        separators: Ids of separators, such as [SEP] and full stops.
        modules: Regular expression for the names of attention modules; None for all that read just this text.

    Returns:
        Scores for every head, beside those of a head that attends to all it may see alike.

    Raises:
        ConfigError: ``tokens`` are not ids, or no layer reads a text of that length.

    Cost:
        One pass over the text under a watch; linear memory.

    Source:
        Clark et al. 2019, arXiv:1906.04341; Voita et al. 2019, arXiv:1905.09418; Olsson et al. 2022, arXiv:2209.11895.
    """
    ids = _checked(tokens, separators)
    probes = _questions(ids, set(separators))
    with torch.no_grad(), watch(model, list(probes.values()), modules=modules, keep=True) as seen:
        run()
    layers = {(layer.name, layer.index): layer for layer in seen.layers}
    scores: dict[str, dict[str, Tensor]] = {}
    chances: dict[str, dict[str, Tensor]] = {}
    offsets: dict[str, list[int]] = {}
    for call in seen.calls:
        if not _reads(call, len(ids)):
            continue
        observed, uniform = layers[call.name, call.index].observation, _uniform(call, list(probes.values()))
        name = call.name if not call.index else f"{call.name}[{call.index}]"
        masses = {role: _mass(observed, role) for role in probes}
        beside = {role: _mass(uniform, role) for role in probes}
        scores[name], chances[name], offsets[name] = _scores(masses, beside, _others(ids, set(separators)))
    if not scores:
        read = ", ".join(dict.fromkeys(f"{layer.batch} × {layer.kv_end}" for layer in seen.layers)) or "none"
        problem = f"no self-attention layer read one text of {len(ids)} tokens from its beginning, but {read}."
        raise ConfigError(message("head_roles", problem))
    return HeadScores(scores, chances, offsets)


def _checked(tokens: Any, separators: Any) -> list[int]:
    problems = []
    for name, given in (("tokens", tokens), ("separators", separators)):
        numbers = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [None]
        if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in numbers):
            problems.append(must_be(name, "ids, integers from 0", f"{str(given)[:80]}"))
    if not problems and not len(tokens):
        problems.append(must_be("tokens", "at least one id", "empty"))
    if problems:
        raise all_problems("head_roles", problems)
    return [*tokens]


def _questions(ids: list[int], separators: set[int]) -> dict[str, Probe]:
    """A probe for what each role asks of a query."""
    after = [-1, *ids[:-1]]
    spans = [(place, place + 1) for place, one in enumerate(ids) if one in separators] or [(0, 0)]
    return {
        "offsets": OffsetMass(_OFFSETS, name="offsets"),
        "duplicate": MatchMass(ids, name="duplicate"),
        "induction": MatchMass(ids, after, before_only=True, name="induction"),
        "first_token": FirstKeys(1, name="first_token"),
        "sink": SinkShare(name="sink"),
        "separator": SpanMass(spans, name="separator"),
    }


def _mass(observed: Observation, role: str) -> Float64[Tensor, "heads q *offsets"]:
    """What a probe saw in the one batch row."""
    value: Tensor = getattr(observed, role)[0].double()
    return value.sum(-1) if role == "separator" else value


def _reads(call: KeptCall, length: int) -> bool:
    """Whether a call is one of a whole text with itself."""
    whole = call.q_start == 0 and call.q_end == length and call.call.kv_start == 0 and call.call.kv_end == length
    return call.kind == "self" and call.call.query.shape[0] == 1 and whole


def _uniform(call: KeptCall, probes: list[Probe]) -> Observation:
    """What the probes say of heads that give all keys they may see the same."""
    shape = call.call.query.shape
    zero = call.call.query.new_zeros(()).float()
    options = call.call.options() | {
        "bias": what_blocks(call.call.bias),
        "scale": 1.0,
        "logit_softcap": None,
        "sinks": None,
    }
    query, key = zero.expand(*shape[:3], 1), zero.expand(shape[0], call.call.key.shape[1], call.call.key.shape[2], 1)
    return measure(query, key, probes, **options)


def _others(ids: list[int], separators: set[int]) -> Bool[Tensor, "q"]:
    """Queries that are no separators."""
    return torch.tensor([one not in separators for one in ids])


Masses = dict[str, Tensor]


def _scores(masses: Masses, uniform: Masses, others: Tensor) -> tuple[Masses, Masses, list[int]]:
    """Mean masses by role, the same for a uniform head, and the best distance of each head.

    A query can have a role if a head that attends to everything it may see would give the role some mass.
    """
    first = masses["first_token"] + masses["sink"], uniform["first_token"]
    later = torch.ones_like(others)
    later[0] = False
    asked = {
        **{role: (masses["offsets"][..., at], uniform["offsets"][..., at], None) for role, at in _NEAR.items()},
        "duplicate": (masses["duplicate"], uniform["duplicate"], None),
        "induction": (masses["induction"], uniform["induction"], None),
        "first_token": (*first, later),
        "separator": (masses["separator"], uniform["separator"], others),
    }
    found, chance = dict[str, Tensor](), dict[str, Tensor]()
    for role, (mass, flat, queries) in asked.items():
        can = (flat > 0) if queries is None else (flat > 0) & queries.to(flat.device)
        found[role], chance[role] = _mean(mass, can), _mean(flat, can)
    far = masses["offsets"][..., len(_NEAR) :], uniform["offsets"][..., len(_NEAR) :]
    can = far[1] > 0
    common = 2 * can.sum(-2) >= can.shape[-2]  # the mean of a few queries would win by chance
    means = _mean(far[0].mT, can.mT).masked_fill(~common, -1).nan_to_num(-1)
    best, place = means.max(-1)
    found["offset"] = best.masked_fill(best < 0, torch.nan)
    chance["offset"] = _mean(far[1].mT, can.mT).gather(-1, place[:, None])[:, 0]
    return found, chance, [_OFFSETS[len(_NEAR) + at] for at in place.tolist()]


def _mean(mass: Tensor, queries: Tensor) -> Tensor:
    """The mean over some of the queries, the last axis; NaN where there are none."""
    return (mass * queries).sum(-1) / queries.sum(-1)
