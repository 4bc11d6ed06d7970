"""check_probe(): what every probe must get right, for probes of this package and of others."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.ops._strip import Strip
from regard.ops.probes._base import Probe, State
from regard.ops.probes._matrices import Matrix, causal, matrices

Tensors = dict[str, Tensor]


def check_probe(probe: Probe, *, generation: bool = True, seed: int = 0) -> None:
    """Check that a probe's streaming form is its definition, whatever way the matrix is cut.

    On random matrices (empty rows, sinks, ties, underflow, a NaN row, no rows, no keys, slid caches, positions that
    differ between batch rows; every position below 512) the state is shown strips of several heights, narrowed to the
    keys they use, and must give what ``define`` gives on the whole matrix: in float64 to 1e-12, in float32 to single
    precision. The same for a matrix that comes as the calls of a generation, for batch rows that move in between, and,
    for row probes, for values of key shards that are merged (where no scores tie: rounding of the shares parts them).
    The state must copy what it keeps, change nothing it is shown, and return detached tensors that later updates leave
    alone.

    ``define`` itself is taken as the truth: test it against a few lines of your own.

    Args:
        probe: The probe, with arguments that are small enough for matrices of a few rows and keys.
        generation: False for a probe that refuses a second call; it is then checked that it does.
        seed: Of the random matrices.

    Raises:
        AssertionError: says which matrix, which way of cutting it, and the first entry that differs.

    Example:
        >>> from regard.ops.probes import Entropy, check_probe
        >>> check_probe(Entropy())
    """
    _check_value_object(probe)
    for name, matrix in matrices(seed):
        truth = probe.define(matrix.whole())
        for height in (1, 4, max(1, matrix.logits.shape[2])):
            _check_strips(probe, matrix, truth, height, f"{name}, strips of {height} rows")
        if probe.kind == "row" and not matrix.tied:
            _check_merge(probe, matrix, truth, f"{name}, merged key shards")
    _check_keeping(probe, seed)
    _check_generation(probe, seed, generation)
    _check_select(probe, seed, generation)


def _check_value_object(probe: Probe) -> None:
    """A probe is a frozen value: hashable, equal to its copy, named, with an empty state that says so."""
    assert hash(probe) == hash(copy.copy(probe)), f"{probe!r}: equal probes must have equal hashes"
    assert probe == copy.copy(probe), f"{probe!r}: must be equal to its copy"
    assert probe.attribute.isidentifier(), f"{probe!r}: attribute must be a Python name, but is {probe.attribute!r}"
    assert probe.kind in ("row", "column", "either"), f"{probe!r}: kind must be row, column or either"
    try:
        probe.begin().value()
    except ConfigError:
        return
    raise AssertionError(f"{probe!r}: value() of a state that saw nothing must raise ConfigError")


def _check_strips(probe: Probe, matrix: Matrix, truth: Any, height: int, where: str) -> None:
    """Strips of one height, in both precisions, twice."""
    first = _stream(probe, matrix.strips(height))
    _same(probe, first, truth, where, digits=12)
    _same(probe, _stream(probe, matrix.strips(height)), first, f"{where}, a second time", digits=None)
    single = _stream(probe, matrix.strips(height, torch.float32))
    _same(probe, single, truth, f"{where}, float32", digits=5, dtype=torch.float32)


def _check_merge(probe: Probe, matrix: Matrix, truth: Any, where: str) -> None:
    """Two shards of keys and an empty one between them; the sink belongs to the first."""
    middle, end = matrix.logits.shape[3] // 3, matrix.logits.shape[3]
    lse = matrix.whole().lse
    values, shares, sink_shares = [], [], []
    for place, keys in enumerate((slice(0, middle), slice(middle, middle), slice(middle, end))):
        shard = matrix.call(slice(0, matrix.logits.shape[2]), keys)
        if place > 0:
            shard = replace(shard, sinks=None)
        whole = shard.whole()
        values.append(_stream(probe, shard.strips(4)))
        shares.append(torch.where(whole.lse == -torch.inf, 0.0, torch.exp(whole.lse - lse)))
        sink_shares.append(whole.sink_share)
    merged = probe.merge(values, shares, None if matrix.sinks is None else sink_shares)
    _same(probe, merged, truth, where, digits=11)


def _check_keeping(probe: Probe, seed: int) -> None:
    """What the state keeps is its own, what it is shown stays as it is, what it returned stays too."""
    matrix = causal(seed)
    state, early = probe.begin(), None
    for strip in matrix.strips(4):
        shown = [strip.logits, strip.weights, strip.lse, strip.sink_share]
        before = [tensor.clone() for tensor in shown]
        for tensor in shown:
            tensor.requires_grad_()
        state.update(strip)
        if early is None:
            early = state.value()
            kept = {name: tensor.clone() for name, tensor in _tensors(early).items()}
        for tensor, old in zip(shown, before, strict=True):
            assert torch.equal(tensor.detach(), old), f"{probe!r}: update() must not change the strip"
            tensor.detach().fill_(torch.nan)
    _same(probe, state.value(), probe.define(matrix.whole()), "strips that are overwritten after update()", digits=12)
    _same(probe, early, kept, "an early value after more updates", digits=None)
    for name, tensor in _tensors(state.value()).items():
        assert not tensor.requires_grad, f"{probe!r}: {name} must be detached"


def _check_generation(probe: Probe, seed: int, generation: bool) -> None:
    """A matrix that comes as a prompt and steps, with a growing and with a sliding cache."""
    if not generation:
        matrix = causal(seed)
        state = _shown(probe.begin(), _steps(matrix)[0])
        try:
            _shown(state, _steps(matrix)[1])
        except ConfigError:
            return
        raise AssertionError(f"{probe!r}: with generation=False a second call must raise ConfigError")
    kinds: dict[str, tuple[Matrix, int | None]] = {
        "growing cache": (causal(seed), None),
        "positions that differ": (causal(seed, shift=True), None),
        "sliding cache": (causal(seed, window=4), 4),
    }
    for name, (matrix, window) in kinds.items():
        state = probe.begin()
        for step in _steps(matrix, window):
            _shown(state, step)
        _same(probe, state.value(), probe.define(matrix.whole()), f"generation, {name}", digits=12)


def _check_select(probe: Probe, seed: int, generation: bool) -> None:
    """Batch rows that move after the first call and at the end."""
    matrix, index = causal(seed, shift=True), torch.tensor([1, 0, 1])
    calls = _steps(matrix)
    moved = matrix.take(index)
    state = probe.begin()
    if generation:
        _shown(state, calls[0])
        state.select(index)
        for step in _steps(moved)[1:]:
            _shown(state, step)
        _same(probe, state.value(), probe.define(moved.whole()), "select() between calls", digits=12)
    else:
        _shown(state, moved)
    back = torch.tensor([2, 1])
    state.select(back)
    _same(probe, state.value(), probe.define(moved.take(back).whole()), "select() at the end", digits=12)


def _steps(matrix: Matrix, window: int | None = None) -> list[Matrix]:
    """The calls of a generation: a prompt of five, then one, one, and the rest at once."""
    length = matrix.logits.shape[2]
    edges = (0, 5, 6, 7, length)
    calls = []
    for start, stop in pairwise(edges):
        oldest = 0 if window is None else max(0, start + 1 - window)
        calls.append(matrix.call(slice(start, stop), slice(oldest, stop)))
    return calls


def _shown(state: State, matrix: Matrix) -> State:
    for strip in matrix.strips(2):
        state.update(strip)
    return state


def _stream(probe: Probe, strips: Iterator[Strip]) -> Any:
    state = probe.begin()
    for strip in strips:
        state.update(strip)
    return state.value()


def _tensors(value: Any) -> Tensors:
    """A value as named tensors."""
    if isinstance(value, Tensor):
        return {"value": value}
    if isinstance(value, dict):
        return value
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _same(
    probe: Probe, actual: Any, expected: Any, where: str, *, digits: int | None, dtype: torch.dtype = torch.float64
) -> None:
    """Raise unless all tensors agree to so many digits (None: in every bit), NaN where NaN is expected."""
    found, wanted = _tensors(actual), _tensors(expected)
    assert found.keys() == wanted.keys(), f"{probe!r}, {where}: has {sorted(found)} instead of {sorted(wanted)}"
    for name, want in wanted.items():
        have, said = found[name], f"{probe!r}, {where}: {name}"
        assert have.shape == want.shape, f"{said} has shape {tuple(have.shape)} instead of {tuple(want.shape)}"
        right = dtype if have.is_floating_point() else torch.int64
        assert have.dtype == right, f"{said} has dtype {have.dtype} instead of {right}"
        _same_entries(have.to(want.dtype), want, said, 0.0 if digits is None else 10.0**-digits)


def _same_entries(have: Tensor, want: Tensor, said: str, tolerance: float) -> None:
    if not want.is_floating_point():
        tolerance = 0.0
    wrong = ~torch.isclose(have, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(f"{said}{list(place)} is {have[place].item()} instead of {want[place].item()}")
