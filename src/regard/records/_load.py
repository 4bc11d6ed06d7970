"""Folder or zip → Recording, with everything checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors

from regard.errors import FormatError
from regard.records import _schema
from regard.records._check import problems
from regard.records._node import Node, parse
from regard.records._source import Source, open_source, refuse
from regard.records.mask_program import MaskProgram
from regard.records.recording import Call, Coverage, Model, Recording, Sequence, Token
from regard.records.table import Table

_DTYPES = frozenset(
    ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
)


def load(path: Path) -> Recording:
    """Read a recording (see ``Recording.load``)."""
    source = open_source(path)
    try:
        manifest = _manifest(source)
        recording = _recording(manifest, _Tensors(source, manifest))
    finally:
        source.close()
    if found := problems(recording):
        listed = "".join(f"\n  - {problem}" for problem in found)
        refuse(path, f"the recording contradicts itself:{listed}")
    return recording


def is_recording(path: Path) -> bool:
    """Whether a path holds a recording, whole or damaged, and nothing else that could be lost."""
    try:
        source = open_source(path)
    except FormatError:
        return False
    try:
        if path.is_dir():
            names = (file.name for file in path.iterdir())
            if not all(name == _schema.MANIFEST or _schema.CHUNK_NAME.fullmatch(name) for name in names):
                return False
        manifest = parse(source.read(_schema.MANIFEST), file=source.where(_schema.MANIFEST))
        return bool(manifest["format"].value == _schema.FORMAT)
    except FormatError:
        return False
    finally:
        source.close()


def _manifest(source: Source) -> Node:
    """Read the manifest, refuse what is newer, check it, and bring what is older up to date."""
    file = source.where(_schema.MANIFEST)
    if (source.size(_schema.MANIFEST) or 0) > _schema.MANIFEST_BYTES:
        refuse(file, f"the manifest is larger than {_schema.MANIFEST_BYTES} bytes.")
    manifest = parse(source.read(_schema.MANIFEST), file=file)
    if manifest["format"].text() != _schema.FORMAT:
        manifest["format"].wrong(json.dumps(_schema.FORMAT))
    major, minor = manifest["schema"]["major"].whole(), manifest["schema"]["minor"].whole()
    if major > _schema.MAJOR:
        refuse(
            file,
            f"the recording has format {major}.{minor}; this version of regard reads up to "
            f"{_schema.MAJOR}.{_schema.MINOR}.",
            hint=f"It was written by regard {manifest['regard'].text()}: update regard.",
        )
    if major < _schema.MAJOR and not all(version in _schema.MIGRATIONS for version in range(major, _schema.MAJOR)):
        refuse(file, f"no recording of format {major}.{minor} was ever published.")
    if manifest["sha256"].text() != _schema.checksum(manifest.value):
        refuse(file, "the manifest does not match its checksum: it was changed or damaged.")
    return Node(_schema.migrate(manifest.value, major), "the manifest", file)


class _Tensors:
    """The arrays of a recording, put together from its chunks."""

    def __init__(self, source: Source, manifest: Node) -> None:
        self.source = source
        self.file = manifest.file
        self.entries = manifest["tensors"].fields()
        self._pieces: dict[tuple[str, str], np.ndarray] = {}
        names = [chunk["file"].text() for chunk in manifest["chunks"].entries()]
        if len(set(names)) < len(names):
            refuse(self.file, "the manifest lists a chunk twice.")
        for chunk in manifest["chunks"].entries():
            self._read(chunk)

    def _read(self, chunk: Node) -> None:
        name, size = chunk["file"].text(), chunk["bytes"].whole()
        if not _schema.CHUNK_NAME.fullmatch(name):
            chunk["file"].wrong("the name of a chunk")
        where, actual = self.source.where(name), self.source.size(name)
        if actual is None:
            refuse(where, "the chunk is missing.")
        if actual != size:
            refuse(where, f"the chunk must have {size} bytes, but has {actual}: it was cut short or changed.")
        content = self.source.read(name)
        if hashlib.sha256(content).hexdigest() != chunk["sha256"].text():
            refuse(where, "the chunk does not match its checksum: it was changed or damaged.")
        try:
            arrays = from_safetensors(content)
        except (SafetensorError, KeyError, ValueError) as error:
            refuse(where, f"the chunk is not readable as safetensors: {error}.")
        self._pieces.update({(name, key): array for key, array in arrays.items()})

    def take(self, node: Node) -> np.ndarray:
        """The array that a place of the manifest names; each has one place."""
        name = node.text()
        if name not in self.entries:
            node.wrong("the name of a tensor that the manifest lists")
        entry = self.entries[name]
        dtype, shape = entry["dtype"].text(), tuple(size.whole() for size in entry["shape"].entries())
        if dtype not in _DTYPES:
            entry["dtype"].wrong("a known dtype")
        if any(size < 0 for size in shape):
            entry["shape"].wrong("sizes that are not negative")
        pieces = list(self._found(entry["pieces"], dtype))
        if not pieces:
            entry["pieces"].wrong("a list of at least one piece")
        if len(pieces) == 1 and pieces[0].shape != shape:
            entry["shape"].wrong(f"{list(pieces[0].shape)}, the shape in the chunk")
        if sum(piece.size for piece in pieces) != math.prod(shape):
            entry["shape"].wrong(f"the shape of the {sum(piece.size for piece in pieces)} numbers in the chunks")
        return pieces[0] if len(pieces) == 1 else np.concatenate([piece.reshape(-1) for piece in pieces]).reshape(shape)

    def _found(self, pieces: Node, dtype: str) -> Iterator[np.ndarray]:
        for place in pieces.entries():
            words = place.texts()
            piece = self._pieces.pop((words[0], words[1]), None) if len(words) == 2 else None
            if piece is None:
                place.wrong("a chunk and the name of a tensor in it that is used nowhere else")
            if piece.dtype.name != dtype:
                place.wrong(f"{dtype} as the manifest says (the chunk holds {piece.dtype.name})")
            yield piece


def _recording(manifest: Node, tensors: _Tensors) -> Recording:
    model = manifest["model"]
    return Recording(
        model=Model(model["name"].text(), _text_or_none(model["weights_sha256"]), _text_or_none(model["architecture"])),
        sequences=tuple(tuple(_sequence(entry) for entry in item.entries()) for item in manifest["items"].entries()),
        calls=tuple(_call(call, tensors) for call in manifest["calls"].entries()),
        coverage=tuple(
            Coverage(entry["name"].text(), entry["status"].text(), entry["reason"].text())
            for entry in manifest["coverage"].entries()
        ),
        notes=manifest["notes"].texts(),
        tables=tuple(_table(table, tensors) for table in _tables(manifest)),
        regard_version=manifest["regard"].text(),
        created=_text_or_none(manifest["created"]),
    )


def _tables(manifest: Node) -> list[Node]:
    """The tables; format 1.0 had none."""
    fields = manifest.fields()
    return fields["tables"].entries() if "tables" in fields else []


def _table(node: Node, tensors: _Tensors) -> Table:
    return Table(
        name=node["name"].text(),
        note=node["note"].text(),
        rows=node["rows"].texts(),
        columns=node["columns"].texts(),
        values=tensors.take(node["values"]),
        ordered=node["ordered"].flag(),
        chosen=tuple(column.whole() for column in node["chosen"].entries()),
        grid=None if node["grid"].absent else _grid(node["grid"]),
    )


def _grid(node: Node) -> tuple[int, int]:
    sides = [side.whole() for side in node.entries()]
    return (sides[0], sides[1]) if len(sides) == 2 else node.wrong("the rows and the columns of a grid")


def _text_or_none(node: Node) -> str | None:
    return None if node.absent else node.text()


def _sequence(node: Node) -> Sequence:
    return Sequence(
        node["name"].text(), node["text"].text(), tuple(_token(token) for token in node["tokens"].entries())
    )


def _token(node: Node) -> Token:
    parts = node.entries()
    if len(parts) != 4:
        node.wrong("[text, start, end, special]")
    return Token(parts[0].text(), parts[1].whole(), parts[2].whole(), parts[3].flag())


def _kind(node: Node) -> Literal["self", "cross"]:
    if node.value not in ("self", "cross"):
        node.wrong("'self' or 'cross'")
    return "self" if node.value == "self" else "cross"


def _call(node: Node, tensors: _Tensors) -> Call:
    mask = None
    if not node["mask"].absent:
        code = tuple(word.whole() for word in node["mask"]["code"].entries())
        mask = MaskProgram(code, tuple(tensors.take(name) for name in node["mask"]["arrays"].entries()))
    return Call(
        name=node["name"].text(),
        kind=_kind(node["kind"]),
        sequence_q=node["sequence_q"].text(),
        sequence_k=node["sequence_k"].text(),
        q_positions=tensors.take(node["q_positions"]),
        kv_start=node["kv_start"].whole(),
        kv_len=node["kv_len"].whole(),
        num_heads=node["num_heads"].whole(),
        num_kv_heads=node["num_kv_heads"].whole(),
        scale=node["scale"].number(),
        logit_softcap=None if node["logit_softcap"].absent else node["logit_softcap"].number(),
        has_sinks=node["has_sinks"].flag(),
        mask=mask,
        mask_stored=node["mask_stored"].flag(),
        values={name: tensors.take(value) for name, value in node["values"].fields().items()},
        probes={
            attribute: {option: value.value for option, value in options.fields().items()}
            for attribute, options in node["probes"].fields().items()
        },
        exact=node["exact"].texts(),
        pooled=node["pooled"].texts(),
        layer=None if node["layer"].absent else node["layer"].whole(),
        notes=node["notes"].texts(),
    )
