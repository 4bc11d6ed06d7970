"""Recording → folder or zip, written beside the target and renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_safetensors

from regard.errors import all_problems
from regard.records import _schema
from regard.records._check import problems
from regard.records.place import beside, check_recording_place, named_after
from regard.records.recording import Call, Recording, Sequence
from regard.records.table import Table

Sink = Callable[[str, bytes], None]


def save(recording: Recording, path: str | os.PathLike[str], *, as_zip: bool | None, redact_text: bool) -> Path:
    """Write a recording (see ``Recording.save``)."""
    if found := problems(recording):
        raise all_problems("save", found)
    if redact_text:
        recording = redact(recording)
    check_recording_place(path, caller="save")
    target = Path(os.path.realpath(path))
    part = beside(target)
    try:
        if as_zip if as_zip is not None else target.suffix == ".zip":
            _write_zip(recording, part, folder=target.name.removesuffix(".zip"))
        else:
            _write_folder(recording, part)
        _move(part, target)
    except OSError as error:
        raise named_after(error, path) from error
    finally:
        _remove(part)
    return Path(path)


def redact(recording: Recording) -> Recording:
    """The recording without its text, token strings, tables, queries and keys."""
    sequences = tuple(tuple(_redact_sequence(sequence) for sequence in item) for item in recording.sequences)
    calls = tuple(_redact_call(call) for call in recording.calls)
    notes = (*recording.notes, "The text was left out of this recording on purpose.")
    return replace(recording, sequences=sequences, calls=calls, notes=notes, tables=())


def _redact_sequence(sequence: Sequence) -> Sequence:
    tokens = tuple(replace(token, text="") for token in sequence.tokens)
    return replace(sequence, text="", tokens=tokens)


def _redact_call(call: Call) -> Call:
    telling = ("query", "key")
    return replace(
        call,
        values={name: value for name, value in call.values.items() if name not in telling},
        exact=tuple(name for name in call.exact if name not in telling),
        pooled=tuple(name for name in call.pooled if name not in telling),
    )


class _Chunks:
    """Packs arrays into numbered chunks and hands each over as soon as it is full."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.tensors: dict[str, dict[str, Any]] = {}
        self.chunks: list[dict[str, Any]] = []
        self._waiting: dict[str, np.ndarray] = {}
        self._bytes = 0

    def add(self, name: str, array: np.ndarray) -> str:
        """Take an array in; one that is larger than a chunk is cut into flat pieces."""
        native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
        count = max(1, -(-native.nbytes // _schema.CHUNK_BYTES))
        pieces = [native] if count == 1 else np.array_split(native.reshape(-1), count)
        places = [self._put(name if count == 1 else f"{name}#{i}", piece) for i, piece in enumerate(pieces)]
        entry = {"dtype": native.dtype.name, "shape": list(native.shape), "pieces": places}
        if native.dtype == np.uint16:
            entry["means"] = "bfloat16"
        self.tensors[name] = entry
        return name

    def _put(self, key: str, piece: np.ndarray) -> list[str]:
        if self._bytes + piece.nbytes > _schema.CHUNK_BYTES:
            self.flush()
        self._waiting[key] = piece
        self._bytes += piece.nbytes
        return [_schema.chunk_name(len(self.chunks)), key]

    def flush(self) -> None:
        """Hand over what is waiting."""
        if not self._waiting:
            return
        content, name = to_safetensors(self._waiting), _schema.chunk_name(len(self.chunks))
        self.sink(name, content)
        self.chunks.append({"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
        self._waiting, self._bytes = {}, 0


def _write(recording: Recording, sink: Sink) -> None:
    """Write the chunks, then the manifest that vouches for them."""
    chunks = _Chunks(sink)
    calls = [_call(call, f"calls/{number}", chunks) for number, call in enumerate(recording.calls)]
    tables = [_table(table, f"tables/{number}", chunks) for number, table in enumerate(recording.tables)]
    chunks.flush()
    manifest: dict[str, Any] = {
        "format": _schema.FORMAT,
        "schema": {"major": _schema.MAJOR, "minor": _schema.MINOR},
        "regard": recording.regard_version,
        "created": recording.created,
        "model": dict(vars(recording.model)),
        "notes": list(recording.notes),
        "coverage": [dict(vars(entry)) for entry in recording.coverage],
        "items": [[_sequence(sequence) for sequence in item] for item in recording.sequences],
        "tables": tables,
        "calls": calls,
        "tensors": chunks.tensors,
        "chunks": chunks.chunks,
    }
    manifest["sha256"] = _schema.checksum(manifest)
    sink(_schema.MANIFEST, json.dumps(manifest, indent=1, allow_nan=False).encode("ascii"))


def _sequence(sequence: Sequence) -> dict[str, Any]:
    tokens = [[token.text, int(token.start), int(token.end), bool(token.special)] for token in sequence.tokens]
    return {"name": sequence.name, "text": sequence.text, "tokens": tokens}


def _table(table: Table, path: str, chunks: _Chunks) -> dict[str, Any]:
    return {
        "name": table.name,
        "note": table.note,
        "rows": list(table.rows),
        "columns": list(table.columns),
        "values": chunks.add(f"{path}/values", table.values),
        "ordered": bool(table.ordered),
        "chosen": [int(column) for column in table.chosen],
        "grid": None if table.grid is None else [int(side) for side in table.grid],
    }


def _call(call: Call, path: str, chunks: _Chunks) -> dict[str, Any]:
    mask = None
    if call.mask is not None:
        arrays = [chunks.add(f"{path}/mask/{i}", array) for i, array in enumerate(call.mask.arrays)]
        mask = {"code": [int(word) for word in call.mask.code], "arrays": arrays}
    return {
        "name": call.name,
        "kind": call.kind,
        "sequence_q": call.sequence_q,
        "sequence_k": call.sequence_k,
        "q_positions": chunks.add(f"{path}/q_positions", call.q_positions),
        "kv_start": int(call.kv_start),
        "kv_len": int(call.kv_len),
        "num_heads": int(call.num_heads),
        "num_kv_heads": int(call.num_kv_heads),
        "scale": float(call.scale),
        "logit_softcap": None if call.logit_softcap is None else float(call.logit_softcap),
        "has_sinks": bool(call.has_sinks),
        "mask": mask,
        "mask_stored": bool(call.mask_stored),
        "values": {name: chunks.add(f"{path}/{name}", value) for name, value in call.values.items()},
        "probes": {attribute: dict(options) for attribute, options in call.probes.items()},
        "exact": list(call.exact),
        "pooled": list(call.pooled),
        "layer": None if call.layer is None else int(call.layer),
        "notes": list(call.notes),
    }


def _write_folder(recording: Recording, folder: Path) -> None:
    folder.mkdir()

    def sink(name: str, content: bytes) -> None:
        with open(folder / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    _write(recording, sink)


def _write_zip(recording: Recording, file: Path, *, folder: str) -> None:
    with open(file, "wb") as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:

            def sink(name: str, content: bytes) -> None:
                # A fixed date: the same recording gives the same bytes.
                entry = zipfile.ZipInfo(f"{folder}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=1)

            _write(recording, sink)
        out.flush()
        os.fsync(out.fileno())


def _move(part: Path, target: Path) -> None:
    """Put the finished recording in its place; what was there is kept until it stands."""
    if not target.exists():
        os.rename(part, target)
        return
    if target.is_file() and part.is_file():
        os.replace(part, target)
        return
    earlier = beside(target).with_suffix(".old")
    os.rename(target, earlier)
    try:
        os.rename(part, target)
    except OSError:
        os.rename(earlier, target)
        raise
    _remove(earlier)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
