"""measure(): what probes say of the weights of a call whose output somebody else computes.

On x86-64 CPUs the native kernels answer most probes themselves. Otherwise the weight matrix is walked in strips: a
few whole rows at a time, softmax taken over the whole row at once, every probe shown the same strip. Memory is linear
in the number of keys; a strip skips the keys none of its rows may see.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigError, ShapeError, UnsupportedError, message, must_be
from regard.ops import masks
from regard.ops._backends import native, reference
from regard.ops._call import Call, QStart
from regard.ops._placement import check_dense, check_device
from regard.ops._strip import Geometry, Strip
from regard.ops._tiles import plan, stack_group, tile_logits
from regard.ops._validate import make_call
from regard.ops.biases import ALiBi
from regard.ops.probes import Probe, State
from regard.ops.probes._fused import Answer, Question

STRIP_CELLS = 1 << 20
"""Cells of weights a strip aims to hold (4 MiB of float32): near the caches, and reused by the allocator."""

K_BLOCK = 256


class Observation:
    """What a set of probes has seen; each probe's value is an attribute (``seen.entropy``, ``seen.top_k.indices``).

    Args:
        probes: What to ask. Two probes of a kind need different ``name``s.
        caller: The function to name in errors.

    Raises:
        ConfigError: if they are not probes, or two would have the same attribute.
    """

    def __init__(self, probes: Iterable[Probe], *, caller: str = "Observation") -> None:
        self._probes: dict[str, Probe] = {}
        if isinstance(probes, Probe) or not isinstance(probes, Iterable):
            problem = must_be("probes", "a list of probes", f"a {type(probes).__name__}")
            raise ConfigError(message(caller, problem, hint="one probe is [probe]"))
        for probe in probes:
            if not isinstance(probe, Probe):
                raise ConfigError(
                    message(caller, must_be("probes", "a list of probes", f"holding a {type(probe).__name__}"))
                )
            if probe.attribute in self._probes:
                problem = f"two probes are called {probe.attribute!r}."
                raise ConfigError(message(caller, problem, hint="name= tells two probes of a kind apart"))
            self._probes[probe.attribute] = probe
        self._states: dict[str, State] = {name: probe.begin() for name, probe in self._probes.items()}
        self._values: dict[str, Any] = {}

    @property
    def probes(self) -> tuple[Probe, ...]:
        """What was asked."""
        return tuple(self._probes.values())

    def update(self, strip: Strip, *, names: Iterable[str] | None = None) -> None:
        """Show a strip to every probe, or to those of these names."""
        self._values.clear()
        for name in self._states if names is None else names:
            self._states[name].update(strip)

    def questions(self, geometry: Geometry) -> dict[str, Question]:
        """What can be asked of a fast backend about a call, by probe; the other probes must be shown strips."""
        asked = {name: probe.question(geometry) for name, probe in self._probes.items()}
        return {name: question for name, question in asked.items() if question is not None}

    def absorb(self, answers: Mapping[str, Answer]) -> None:
        """Take in a whole call by the answers to some probes' questions."""
        self._values.clear()
        for name, answer in answers.items():
            self._states[name].absorb(answer)

    def define(self, strip: Strip) -> None:
        """Take the probes' definitions on a strip that holds the whole matrix, as a compiler can trace them."""
        for name, probe in self._probes.items():
            self._values[name] = probe.define(strip)

    def select(self, index: Int[Tensor, "new_batch"]) -> None:
        """Keep these batch rows, in this order (a beam search moved its hypotheses)."""
        self._values.clear()
        for state in self._states.values():
            state.select(index)

    def values(self) -> dict[str, Any]:
        """Every probe's value by attribute."""
        return {name: getattr(self, name) for name in self._probes}

    def __getattr__(self, name: str) -> Any:
        states = self.__dict__.get("_states", {})
        if name not in states:
            known = ", ".join(states) or "none"
            raise AttributeError(f"no probe called {name!r} was asked; there are: {known}")
        if name not in self._values:
            self._values[name] = states[name].value()
        return self._values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._probes]

    def __repr__(self) -> str:
        return f"Observation({', '.join(map(repr, self.probes))})"


def measure(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    probes: Iterable[Probe] = (),
    *,
    into: Observation | None = None,
    lse: Float[Tensor, "batch num_heads q_len"] | None = None,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    q_start: QStart = "end",
    kv_start: int = 0,
) -> Observation:
    """Probes of the weights of ``attend(query, key, …)``, without its output.

    Args:
        query: As for ``attend``, and so is every argument not named here.
        key: As for ``attend``.
        probes: What to ask of the weights.
        into: An observation to add this call to (a further step of a generation), instead of ``probes``.
        lse: The log denominators of whole rows, when ``key`` holds only a shard of their keys.
        mask: As for ``attend``.
        bias: As for ``attend``.
        scale: As for ``attend``.
        logit_softcap: As for ``attend``.
        sinks: As for ``attend``.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.

    Returns:
        The observation; values are detached.

    Raises:
        ShapeError, DTypeError, ConfigError: as ``attend``; ConfigError if both ``probes`` and ``into`` are given.
        UnsupportedError: as ``attend``; if ``into`` is given inside ``torch.compile``.

    Numerics:
        As ``attend``. A matrix of at most 2^20 weights is computed in the order in which models write attention out:
        product, scale, bias, softmax; without grouped heads its weights are equal to theirs bit for bit.

    Cost:
        One product of queries and keys and what the probes do; extra memory linear in the lengths.
    """
    if into is not None and torch.compiler.is_compiling():
        raise UnsupportedError(
            message("measure", "`into` gathers values over calls, which torch.compile cannot trace.")
        )
    if into is not None and tuple(probes):
        raise ConfigError(message("measure", "`probes` and `into` exclude each other."))
    call = make_call(
        "measure",
        query,
        key,
        None,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        q_start=q_start,
        kv_start=kv_start,
    )
    if lse is not None and lse.shape != call.query.shape[:3]:
        raise ShapeError(
            message("measure", must_be("lse", f"of shape {tuple(call.query.shape[:3])}", tuple(lse.shape)))
        )
    if lse is not None:
        check_dense("measure", "lse", lse)
        check_device("measure", "lse", lse, call.query.device)
    seen = Observation(probes, caller="measure") if into is None else into
    return measure_call(call, seen, lse=lse)


def measure_call(call: Call, seen: Observation, *, lse: Tensor | None = None) -> Observation:
    """Show every strip of a checked call to an observation."""
    if not seen.probes:
        return seen
    if torch.compiler.is_compiling():
        with torch.no_grad(), torch.autocast(call.query.device.type, enabled=False):
            seen.define(_whole(call.with_dense_bias(), lse))
        return seen
    with torch.no_grad(), torch.autocast(call.query.device.type, enabled=False):
        # A matrix of one strip is equal bit for bit to what models write out; the kernels take the longer ones.
        short = call.is_empty or call.geometry.q_len <= _rows_of_a_strip(call)
        by_strips = short or lse is not None or bool(native.reasons_against_measuring(call))
        questions = {} if by_strips else _native_questions(call, seen)
        if questions:
            done = native.forward(call, list(questions.values()), output=False)
            seen.absorb(dict(zip(questions, done.answers, strict=True)))
        _show_strips(call, seen, questions, lse)
    return seen


def observe_call(call: Call, seen: Observation) -> Tensor:
    """The output by the native kernels and every probe of an observation, in one pass where probes allow it."""
    with torch.no_grad(), torch.autocast(call.query.device.type, enabled=False):
        questions = _native_questions(call, seen)
        done = native.forward(call, list(questions.values()))
        seen.absorb(dict(zip(questions, done.answers, strict=True)))
        _show_strips(call, seen, questions, None)
    assert done.output is not None
    return done.output


def _native_questions(call: Call, seen: Observation) -> dict[str, Question]:
    """What the native kernels can answer."""
    return {name: question for name, question in seen.questions(call.geometry).items() if native.answers(question)}


def _show_strips(call: Call, seen: Observation, answered: Container[str], lse: Tensor | None) -> None:
    """Strips for the probes that have no answer yet."""
    names = [probe.attribute for probe in seen.probes if probe.attribute not in answered]
    if names:
        for strip in strips(call.with_dense_bias(), lse=lse):
            seen.update(strip, names=names)


def weight_strips(
    query: Float[Tensor, "batch num_heads q_len head_dim"],
    key: Float[Tensor, "batch num_kv_heads kv_len head_dim"],
    *,
    mask: masks.Mask | Tensor | None = None,
    bias: ALiBi | Tensor | None = None,
    scale: float | None = None,
    logit_softcap: float | None = None,
    sinks: Tensor | None = None,
    q_start: QStart = "end",
    kv_start: int = 0,
) -> Iterator[Strip]:
    """The weight matrix some whole rows at a time, each strip as wide as the keys that any of its rows may see.

    Args:
        query: As for ``attend``, and so are all others.
        key: As for ``attend``.
        mask: As for ``attend``.
        bias: As for ``attend``.
        scale: As for ``attend``.
        logit_softcap: As for ``attend``.
        sinks: As for ``attend``.
        q_start: As for ``attend``.
        kv_start: As for ``attend``.

    Yields:
        Strips in order of the query index; detached. Their tensors may be overwritten when the next one is asked for.

    Raises:
        ShapeError, DTypeError, ConfigError, UnsupportedError: as ``attend``.

    Cost:
        One product of queries and keys; extra memory linear in the lengths.
    """
    call = make_call(
        "weight_strips",
        query,
        key,
        None,
        mask=mask,
        bias=bias,
        scale=scale,
        logit_softcap=logit_softcap,
        sinks=sinks,
        q_start=q_start,
        kv_start=kv_start,
    )
    walk = strips(call.with_dense_bias())
    while True:  # the consumer runs between the strips, with its own settings
        with torch.no_grad(), torch.autocast(call.query.device.type, enabled=False):
            strip = next(walk, None)
        if strip is None:
            return
        yield strip


def strips(call: Call, *, lse: Tensor | None = None) -> Iterator[Strip]:
    """The weight matrix of a call as strips, in order of the query index."""
    geometry = call.geometry
    if call.is_empty:
        yield _whole(call, lse)
        return
    query = call.query.detach().to(geometry.dtype)
    key = call.key.detach().to(geometry.dtype)
    # A matrix of one strip is made in the order in which models write attention out, so that it is equal to theirs bit
    # for bit. Of a longer one the queries are scaled, which are fewer numbers than the scores.
    at_once = geometry.q_len <= _rows_of_a_strip(call)
    query = query if at_once else query * call.scale
    for rows, keys, partial in _strip_ranges(call):
        yield _strip(call, query, key, rows, keys, partial, lse, scale=call.scale if at_once else None)


def _whole(call: Call, lse: Tensor | None) -> Strip:
    """All rows as one strip, by the definition."""
    seen = reference.dense(call)
    weights = seen.weights
    if lse is not None:
        weights = (seen.logits - _finite_base(lse)[..., None]).exp()
    return Strip(
        call.geometry,
        0,
        0,
        seen.logits.detach(),
        weights.detach(),
        (seen.lse if lse is None else lse).detach(),
        seen.sink_share.detach(),
    )


def _strip_ranges(call: Call) -> Iterator[tuple[slice, slice, slice]]:
    """Rows of each strip, the keys from the first to the last any row may see, and those some row may not see."""
    geometry = call.geometry
    rows = _rows_of_a_strip(call)
    blocks = plan(call, rows, K_BLOCK)
    for number, start in enumerate(range(0, geometry.q_len, rows)):
        used = [index for index, some in enumerate(blocks.some[number]) if some]
        first, last = (used[0], used[-1] + 1) if used else (0, 0)
        partial = [index for index in range(first, last) if call.bias is not None or not blocks.every[number][index]]
        yield (
            slice(start, min(start + rows, geometry.q_len)),
            _key_range(first, last, geometry.kv_len),
            _key_range(partial[0], partial[-1] + 1, geometry.kv_len) if partial else slice(0, 0),
        )


def _rows_of_a_strip(call: Call) -> int:
    geometry = call.geometry
    per_row = geometry.batch * geometry.num_heads * geometry.kv_len
    return max(1, min(geometry.q_len, STRIP_CELLS // per_row))


def _key_range(first: int, last: int, kv_len: int) -> slice:
    return slice(first * K_BLOCK, min(last * K_BLOCK, kv_len))


def _strip(
    call: Call,
    query: Tensor,
    key: Tensor,
    rows: slice,
    keys: slice,
    partial: slice,
    lse: Tensor | None,
    *,
    scale: float | None,
) -> Strip:
    queries = stack_group(query[:, :, rows], call.group)
    logits = tile_logits(call, queries, key[:, :, keys], None, rows, keys, scale=scale).logits
    sees = torch.full(logits.shape[:3], partial.stop - partial.start < logits.shape[3], device=logits.device)
    masked: Tensor | None = None
    inside = slice(partial.start - keys.start, partial.stop - keys.start)
    if partial.stop > partial.start:
        allowed = call.allowed(rows, partial)
        masked = None if allowed is None else ~allowed
    if masked is not None:
        logits[..., inside].masked_fill_(masked, -torch.inf)
        sees |= ~masked.all(dim=3)
    if call.sinks is not None:  # a row whose scores have all overflowed to −inf gives everything to the sink
        sees &= ~(logits.amax(dim=3) == -torch.inf) if logits.shape[3] else False
    weights, total = _softmax(logits, sees)
    sinks = _sink_rows(call, rows, total)
    if sinks is not None:
        without, total = total, torch.logaddexp(total, sinks)
        weights.mul_((without - total).exp()[..., None])
    if lse is not None:
        total = lse[:, :, rows].to(logits.dtype)
        weights = (logits - _finite_base(total)[..., None]).exp_()
    if masked is not None:  # softmax makes a whole row NaN, the part behind the mask too
        weights[..., inside].masked_fill_(masked, 0)
    share = torch.zeros_like(total) if sinks is None else (sinks - _finite_base(total)).exp()
    return Strip(call.geometry, rows.start, keys.start, logits, weights, total, share)


def _sink_rows(call: Call, rows: slice, like: Tensor) -> Tensor | None:
    if call.sinks is None:
        return None
    sinks = call.sinks[:, :, rows] if call.sinks.shape[2] > 1 else call.sinks
    return sinks.detach().to(like.dtype).expand(like.shape)


def _softmax(logits: Tensor, sees: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and lse of whole rows; a row that sees nothing has weights 0 and lse −inf."""
    if logits.shape[3] == 0:
        return logits.clone(), logits.new_full(logits.shape[:3], -torch.inf)
    weights = torch.softmax(logits, dim=3)
    # The largest weight is exp(top − lse): this costs two passes, where logsumexp would take every exp again.
    lse = logits.amax(dim=3) - weights.amax(dim=3).log()
    if not bool(sees.all()):
        weights.masked_fill_(~sees[..., None], 0)
        lse.masked_fill_(~sees, -torch.inf)
    return weights, lse


def _finite_base(lse: Tensor) -> Tensor:
    """The lse with −inf (an empty row) replaced, so that −inf − lse stays −inf."""
    return lse.masked_fill(lse == -torch.inf, 0)
