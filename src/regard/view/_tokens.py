"""Tokens as the page writes them: UTF-16 offsets, visible groups, which are padding and which never asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from regard.records import Call, Op, Recording, Sequence, TextOffsets, Token, group_pieces, instructions
from regard.view._seen import Seen

_TILE = 1024  # queries of a mask that are looked at together


def batch_size(recording: Recording) -> int:
    """How many items: what the sequences say, else what the first value of a probe says."""
    if recording.sequences:
        return len(recording.sequences)
    sizes = [len(value) for call in recording.calls for value in call.values.values() if value.ndim >= 3]
    return sizes[0] if sizes else 1


def sequences_of(recording: Recording, item: int) -> dict[str, Sequence]:
    """The sequences of an item; those that calls name but the recording lacks get numbers for tokens."""
    found = {sequence.name: sequence for sequence in recording.sequences[item]} if recording.sequences else {}
    lengths: dict[str, int] = {}
    for call in recording.calls:
        reach = int(call.q_positions.max()) + 1 if call.q_positions.size else 0
        for name, length in ((call.sequence_q, reach), (call.sequence_k, call.kv_start + call.kv_len)):
            lengths[name] = max(lengths.get(name, 0), length)
    for name, length in lengths.items():
        if name not in found:
            found[name] = Sequence(name, "", tuple(Token(str(i), -1, -1) for i in range(length)))
    return found


def padding_of(recording: Recording, item: int, sequence: Sequence) -> Bool[np.ndarray, "tokens"]:
    """Which tokens are padding: special or dropped by a padding mask, at either end, and no query may see them."""
    calls = [call for call in recording.calls if call.sequence_k == sequence.name]
    candidates = np.array([token.special for token in sequence.tokens], dtype=bool)
    for call in calls:
        _mark_dropped(candidates, call, item)
    padding = np.zeros(len(candidates), dtype=bool)
    for run in _end_runs(candidates):
        unseen = [_unseen(Seen(call), item, run) for call in calls]
        known = [answer for answer in unseen if answer is not None]
        if known:
            padding[run] = np.logical_and.reduce(known)
    return padding


def _mark_dropped(candidates: Bool[np.ndarray, "tokens"], call: Call, item: int) -> None:
    """Add what the padding masks of a call drop: tokens given as plain strings do not say that they are special."""
    if call.mask is None:
        return
    for op, operands in instructions(call.mask.code):
        if op is Op.PADDING:
            keep = call.mask.arrays[operands[0]]
            places = np.flatnonzero(~keep[item if len(keep) > 1 else 0]) + call.kv_start
            candidates[places[places < len(candidates)]] = True


def _end_runs(candidates: Bool[np.ndarray, "tokens"]) -> Iterator[slice]:
    """The stretches of candidates at the start and at the end."""
    plain = np.flatnonzero(~candidates)
    if len(plain) == 0:
        yield slice(0, len(candidates))
        return
    yield slice(0, int(plain[0]))
    yield slice(int(plain[-1]) + 1, len(candidates))


def _unseen(seen: Seen, item: int, run: slice) -> Bool[np.ndarray, "run"] | None:
    """Which tokens of a stretch no query may see in one call; None where the call cannot tell."""
    call, length = seen.call, run.stop - run.start
    keys = slice(max(run.start - call.kv_start, 0), min(run.stop - call.kv_start, call.kv_len))
    if length == 0 or keys.start >= keys.stop:
        return None
    unseen = np.ones(length, dtype=bool)
    here = slice(keys.start + call.kv_start - run.start, keys.stop + call.kv_start - run.start)
    if call.mask is not None:
        positions = np.arange(keys.start, keys.stop, dtype=np.int64) + call.kv_start
        for start in range(0, call.q_len, _TILE):
            rows = slice(start, min(start + _TILE, call.q_len))
            allowed = call.mask.allowed(call.q_positions[:, rows], positions, rows=rows, keys=keys)
            unseen[here] &= ~allowed[item if len(allowed) > 1 else 0].any((0, 1))
        return unseen
    if call.mask_stored:
        return np.zeros(length, dtype=bool)  # there was no mask: everything is seen
    if seen.key_mass is None:
        return None
    unseen[here] = (seen.key_mass[item][:, keys] == 0).all(0)
    return unseen


def rows_of(recording: Recording, item: int, name: str, length: int) -> Bool[np.ndarray, "tokens"]:
    """Which tokens of a sequence are a query somewhere; none where nothing asks from it."""
    asked = np.zeros(length, dtype=bool)
    for call in recording.calls:
        if call.sequence_q == name:
            positions = Seen(call).positions(item)
            asked[positions[(positions >= 0) & (positions < length)]] = True
    return asked


def written(
    sequence: Sequence, *, padding: Bool[np.ndarray, "tokens"], asked: Bool[np.ndarray, "tokens"]
) -> dict[str, Any]:
    """A sequence as the payload holds it. Padding at the end is left out; at the start it is marked."""
    offsets = TextOffsets(sequence.text)
    places: dict[int, tuple[int, int, int]] = {}
    for number, group in enumerate(group_pieces(sequence, offsets)):
        places.update({piece: (number, i, len(group.pieces)) for i, piece in enumerate(group.pieces)})
    last = last_real(padding)
    tokens = [
        _token(
            token,
            sequence,
            offsets,
            places[number],
            padded=bool(padding[number]),
            mute=not asked[number] and bool(asked.any()),
        )
        for number, token in enumerate(sequence.tokens[:last])
    ]
    return {"text": sequence.text, "tokens": tokens}


def last_real(padding: Bool[np.ndarray, "tokens"]) -> int:
    """How many tokens there are up to the last one that is no padding."""
    real: Int[np.ndarray, "real"] = np.flatnonzero(~padding)
    return int(real[-1]) + 1 if len(real) else 0


def _token(
    token: Token, sequence: Sequence, offsets: TextOffsets, place: tuple[int, int, int], *, padded: bool, mute: bool
) -> dict[str, Any]:
    start, end = -1, -1
    if token.start >= 0 and sequence.text:
        start, end = offsets.utf16(offsets.characters((token.start, token.end)))
    group, index, count = place
    result: dict[str, Any] = {
        "t": token.text, "s": start, "e": end, "special": bool(token.special), "g": group, "gi": index, "gn": count,
    }  # fmt: skip
    if padded:
        result["pad"] = True
    if mute and not padded:
        result["no_row"] = True
    return result
