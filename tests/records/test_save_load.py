"""Recordings: written and read back bit for bit; everything damaged, foreign or newer is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, FormatError
from regard.records import MaskProgram, Op, Recording, Sequence, Token, _schema

from .conftest import made_table, make_recording


def same(a: object, b: object) -> bool:
    """Equal bit for bit, arrays and NaN included."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if hasattr(a, "__dict__") and not isinstance(a, int):
        return type(a) is type(b) and same(vars(a), vars(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def reseal(folder: Path, change) -> None:
    """Change a manifest and renew its checksum: what a hostile writer would do."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["sha256"] = _schema.checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["run.regard", "run.zip"])
def test_round_trip(recording, tmp_path, name):
    assert recording.save(tmp_path / name) == tmp_path / name
    assert files(tmp_path) == [name]
    assert same(Recording.load(tmp_path / name), recording)


def test_zip_on_request_and_when_made_by_hand(recording, tmp_path):
    recording.save(tmp_path / "run.regard", as_zip=True)
    assert zipfile.is_zipfile(tmp_path / "run.regard")
    with zipfile.ZipFile(tmp_path / "run.regard") as archive:
        archive.extractall(tmp_path / "out")
    (inner,) = (tmp_path / "out").iterdir()
    assert same(Recording.load(inner), recording)
    with zipfile.ZipFile(tmp_path / "flat.zip", "w") as archive:
        for file in inner.iterdir():
            archive.write(file, file.name)
    assert same(Recording.load(tmp_path / "flat.zip"), recording)


def test_many_chunks_and_values_larger_than_one(tmp_path, monkeypatch):
    monkeypatch.setattr(_schema, "CHUNK_BYTES", 100)
    recording = make_recording(length=5)
    recording.save(tmp_path / "run")
    assert len(files(tmp_path / "run")) > 10
    assert same(Recording.load(tmp_path / "run"), recording)


@given(
    text=st.text(st.characters(codec=None, exclude_categories=[]), max_size=20),
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dtype=st.sampled_from(["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "uint16"]),
    raw=st.binary(min_size=72, max_size=72),
    strided=st.booleans(),
    as_zip=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip_of_anything(tmp_path, text, shape, dtype, raw, strided, as_zip):
    text = "".join(
        c for i, c in enumerate(text) if not ("\udc00" <= c <= "\udfff" and "\ud800" <= text[i - 1] <= "\udbff")
    )
    array = np.frombuffer(bytes(b & 1 for b in raw) if dtype == "bool" else raw, dtype=dtype)[
        : shape[0] * shape[1]
    ].reshape(shape)
    array = array.T if strided else array
    base = make_recording()
    call = replace(base.calls[0], values={"my own": array}, exact=("my own",), name=text, notes=(text,))
    sequence = Sequence(text, text, (Token(text, -1, -1, True),))
    recording = replace(base, calls=(call,), sequences=((sequence,),) * 2, notes=(text,))
    path = tmp_path / ("a.zip" if as_zip else "a")
    recording.save(path)
    loaded = Recording.load(path)
    assert same(loaded.calls[0].values["my own"], np.ascontiguousarray(array).reshape(array.shape))
    assert loaded.sequences == recording.sequences
    assert (loaded.calls[0].name, loaded.notes) == (text, (text,))


def test_no_sequences_and_no_calls(tmp_path):
    recording = replace(make_recording(), sequences=(), calls=(), created=None)
    assert same(Recording.load(recording.save(tmp_path / "a")), recording)


def test_replaces_a_recording_of_either_kind_but_nothing_else(recording, tmp_path):
    path, other = tmp_path / "run", replace(recording, notes=("second",))
    recording.save(path)
    other.save(path)
    assert Recording.load(path).notes == ("second",)
    recording.save(path, as_zip=True)
    other.save(path, as_zip=True)
    assert path.is_file()
    assert Recording.load(path).notes == ("second",)
    recording.save(path, as_zip=False)
    assert path.is_dir()
    (path / "thesis.txt").write_text("mine")
    with pytest.raises(FormatError, match="free or an earlier recording"):
        other.save(path)
    assert (path / "thesis.txt").read_text() == "mine"
    (tmp_path / "letter").write_text("mine")
    (tmp_path / "photos").mkdir()
    for name in ("letter", "photos"):
        with pytest.raises(FormatError, match="something else"):
            recording.save(tmp_path / name)
    assert files(tmp_path) == ["letter", "photos", "run"]


def test_a_damaged_recording_may_be_replaced(recording, tmp_path):
    recording.save(tmp_path / "run")
    (tmp_path / "run" / "chunk-00000.safetensors").unlink()
    recording.save(tmp_path / "run")
    Recording.load(tmp_path / "run")


def test_a_failure_leaves_what_was_there(recording, tmp_path):
    recording.save(tmp_path / "run")
    broken = replace(recording, calls=(replace(recording.calls[0], probes={"rows": {"type": {1, 2}}}),))
    with pytest.raises(TypeError):
        broken.save(tmp_path / "run")
    assert files(tmp_path) == ["run"]
    assert same(Recording.load(tmp_path / "run"), recording)


def test_redacted(recording, tmp_path):
    recording.save(tmp_path / "run", redact_text=True)
    content = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    for word in ("bank", json.dumps("中")[1:-1], "ä¸", "[CLS]"):
        assert word.encode() not in content
    loaded = Recording.load(tmp_path / "run")
    (first, *_), _ = loaded.sequences
    assert [(t.text, t.start, t.end, t.special) for t in first.tokens][:2] == [("", -1, -1, True), ("", 0, 3, False)]
    assert "left out" in loaded.notes[-1]
    assert loaded.tables == ()
    assert set(recording.calls[0].values) - set(loaded.calls[0].values) == {"query"}
    assert same(loaded.calls[0].values["rows"], recording.calls[0].values["rows"])


@given(where=st.integers(0, 10**9), flip=st.integers(1, 255), as_zip=st.booleans(), which=st.sampled_from([0, 1]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_wrong_byte_is_never_taken_for_truth(tmp_path, where, flip, as_zip, which):
    path = tmp_path / ("z.zip" if as_zip else "z")
    recording = make_recording()
    recording.save(path)
    file = path if as_zip else path / files(path)[which]
    content = bytearray(file.read_bytes())
    content[where % len(content)] ^= flip
    file.write_bytes(content)
    try:
        loaded = Recording.load(path)
    except FormatError:
        pass
    else:  # a byte that means nothing: white space of the manifest, a date in the zip
        assert same(loaded, recording)
    finally:
        path.unlink() if as_zip else shutil.rmtree(path)


def test_truncated_missing_and_swapped_chunks(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    chunk = path / "chunk-00000.safetensors"
    content = chunk.read_bytes()
    chunk.write_bytes(content[:-1])
    with pytest.raises(FormatError, match=r"chunk-00000.*\n*.*cut short|cut short") as error:
        Recording.load(path)
    assert str(chunk) in str(error.value)
    chunk.write_bytes(bytes(len(content)))
    with pytest.raises(FormatError, match="does not match its checksum"):
        Recording.load(path)
    chunk.unlink()
    with pytest.raises(FormatError, match="missing"):
        Recording.load(path)


def test_foreign_files(tmp_path):
    for name, content, expected in [
        ("none", None, "no such file"),
        ("a.txt", b"hello", "neither a recording's folder nor its zip"),
        ("empty", b"", "neither"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=expected) as error:
            Recording.load(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match=r"no manifest\.json"):
        Recording.load(tmp_path / "folder")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"3",
        b'{"format": "other"}',
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": -1e999}',
        b"[" * 100_000,
        b'{"format":' + b"9" * 5000 + b"}",
    ],
)
def test_bad_manifests(recording, tmp_path, content):
    path = recording.save(tmp_path / "run")
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"manifest\.json"):
        Recording.load(path)


def test_numbers_beyond_64_bits_are_refused(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    reseal(path, lambda m: m["calls"][0].update(scale=10**400))
    with pytest.raises(FormatError, match="scale must be a number of 64 bits, but is 1000"):
        Recording.load(path)
    (path / "manifest.json").write_text((path / "manifest.json").read_text().replace("1" + "0" * 400, "1e999"))
    with pytest.raises(FormatError, match="1e999 is beyond every number of 64 bits"):
        Recording.load(path)


def test_a_name_that_appears_twice_is_refused(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    content = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(content.replace('"notes": [', '"notes": [], "notes": [', 1))
    with pytest.raises(FormatError, match="appears twice"):
        Recording.load(path)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"values": np.zeros((2, 2))}, r"of the shape \(1, 2\), but is float64 \(2, 2\)"),
        ({"values": np.zeros((1, 2), dtype=np.int64)}, "must be float32 or float64"),
        ({"values": np.array([[0.5, np.nan]])}, "finite and not negative"),
        ({"values": np.array([[0.5, -0.1]])}, "finite and not negative"),
        ({"chosen": (0, 2)}, r"columns from 0 to 1, but names \[2\]"),
        ({"grid": (2, 2)}, "hold 2 patches, but is 2 by 2"),
        ({"grid": (-1, -2)}, "hold 2 patches, but is -1 by -2"),
        ({"columns": ("\ud83d\udc4d", "b")}, "surrogate pair"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(recording, tmp_path, changes, expected):
    wrong = replace(recording, tables=(made_table(**changes),))
    with pytest.raises(ConfigError, match=expected) as error:
        wrong.save(tmp_path / "run")
    assert "table 'What it looked at'" in str(error.value)


def test_a_grid_of_a_file_has_two_sides(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    reseal(path, lambda m: m["tables"][0].update(grid=[2]))
    with pytest.raises(FormatError, match=r"grid must be the rows and the columns of a grid, but is \[2\]"):
        Recording.load(path)


def test_newer_and_unknown_older_versions(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    reseal(path, lambda m: m.update(schema={"major": 7, "minor": 2}, regard="9.1"))
    with pytest.raises(FormatError, match=r"(?s)7\.2.*reads up to 1\.1.*regard 9\.1"):
        Recording.load(path)
    reseal(path, lambda m: m.update(schema={"major": 0, "minor": 3}))
    with pytest.raises(FormatError, match=r"0\.3 was ever published"):
        Recording.load(path)


def test_newer_minor_versions_are_read(recording, tmp_path):
    path = recording.save(tmp_path / "run")
    reseal(path, lambda m: m.update(schema={"major": 1, "minor": 9}, novelty=[1]))
    assert same(Recording.load(path), recording)


def test_migrations_run_in_turn(recording, tmp_path, monkeypatch):
    path = recording.save(tmp_path / "run")

    def one_to_two(manifest):
        return {**manifest, "notes": [*manifest["notes"], "from 1"]}

    def two_to_three(manifest):
        return {**manifest, "notes": [*manifest["notes"], "from 2"]}

    monkeypatch.setattr(_schema, "MAJOR", 3)
    monkeypatch.setitem(_schema.MIGRATIONS, 1, one_to_two)
    monkeypatch.setitem(_schema.MIGRATIONS, 2, two_to_three)
    assert Recording.load(path).notes == ("a remark", "from 1", "from 2")


def set_at(*path_and_value):
    *path, last, value = path_and_value

    def change(manifest):
        for key in path:
            manifest = manifest[key]
        manifest[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (set_at("calls", 0, "scale", "x"), r"calls \[0\] › scale must be a number"),
        (set_at("calls", 0, "layer", True), "must be an integer"),
        (set_at("calls", 0, "kv_len", 2**70), "64 bits"),
        (set_at("calls", 0, "num_kv_heads", 3), "do not divide"),
        (set_at("calls", 0, "kv_len", 4), "must have the shape"),
        (set_at("calls", 0, "kind", "odd"), "'self' or 'cross'"),
        (set_at("calls", 0, "exact", ["magic"]), "has no value"),
        (set_at("calls", 0, "values", "entropy", "calls/0/rows"), "used nowhere else"),
        (set_at("calls", 0, "values", "entropy", "nothing"), "that the manifest lists"),
        (set_at("calls", 0, "mask", "code", [1, 3, 5, 7]), "reads array 5 of 1"),
        (set_at("calls", 0, "mask", "code", [7]), "too little before it"),
        (set_at("calls", 0, "mask", "code", [10, 0]), "never stored"),
        (set_at("calls", 0, "mask_stored", False), "mask_stored is false"),
        (set_at("tensors", "calls/0/rows", "dtype", "float64"), "the chunk holds float32"),
        (set_at("tensors", "calls/0/rows", "dtype", "object"), "known dtype"),
        (set_at("tensors", "calls/0/rows", "shape", [2, 2, 5, 6]), "shape"),
        (set_at("tensors", "calls/0/rows", "shape", [-2, -2, 5, 5]), "not negative"),
        (set_at("tensors", "calls/0/rows", "pieces", []), "at least one piece"),
        (set_at("tensors", "calls/0/rows", "pieces", [["chunk-00009.safetensors", "a"]]), "used nowhere else"),
        (set_at("chunks", 0, "file", "../chunk-00000.safetensors"), "name of a chunk"),
        (set_at("items", 0, 0, "tokens", 1, ["t", 0, 99, False]), "spans bytes 0 to 99"),
        (set_at("items", 0, 0, "tokens", 1, ["t", 3, 1, False]), "spans bytes 3 to 1"),
        (set_at("items", 0, 0, "tokens", 1, ["t", 0]), r"\[text, start, end, special\]"),
        (set_at("items", 0, 0, "text", 3), "must be a string"),
        (lambda m: m["chunks"].append(m["chunks"][0]), "lists a chunk twice"),
        (lambda m: m["items"].pop(), "for 1 items|must have the shape"),
        (lambda m: m.pop("model"), "an object with 'model'"),
        (lambda m: m["items"][0].append(m["items"][0][0]), "two sequences of one name"),
    ],
)
def test_contradictions(recording, tmp_path, change, expected):
    path = recording.save(tmp_path / "run")
    reseal(path, change)
    with pytest.raises(FormatError, match=expected):
        Recording.load(path)


@pytest.mark.parametrize(
    ("query_spans", "shape", "expected"),
    [
        (None, (2, 2, 5, 3), None),
        (None, (2, 2, 4, 3), r"span_mass must have the shape \(2, 2, 5, 3\), but is float32 \(2, 2, 4, 3\)"),
        (None, (2, 2, 5, 2), r"span_mass must have the shape \(2, 2, 5, 3\)"),
        (None, (2, 2, 5), "span_mass must have 4 axes"),
        ([[0, 2], [2, 5]], (2, 2, 2, 3), None),
        ([[0, 2], [2, 5]], (2, 2, 5, 3), r"span_mass must have the shape \(2, 2, 2, 3\), but is"),
        ([[0, 2], [2, 5]], (2, 3, 2, 3), r"span_mass must have the shape \(2, 2, 2, 3\), but is"),
    ],
)
def test_the_shape_of_span_masses_is_that_of_the_spans(recording, tmp_path, query_spans, shape, expected):
    call = recording.calls[0]
    options = {"type": "SpanMass", "key_spans": [[0, 1], [1, 2], [2, 5]], "query_spans": query_spans}
    values = {**call.values, "span_mass": np.zeros(shape, dtype=np.float32)}
    call = replace(call, values=values, probes={**call.probes, "span_mass": options}, exact=("span_mass",))
    made = replace(recording, calls=(call,))
    if expected is None:
        assert same(Recording.load(made.save(tmp_path / "run")), made)
    else:
        with pytest.raises(ConfigError, match=expected):
            made.save(tmp_path / "run")


def test_what_every_probe_of_ours_leaves_is_checked():
    from regard import ops
    from regard.records import _check

    probes = {name for name in ops.__all__ if isinstance(getattr(ops, name), type)}
    probes = {name for name in probes if issubclass(getattr(ops, name), ops.Probe)} - {"Probe"}
    assert probes == set(_check._AXES)


def test_save_lists_every_contradiction(recording, tmp_path):
    call = replace(recording.calls[0], num_kv_heads=3, mask=MaskProgram((Op.WHERE, 0)))
    with pytest.raises(ConfigError, match=r"(?s)2 problems:.*do not divide.*WHERE"):
        replace(recording, calls=(call,)).save(tmp_path / "run")
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil", "a\\..\\evil", "./manifest.json", "a//b"]
)
def test_zip_entries_that_reach_outside(recording, tmp_path, name):
    path = recording.save(tmp_path / "run.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(FormatError, match="reaches outside"):
        Recording.load(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_with_repeated_names_links_and_two_manifests(recording, tmp_path):
    path = recording.save(tmp_path / "run.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("run/manifest.json", b"{}")
    with pytest.raises(FormatError, match="twice"):
        Recording.load(path)
    path.unlink()
    recording.save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/manifest.json", b"{}")
    with pytest.raises(FormatError, match="must hold one"):
        Recording.load(path)
    path.unlink()
    recording.save(path)
    link = zipfile.ZipInfo("run/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(FormatError, match="link"):
        Recording.load(path)


def test_a_place_in_no_folder_is_refused_and_no_folder_is_made(recording, tmp_path):
    with pytest.raises(ConfigError, match=r"save\(\): `path` must lie in a folder that exists, but there is no .*new"):
        recording.save(tmp_path / "new" / "run.regard")
    assert files(tmp_path) == []


def test_a_full_disk_is_told_by_the_path_that_was_given(recording, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "some other file")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        recording.save(tmp_path / "run")
    assert raised.value.filename == str(tmp_path / "run")
    assert files(tmp_path) == []
