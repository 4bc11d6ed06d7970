"""Recording → payload (schema 1): everything the page draws, and honest remarks about what it does not."""

from __future__ import annotations

import json
from collections.abc import Sequence as Items
from typing import Any

import numpy as np

from regard.errors import ConfigError, message, must_be
from regard.records import Recording, Sequence
from regard.records.quantise import RELATIVE_ERROR
from regard.view import _call, _tables, _tokens
from regard.view._blobs import Blobs
from regard.view._call import Detail
from regard.view._seen import Seen

SCHEMA = 1

#: From everything to the least; the first that fits the size is taken.
DETAILS = (
    Detail(),
    Detail(k=8),
    Detail(k=4),
    Detail(exact_limit=0, map_side=128, k=4),
    Detail(exact_limit=0, map_side=128, k=2),
    Detail(exact_limit=0, map_side=128, k=1),
    Detail(exact_limit=0, map_side=128, k=1, curves=False),
    Detail(exact_limit=0, map_side=128, k=0, curves=False),
    *(Detail(exact_limit=0, map_side=64, k=0, curves=False, share=share) for share in (1, 2, 4, 8, 16, 32)),
)


def payload(recording: Recording, *, title: str | None, max_characters: float) -> dict[str, Any]:
    """The payload of a page whose numbers take at most ``max_characters``.

    Raises:
        ConfigError: Not even the least detail fits.
    """
    calls = [Seen(call) for call in recording.calls]
    head = _head(recording, title)
    room = max_characters - len(json.dumps(head))
    characters = 0.0
    for detail in DETAILS:
        kept = calls[:: detail.share]
        if detail is not DETAILS[-1] and len(kept) > 1 and 0.8 * _expected(kept, detail) > room:
            continue
        blobs = Blobs()
        written = [_call.written(seen, number, detail, blobs) for number, seen in enumerate(kept)]
        characters = blobs.characters + sum(len(json.dumps(call)) for call in written)
        if characters <= room:
            notes = [*head["notes"], *_remarks(kept, detail, dropped=len(calls) - len(kept))]
            return {**head, "notes": notes, "calls": written, "blobs": blobs.records}
    expected = f"at least {(characters + max_characters - room) / 1e6:.1f} for this recording"
    raise ConfigError(message("page", must_be("max_mb", expected, f"{max_characters / 1e6:.1f}")))


def _expected(kept: Items[Seen], detail: Detail) -> float:
    """About how many characters the calls will take: the middle one is tried, the others are like it by size."""
    trial, blobs = kept[len(kept) // 2], Blobs()
    _call.written(trial, 0, detail, blobs)
    size = max(trial.call.num_heads * trial.call.q_len, 1)
    return blobs.characters / size * sum(seen.call.num_heads * seen.call.q_len for seen in kept)


def _head(recording: Recording, title: str | None) -> dict[str, Any]:
    """Everything but the calls."""
    model, items, notes = recording.model, [], list(recording.notes)
    for item in range(_tokens.batch_size(recording)):
        sequences = _tokens.sequences_of(recording, item)
        written: dict[str, Any] = {}
        for name, sequence in sequences.items():
            padding = _tokens.padding_of(recording, item, sequence)
            asked = _tokens.rows_of(recording, item, name, len(sequence.tokens))
            written[name] = _tokens.written(sequence, padding=padding, asked=asked)
            notes += _sequence_remarks(recording, item, sequence, padding, asked)
        items.append({"sequences": written})
    return {
        "schema": SCHEMA,
        "regard": recording.regard_version,
        "title": title if title is not None else _title(recording),
        "model": {"name": model.name, "sha256": model.weights_sha256, "architecture": model.architecture},
        "created": recording.created,
        "notes": notes,
        "coverage": [{"name": e.name, "status": e.status, "reason": e.reason} for e in recording.coverage],
        "items": items,
        "tables": [_tables.written(table) for table in recording.tables],
    }


def _title(recording: Recording) -> str:
    texts = (sequence.text for item in recording.sequences for sequence in item if sequence.text)
    text = " ".join(next(texts, "").split())
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return f"{recording.model.name}: {shown}" if shown else recording.model.name


def _sequence_remarks(
    recording: Recording, item: int, sequence: Sequence, padding: np.ndarray, asked: np.ndarray
) -> list[str]:
    """What a reader must know about one sequence: padding that is hidden, tokens that have no row, tokens that lack."""
    where = f"Item {item}, {sequence.name}: " if _tokens.batch_size(recording) > 1 else f"{sequence.name}: "
    remarks: list[str] = []
    first = int(padding[: _tokens.last_real(padding)].sum())
    if hidden := int(padding.sum()) - first:
        remarks.append(f"{where}{hidden} padding token{'s' * (hidden > 1)} hidden.")
    if first:
        remarks.append(
            f"{where}the first {first} token{'s are' if first > 1 else ' is'} padding and hidden; "
            f"positions count {'them' if first > 1 else 'it'}."
        )
    mute = np.flatnonzero(~asked & ~padding)
    if asked.any() and len(mute):
        which = ", ".join(str(number) for number in mute[:8].tolist()) + (", …" if len(mute) > 8 else "")
        last = len(mute) == 1 and mute[0] == _tokens.last_real(padding) - 1
        why = "it was generated last and is not yet a query" if last else "no recorded call asks from there"
        remarks.append(f"{where}no row for token {which}: {why}.")
    return remarks + _length_remarks(recording, sequence, where)


def _length_remarks(recording: Recording, sequence: Sequence, where: str) -> list[str]:
    reach = max((c.kv_start + c.kv_len for c in recording.calls if c.sequence_k == sequence.name), default=0)
    count = len(sequence.tokens)
    if count >= reach:
        return []
    return [f"{where}the model saw {reach} positions, but {count} tokens are recorded: the others are not shown."]


def _remarks(kept: Items[Seen], detail: Detail, *, dropped: int) -> list[str]:
    """What is approximate in this page and what was left out of it."""
    rough = [seen for seen in kept if not _call.is_exact(seen, detail)]
    mapped = [seen for seen in rough if _call.has_map(seen)]
    notes: list[str] = []
    if mapped:
        notes.append(
            f"Maps marked ≈ show means over bins of queries and keys, stored in one byte (within "
            f"{100 * RELATIVE_ERROR:.1f} %; a weight below 6e-8 is shown as 6e-8, 0 is exactly 0)."
        )
    if any(_call.is_shifted(seen) for seen in mapped):
        notes.append("Maps of generated text were made for a longer text: they may be off by one bin.")
    if any(_call.flags(seen) for seen in mapped):
        notes.append("A map has no room for NaN: it shows 0 there; the list of flags says where.")
    if detail.k != 0 and any(seen.top_k for seen in rough):
        notes.append("The listed top keys of every query and the mass of the rest are exact.")
    if any(seen.top_k is None and not _call.has_map(seen) for seen in rough):
        notes.append("Some calls were recorded without weights, top keys or map: only their curves are shown.")
    if any(not seen.call.mask_stored for seen in kept):
        notes.append("Some masks could not be stored: a key that was masked looks like one that got no weight.")
    return notes + _left_out(kept, detail, dropped=dropped)


def _left_out(kept: Items[Seen], detail: Detail, *, dropped: int) -> list[str]:
    """What the size of the page did not allow."""
    notes: list[str] = []
    if detail.exact_limit == 0 and any(_call.is_exact(seen, Detail()) for seen in kept):
        notes.append("Left out to keep the page small: exact weights; maps stand in for them.")
    if detail.k is not None and any(seen.top_k and seen.top_k.indices.shape[-1] > detail.k for seen in kept):
        what = f"all but the first {detail.k} of the top keys" if detail.k else "the top keys"
        notes.append(f"Left out to keep the page small: {what} of every query.")
    if not detail.curves:
        notes.append("Left out to keep the page small: mass per key, on the first token and on sinks.")
    if dropped:
        notes.append(f"Left out to keep the page small: {dropped} of {dropped + len(kept)} attention calls.")
    return notes
