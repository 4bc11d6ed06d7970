import re

import pytest

from regard import ops
from regard.cli import _checks


def test_everything_is_said_and_every_check_passes(place):
    assert place.run("doctor") == 0
    said = dict(re.findall(r"^(\S+(?: \S+)?) {2,}(.*)$", place.out, flags=re.MULTILINE))
    assert {"regard", "python", "torch", "processor", "instructions", "model minilm", "browser"} <= set(said)
    assert said["model minilm"] == "found"
    assert {said[f"check {name}"] for name in ("reference", "torch", "tiled", "viewer")} == {"ok"}


def test_a_wrong_backend_is_the_answer_no(place, monkeypatch):
    real = ops.attend

    def attend(*tensors, backend, **options):
        return real(*tensors, backend="reference", **options) + (1e-4 if backend == "tiled" else 0)

    monkeypatch.setattr(_checks.ops, "attend", attend)
    assert place.run("doctor") == 1
    assert re.search(r"check tiled +wrong: differs from float64 by 1\.0e-04", place.out)
    assert place.err == "regard: 1 checks failed\n"


def test_a_crash_is_the_answer_no(place, monkeypatch):
    real = ops.attend

    def attend(*tensors, backend, **options):
        if backend == "torch":
            raise RuntimeError("illegal instruction")
        return real(*tensors, backend="reference", **options)

    monkeypatch.setattr(_checks.ops, "attend", attend)
    assert place.run("doctor") == 1
    assert re.search(r"check torch +failed: illegal instruction", place.out)


@pytest.mark.parametrize(("text", "names"), [("flags : fpu avx2 fma\n", ["avx2", "fma"]), ("none\n", [])])
def test_instruction_sets(monkeypatch, text, names):
    monkeypatch.setattr(_checks.Path, "read_text", lambda *_, **__: text)
    assert _checks._instructions() == names
