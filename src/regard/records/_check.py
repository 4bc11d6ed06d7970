"""Whether the parts of a recording agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from regard.records.recording import Call, Recording, Sequence, attribute_of

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALVES = "the text holds a surrogate pair as two code points; it must hold the character itself"

#: Type of probe → suffix of the value → its axes. b batch, h head, q query, k key, r queries or query spans, s key
#: spans; "?" any length.
_AXES: dict[str, dict[str, str]] = {
    "Entropy": {"": "bhq"},
    "LogSumExp": {"": "bhq"},
    "Distance": {"": "bhq"},
    "FirstKeys": {"": "bhq"},
    "SinkShare": {"": "bhq"},
    "TopK": {".indices": "bhq?", ".weights": "bhq?", ".rest": "bhq"},
    "OffsetMass": {"": "bhq?"},
    "SpanMass": {"": "bhrs"},
    "MatchMass": {"": "bhq"},
    "KeyMass": {"": "bhk"},
    "Crop": {"": "bh??"},
    "HeatMap": {"": "bh??"},
    "Rows": {"": "bh?k", ".indices": "?"},
}
_TYPE_OF = {attribute_of(name): name for name in _AXES}
_FLOATS = ("float32", "float64", "float16", "uint16")


def problems(recording: Recording) -> list[str]:
    """Everything about a recording that contradicts something else in it, as sentences."""
    found: list[str] = []
    for number, item in enumerate(recording.sequences):
        names = [sequence.name for sequence in item]
        if len(set(names)) < len(names):
            found.append(f"item {number} has two sequences of one name: {names}")
        for sequence in item:
            found += (f"item {number}, sequence {sequence.name!r}: {text}" for text in _sequence(sequence))
    for table in recording.tables:
        if any(_PAIR.search(text) for text in (table.name, table.note, *table.rows, *table.columns)):
            found.append(f"table {table.name!r}: {_HALVES}")
        found += (f"table {table.name!r}: {text}" for text in table.problems())
    batch = len(recording.sequences) or None
    for number, call in enumerate(recording.calls):
        found += (f"call {number} ({call.name}): {text}" for text in _call(call, batch))
    return found


def _sequence(sequence: Sequence) -> Iterator[str]:
    texts = [sequence.text, *(token.text for token in sequence.tokens)]
    if any(_PAIR.search(text) for text in texts):
        yield _HALVES
    length = len(sequence.text.encode("utf-8", "surrogatepass")) if sequence.text else None
    for number, token in enumerate(sequence.tokens):
        if (token.start, token.end) == (-1, -1):
            continue
        if not 0 <= token.start <= token.end or (length is not None and token.end > length):
            yield f"token {number} spans bytes {token.start} to {token.end} of a text of {length or 0} bytes"


def _call(call: Call, batch: int | None) -> Iterator[str]:
    if call.num_heads < 1 or call.num_kv_heads < 1 or call.num_heads % call.num_kv_heads:
        yield f"{call.num_kv_heads} key heads do not divide {call.num_heads} query heads"
    if call.kv_len < 0 or call.kv_start < 0:
        yield f"kv_len ({call.kv_len}) and kv_start ({call.kv_start}) must not be negative"
    if call.q_positions.ndim != 2 or call.q_positions.dtype.name != "int64":
        yield f"q_positions must be int64 [batch or 1, q], but is {_shown(call.q_positions)}"
        return
    sizes = {"h": call.num_heads, "q": call.q_len, "k": call.kv_len}
    if batch is not None:
        sizes["b"] = batch
        if call.q_positions.shape[0] not in (1, batch):
            yield f"q_positions has {call.q_positions.shape[0]} rows for {batch} items"
    for name in call.values:
        yield from _value(call, name, sizes)
    for name in (*call.exact, *call.pooled):
        if not any(key == name or key.startswith(name + ".") for key in call.values):
            yield f"{name!r} is said to be exact or pooled, but has no value"
    if call.mask is not None:
        if not call.mask_stored:
            yield "there is a mask, but mask_stored is false"
        yield from (f"mask: {text}" for text in call.mask.problems())


def _value(call: Call, name: str, sizes: dict[str, int]) -> Iterator[str]:
    """Check one value; learns the batch size from the first value where no sequence tells it."""
    value = call.values[name]
    attribute, dot, suffix = name.partition(".")
    kind = str(call.probes.get(attribute, {}).get("type", _TYPE_OF.get(attribute, "")))
    axes = _AXES.get(kind, {}).get(dot + suffix)
    if axes is None:
        return  # a probe of the user's own: any array
    if suffix == "indices" and value.dtype.name != "int64":
        yield f"{name} must be int64, but is {_shown(value)}"
    if suffix != "indices" and value.dtype.name not in _FLOATS:
        yield f"{name} must be float32 or float64, but is {_shown(value)}"
    if value.ndim != len(axes):
        yield f"{name} must have {len(axes)} axes, but is {_shown(value)}"
        return
    if axes.startswith("b"):
        sizes.setdefault("b", value.shape[0])
    if kind == "SpanMass":
        sizes = {**sizes, **_span_sizes(call.probes.get(attribute, {}), sizes["q"])}
    wrong = [axis for axis, length in zip(axes, value.shape, strict=True) if sizes.get(axis, length) != length]
    if wrong:
        wanted = ", ".join(str(sizes.get(axis, "any")) for axis in axes)
        yield f"{name} must have the shape ({wanted}), but is {_shown(value)}"
    if kind == "Rows" and not suffix:
        indices = call.values.get(f"{name}.indices")
        if value.shape[2] != (sizes["q"] if indices is None else len(indices)):
            yield f"{name} holds {value.shape[2]} rows, which is not the number of queries or of {name}.indices"


def _span_sizes(options: Mapping[str, Any], q_len: int) -> dict[str, int]:
    """How many rows and columns spans make, where the options tell them."""
    sizes = {
        axis: len(spans)
        for axis, name in (("s", "key_spans"), ("r", "query_spans"))
        if isinstance(spans := options.get(name), list | tuple)
    }
    return {"r": q_len, **sizes} if "query_spans" in options else sizes


def _shown(value: object) -> str:
    return f"{getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}"
