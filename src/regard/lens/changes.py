"""Changes: what attention calls are made to do while a model is watched, to see what depends on them.

    with regard.watch(model, changes=[regard.SilenceHeads(heads=[3], layers=[2])]):
        output = model(**inputs)

Outside the ``with`` the model is as it was. Several changes of one call act one after the other; probes see the weights
that the changed call has.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, all_problems, message, must_be
from regard.lens._call import AttentionCall, Kind, layer_number, what_blocks
from regard.ops import ALiBi, Allowed, Geometry, Mask, Padding, Where

Span = tuple[int, int]
_SUM_TOLERANCE = 1e-3  # half types round weights that far


@dataclass(frozen=True, eq=False)
class Changed:
    """An attention call after changes.

    Args:
        call: What is to be computed.
        silenced: Heads whose output is zero.
        recomputed: Whether the weights are others than the model's own function computes.
    """

    call: AttentionCall
    silenced: tuple[int, ...] = ()
    recomputed: bool = False

    def without_silenced(self, output: Tensor, *, dim: int) -> Tensor:
        """An output of the call with the silenced heads at exactly zero.

        Args:
            output: What attention returned.
            dim: Axis of the heads.
        """
        if not self.silenced:
            return output
        return output.index_fill(dim, torch.tensor(self.silenced, device=output.device), 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Change(ABC):
    """What is changed, and in which calls.

    Args:
        heads: Query heads by number; None for all.
        layers: First number in a module's name, by which models count their layers; None for all.
        modules: Regular expression; only modules whose name contains a match are changed. None for all.
        kind: Only "self" or only "cross" attention; None for both.

    Raises:
        ConfigError: An argument is not one of these; names all of them at once.
    """

    heads: Iterable[int] | None = None
    layers: Iterable[int] | None = None
    modules: str | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        problems = [*self._problems()]
        for name in ("heads", "layers"):
            numbers = getattr(self, name)
            if numbers is None:
                continue
            found = _numbers(numbers)
            if found is None:
                problems.append(must_be(name, "one or more numbers from 0, or None for all", repr(numbers)))
            object.__setattr__(self, name, found)
        if self.modules is not None:
            try:
                re.compile(self.modules)
            except (re.error, TypeError) as problem:
                problems.append(must_be("modules", "a regular expression", f"{self.modules!r} ({problem})"))
        if self.kind not in (None, "self", "cross"):
            problems.append(must_be("kind", '"self", "cross" or None', repr(self.kind)))
        if problems:
            raise all_problems(type(self).__name__, problems)

    def names(self, module: str) -> bool:
        """Whether a module of this name is meant, whatever kind of attention it turns out to compute."""
        if self.modules is not None and re.search(self.modules, module) is None:
            return False
        return self.layers is None or layer_number(module) in tuple(self.layers)

    def apply(self, found: Changed, module: str) -> Changed:
        """What becomes of a call of a module that is meant.

        Args:
            found: The call after earlier changes.
            module: Name of the module, for messages.

        Raises:
            ConfigError: It names a head, query or key that the call does not have.
        """
        if self.kind not in (None, found.call.kind):
            return found
        count = found.call.query.shape[1]
        beyond = [head for head in self.heads or () if head >= count]
        if beyond:
            problem = f"`heads` must be less than the {count} heads of {module}, but holds {beyond[0]}."
            raise ConfigError(message(type(self).__name__, problem))
        return self._apply(found, module)

    @property
    def remark(self) -> str:
        """What coverage says of a module that was changed."""
        heads = "" if self.heads is None else f" of heads {', '.join(map(str, self.heads))}"
        return f"changed: {self._what()}{heads}"

    def _chosen(self, call: AttentionCall) -> list[int]:
        return [*range(call.query.shape[1])] if self.heads is None else [*self.heads]

    def _problems(self) -> Iterable[str]:
        return ()

    @abstractmethod
    def _apply(self, found: Changed, module: str) -> Changed: ...

    @abstractmethod
    def _what(self) -> str: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SilenceHeads(Change):
    """Heads put out zeros: what they would have written is missing, their weights are as they were.

    The output of the module equals what it is when the columns of its output that belong to these heads are set to
    zero before they are projected.

    Args:
        heads: As for every change, and so are all others.
        layers: As for every change.
        modules: As for every change.
        kind: As for every change.

    Source:
        Michel et al. 2019, arXiv:1905.10650, section 2.3 (what ``head_mask`` of transformers did until version 5).
    """

    def _apply(self, found: Changed, module: str) -> Changed:
        return replace(found, silenced=tuple(sorted({*found.silenced, *self._chosen(found.call)})))

    def _what(self) -> str:
        return "the output" if self.heads is not None else "the output of all heads"


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockSpans(Change):
    """Queries no longer see some keys; what they gave to these goes to the keys that are left, by softmax.

    Args:
        key_spans: Ranges [start, stop) of absolute positions that are blocked.
        query_spans: Ranges of queries that no longer see them; None for every query.
        heads: As for every change.
        layers: As for every change.
        modules: As for every change.
        kind: As for every change.

    Numerics:
        A query that is left without any key gets zeros.

    Cost:
        regard computes the calls that are changed, in linear memory; where queries or heads are chosen, without its
        native kernels.

    Source:
        Geva et al. 2023, arXiv:2304.14767, section 4 ("attention knockout").
    """

    key_spans: Iterable[Span] = field(default=())
    query_spans: Iterable[Span] | None = None

    def _problems(self) -> Iterable[str]:
        for name in ("key_spans", "query_spans"):
            given = getattr(self, name)
            if given is None and name == "query_spans":
                continue
            spans = _spans(given)
            if spans is None:
                yield must_be(name, "one or more pairs (start, stop) with 0 ≤ start ≤ stop", repr(given))
            object.__setattr__(self, name, spans)

    def _apply(self, found: Changed, module: str) -> Changed:
        call = found.call
        own = Allowed(call.mask) if isinstance(call.mask, Tensor) else call.mask
        blocked = self._mask(call)
        return replace(found, call=replace(call, mask=blocked if own is None else own & blocked), recomputed=True)

    def _mask(self, call: AttentionCall) -> Mask:
        device = call.key.device
        keys, chosen = tuple(self.key_spans), self.heads
        if self.query_spans is None and chosen is None:
            positions = torch.arange(call.kv_start, call.kv_end, device=device)
            return Padding(~_inside(positions, keys)[None].expand(call.query.shape[0], -1))
        queries = self.query_spans if self.query_spans is None else tuple(self.query_spans)
        heads = None if chosen is None else torch.tensor([*chosen], device=device)

        def is_left(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            hidden = _inside(j, keys)
            if queries is not None:
                hidden = hidden & _inside(i, queries)
            if heads is not None:
                hidden = hidden & torch.isin(h, heads)
            return ~hidden

        return Where(is_left)

    def _what(self) -> str:
        queries = "" if self.query_spans is None else f" for queries {_listed(self.query_spans)}"
        return f"keys {_listed(self.key_spans)} blocked{queries}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ForceWeights(Change):
    """Heads attend with given weights instead of their own.

    Args:
        weights: What they attend with, by absolute positions: [q, kv], or [heads, q, kv] or [batch, heads, q, kv] with
            an entry for each chosen head (or one for all); every row sums to one, or to zero where a query is to see
            nothing. Or "uniform": every key a query may see gets the same.
        heads: As for every change.
        layers: As for every change.
        modules: As for every change.
        kind: As for every change.

    Raises:
        ConfigError: Weights that are negative, not finite, or of which a row does not sum to one or zero.
        DTypeError: They are no floating tensor.
        ShapeError: Not two to four axes; while the model runs: no entry for a query, key, head or batch row of a call.

    Numerics:
        Sinks get nothing.

    Cost:
        regard computes the calls that are changed; given weights, or chosen heads, need quadratic memory there.

    Source:
        Jain and Wallace 2019, arXiv:1902.10186 (weights that are permuted); Clark et al. 2019, arXiv:1906.04341.
    """

    weights: Float[Tensor, "..."] | Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.weights, str) and self.weights == "uniform":
            return
        weights = self.weights
        if not isinstance(weights, Tensor) or not weights.is_floating_point():
            found = str(weights.dtype) if isinstance(weights, Tensor) else repr(weights)
            raise DTypeError(message("ForceWeights", must_be("weights", 'a floating tensor or "uniform"', found)))
        if not 2 <= weights.dim() <= 4:
            expected = "of shape [q, kv], [heads, q, kv] or [batch, heads, q, kv]"
            raise ShapeError(message("ForceWeights", must_be("weights", expected, f"of shape {tuple(weights.shape)}")))
        if not bool((weights.isfinite() & (weights >= 0)).all()):
            raise ConfigError(message("ForceWeights", must_be("weights", "finite and not negative", "not everywhere")))
        _check_sums(weights)

    def _apply(self, found: Changed, module: str) -> Changed:
        call, heads = found.call, self._chosen(found.call)
        bias = None if isinstance(self.weights, str) else self._part(self.weights, call, len(heads), module).log()
        return replace(found, call=_forced(call, heads, bias), recomputed=True)

    def _part(self, weights: Tensor, call: AttentionCall, heads: int, module: str) -> Tensor:
        """The weights of one call, [batch or 1, heads or 1, q, kv]."""
        wide = weights.reshape((1,) * (4 - weights.dim()) + weights.shape)
        q_start = call.q_start or 0
        sizes = wide.shape
        fits = sizes[0] in (1, call.query.shape[0]) and sizes[1] in (1, heads)
        if not fits or sizes[2] < q_start + call.q_len or sizes[3] < call.kv_end:
            expected = f"for {heads} heads, {q_start + call.q_len} queries and {call.kv_end} keys of {module}"
            raise ShapeError(message("ForceWeights", must_be("weights", expected, f"of shape {tuple(weights.shape)}")))
        part = wide[:, :, q_start : q_start + call.q_len, call.kv_start : call.kv_end]
        _check_sums(part, where=f" over the keys that {module} has at hand")
        return part.to(device=call.query.device, dtype=torch.promote_types(call.query.dtype, torch.float32))

    def _what(self) -> str:
        return "uniform weights" if isinstance(self.weights, str) else "given weights"


def _forced(call: AttentionCall, heads: list[int], given: Tensor | None) -> AttentionCall:
    """The scores of some heads are 0 plus a bias: softmax of log(w) is w, and without weights all keys are equal."""
    index = torch.tensor(heads, device=call.query.device)
    every = len(heads) == call.query.shape[1]
    changed: dict[str, Any] = {"query": call.query.index_fill(1, index, 0)}
    if call.sinks is not None:
        axis = 0 if call.sinks.dim() == 1 else 1
        changed["sinks"] = _wide(call.sinks, axis, call.query.shape[1]).index_fill(axis, index, -torch.inf)
    bias = what_blocks(call.bias) if given is None else given
    if every:
        changed["bias"] = bias
    elif bias is not None or call.bias is not None:
        own = _dense_bias(call).clone()
        if given is None:
            bias = None if bias is None else bias.expand_as(own)[:, index]
        own[:, index] = 0 if bias is None else bias.to(own.dtype)
        changed["bias"] = own
    if given is not None:
        changed["mask"] = None if every or call.mask is None else _mask_of_others(call, index)
    return replace(call, **changed)


def _mask_of_others(call: AttentionCall, heads: Tensor) -> Mask:
    """The mask of a call for all heads but these, whose given weights say themselves what they see."""
    own = Allowed(call.mask) if isinstance(call.mask, Tensor) else call.mask
    assert own is not None
    return own | Where(lambda b, h, i, j: torch.isin(h, heads))


def _dense_bias(call: AttentionCall) -> Tensor:
    """What is added to the scores, with an entry for each of them."""
    batch, heads, q_len, _ = call.query.shape
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    if isinstance(call.bias, ALiBi):
        q_start = call.q_start or 0
        positions = torch.arange(q_start, q_start + q_len, device=call.query.device)[None]
        geometry = Geometry(batch, heads, q_len, call.key.shape[2], positions, call.kv_start, dtype, call.query.device)
        return call.bias.dense(geometry).expand(batch, -1, -1, -1)
    own = call.query.new_zeros(()) if call.bias is None else call.bias
    return own.to(dtype).expand(batch, heads, q_len, call.key.shape[2])


def _wide(tensor: Tensor, axis: int, size: int) -> Tensor:
    """The tensor with an entry for each head."""
    return tensor.expand(*(size if place == axis else -1 for place in range(tensor.dim())))


def _check_sums(weights: Tensor, where: str = "") -> None:
    sums = weights.double().sum(-1)
    wrong = ((sums - 1).abs() > _SUM_TOLERANCE) & (sums != 0)
    if bool(wrong.any()):
        problem = f"every row of `weights` must sum to 1, or to 0 to see nothing{where}, but one sums to"
        raise ConfigError(message("ForceWeights", f"{problem} {float(sums[wrong][0]):.4g}."))


def _inside(positions: Tensor, spans: Iterable[Span]) -> Tensor:
    found = torch.zeros_like(positions, dtype=torch.bool)
    for start, stop in spans:
        found = found | ((positions >= start) & (positions < stop))
    return found


def _numbers(given: Any) -> tuple[int, ...] | None:
    """Different numbers from 0 in order, or None where these are not such."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return None
    numbers = tuple(given)
    if not numbers or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in numbers):
        return None
    return tuple(sorted(set(numbers)))


def _spans(given: Any) -> tuple[Span, ...] | None:
    if not isinstance(given, Iterable):
        return None
    spans = []
    for pair in given:
        numbers = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
        if len(numbers) != 2 or any(isinstance(one, bool) or not isinstance(one, int) for one in numbers):
            return None
        if not 0 <= numbers[0] <= numbers[1]:
            return None
        spans.append((numbers[0], numbers[1]))
    return tuple(spans) or None


def _listed(spans: Iterable[Span]) -> str:
    return ", ".join(f"{start}–{stop - 1}" if stop > start else f"none at {start}" for start, stop in spans)
