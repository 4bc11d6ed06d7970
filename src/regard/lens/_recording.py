"""From a session to a recording: the same facts as numpy arrays, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from torch import Tensor

import regard
from regard.lens._call import stack_of
from regard.lens._coverage import coverage
from regard.lens._layers import AttentionStep, Layer
from regard.lens._session import Session
from regard.ops import Allowed, Mask, Probe, lower_mask
from regard.ops.probes import HeatMap, Rows
from regard.records import Call, MaskProgram, Model, Op, Recording, instructions
from regard.records import Sequence as TokenSequence

CHECKED_CELLS = 1 << 24


def recording_of(
    session: Session,
    *,
    sequences: Sequence[Sequence[TokenSequence]],
    model_name: str | None,
    notes: Sequence[str],
) -> Recording:
    """Everything a session saw, as data.

    Args:
        session: The session.
        sequences: Per batch item, the sequences of its tokens.
        model_name: Name to show; the model's class if None.
        notes: Remarks to keep.

    Returns:
        A recording. A call whose batch is not that of ``sequences`` (images of a text model, say) is left out, and a
        note says so.
    """
    items = len(sequences)
    names = sequence_names(session.layers, sequences)
    calls, left_out = [], []
    for layer in session.layers:
        if items and layer.batch != items:
            left_out.append(layer.name)
        else:
            calls.append(_call(layer, names[id(layer)], session.probes))
    if left_out:
        shown = ", ".join(dict.fromkeys(left_out))
        notes = (*notes, f"left out, because their batch is not the {items} given items: {shown}")
    return Recording(
        model=Model(model_name or session.architecture, architecture=session.architecture),
        sequences=tuple(tuple(item) for item in sequences),
        calls=tuple(calls),
        coverage=coverage(session),
        notes=tuple(notes),
        regard_version=regard.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _call(layer: Layer, names: tuple[str, str], probes: Iterable[Probe]) -> Call:
    values: dict[str, np.ndarray] = {}
    for probe in probes:
        values.update(arrays_of(probe, getattr(layer.observation, probe.attribute)))
    mask, stored = _mask(layer)
    notes = [] if layer.index == 0 else [f"run {layer.index + 1} of this module"]
    if any(step.has_bias for step in layer.calls) and layer.via != "softmax":
        notes.append("a bias was added to the scores; it is not stored")
    pooled = tuple(probe.attribute for probe in probes if isinstance(probe, HeatMap))
    return Call(
        name=layer.name,
        kind=layer.kind,
        sequence_q=names[0],
        sequence_k=names[1],
        q_positions=layer.q_positions.numpy(),
        kv_start=layer.kv_start,
        kv_len=layer.kv_len,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        scale=float(layer.scale),
        logit_softcap=layer.logit_softcap,
        has_sinks=layer.has_sinks,
        mask=mask,
        mask_stored=stored,
        values=values,
        probes={probe.attribute: description_of(probe) for probe in probes},
        exact=tuple(probe.attribute for probe in probes if probe.attribute not in pooled),
        pooled=pooled,
        layer=layer.number,
        notes=tuple(notes),
    )


def arrays_of(probe: Probe, value: Any) -> dict[str, np.ndarray]:
    """A probe's value as named arrays: one, or one per field of its dataclass."""
    name = probe.attribute
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {f"{name}.{part}": _array(tensor) for part, tensor in parts if isinstance(tensor, Tensor)}
    found = {name: _array(value)}
    if isinstance(probe, Rows) and probe.indices is not None:
        found[f"{name}.indices"] = np.asarray([*probe.indices], dtype=np.int64)
    return found


def _array(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.detach().cpu().numpy())


def description_of(probe: Probe) -> dict[str, Any]:
    """A probe as JSON: its class and its options."""
    options = {field.name: _plain(getattr(probe, field.name)) for field in fields(probe)}  # type: ignore[arg-type]
    options.pop("name", None)
    return {"type": type(probe).__name__, **options}


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value


def _mask(layer: Layer) -> tuple[MaskProgram | None, bool]:
    """The mask of all of a layer's rows as a program, and whether what there was of masks is in it."""
    if layer.via == "softmax" or not all(step.mask_kept for step in layer.calls):
        return None, False
    if all(step.mask is None for step in layer.calls):
        return None, True
    programs = [program for step in layer.calls if (program := program_of(layer, step)) is not None]
    if len(programs) < len(layer.calls):
        return None, False
    joined = programs[0] if len(programs) == 1 else _joined(layer, programs)
    return joined, joined is not None


def _joined(layer: Layer, programs: Sequence[MaskProgram]) -> MaskProgram | None:
    """One program for all steps of a generation, if there is one: checked on every step, not assumed.

    A step may leave out what does not restrict it (a window wider than its keys), so the longest program is tried.
    """
    longest = max(programs, key=lambda program: len(program.code))
    if any(op in (Op.DOCUMENTS, Op.ALLOWED, Op.PREFIX) for op, _ in instructions(longest.code)):
        return None
    tables = []
    for number, table in enumerate(longest.arrays):
        keep = np.ones((table.shape[0], layer.kv_len), dtype=bool)
        for step, program in zip(layer.calls, programs, strict=True):
            if program.code == longest.code and program.arrays[number].shape[0] == table.shape[0]:
                keep[:, step.kv_start - layer.kv_start : step.kv_end - layer.kv_start] = program.arrays[number]
        tables.append(keep)
    joined = MaskProgram(longest.code, tuple(tables))
    agree = all(_same(joined, program, layer, step) for step, program in zip(layer.calls, programs, strict=True))
    return joined if agree else None


def _same(joined: MaskProgram, program: MaskProgram, layer: Layer, step: AttentionStep) -> bool:
    """Whether two programs allow the same cells of one step."""
    if program.code == joined.code and not program.arrays:
        return True
    queries = np.arange(step.q_start, step.q_end)[None]
    keys = np.arange(step.kv_start, step.kv_end)
    if queries.size * keys.size > CHECKED_CELLS:
        return False
    columns = slice(step.kv_start - layer.kv_start, step.kv_end - layer.kv_start)
    ours, theirs = joined.allowed(queries, keys, keys=columns), program.allowed(queries, keys)
    return bool((ours == theirs).all())


def program_of(layer: Layer, step: AttentionStep) -> MaskProgram | None:
    """The mask of one call as a program; None for a mask that only a Python function knows."""
    if step.mask is None:
        return MaskProgram((int(Op.EVERYTHING),))
    mask: Mask = Allowed(step.mask) if isinstance(step.mask, Tensor) else step.mask
    shape = (step.batch, layer.num_heads, step.q_end - step.q_start, step.kv_end - step.kv_start)
    return lower_mask(mask, shape, q_start=step.q_start, kv_start=step.kv_start)


def sequence_names(layers: Sequence[Layer], sequences: Sequence[Sequence[TokenSequence]]) -> dict[int, tuple[str, str]]:
    """Which sequence each layer's queries and keys belong to.

    With cross-attention there are two: the first given is the source, the last the target. Otherwise every layer reads
    the one sequence, except a stack of another length (the image tower of a text model), which is named after itself.
    """
    given = sequences[0] if sequences else ()
    targets = {stack_of(layer.name) for layer in layers if layer.kind == "cross"}
    source, target = (given[0].name, given[-1].name) if len(given) > 1 else ("source", "target")
    single = given[0].name if given else "input"
    stacks = [*dict.fromkeys(stack_of(layer.name) for layer in layers)]
    names = {}
    for layer in layers:
        stack = stack_of(layer.name)
        if layer.kind == "cross":
            names[id(layer)] = target, source
        elif targets:
            names[id(layer)] = (target, target) if stack in targets else (source, source)
        else:
            fits = layer.kv_end <= len(given[0].tokens) if given else stack == stacks[-1]
            names[id(layer)] = (single, single) if fits or len(stacks) == 1 else (stack, stack)
    return names
