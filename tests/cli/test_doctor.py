import os
import re
import subprocess
import sys

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


def test_without_transformers_it_says_so_and_checks_the_rest():
    blocked = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('transformers', 'tokenizers', 'huggingface_hub'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from regard.cli.app import main\n"
        "sys.exit(main(['doctor']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", blocked], capture_output=True, text=True, env=environment, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(
        r"^models +.*`transformers`, which is not installed: pip install 'regard\[hf\]'", result.stdout, re.M
    )
    assert re.search(r"^check tiled +ok$", result.stdout, re.M)


@pytest.mark.parametrize(("text", "names"), [("flags : fpu avx2 fma\n", ["avx2", "fma"]), ("none\n", [])])
def test_instruction_sets(monkeypatch, text, names):
    monkeypatch.setattr(_checks.Path, "read_text", lambda *_, **__: text)
    assert _checks._instructions() == names


@pytest.mark.parametrize("kind", ["writer", "translator", "bart"])
def test_a_model_is_checked(place, request, kind):
    folder = request.getfixturevalue(kind)
    assert place.run("doctor", "--model", folder) == 0
    said = dict(re.findall(r"^(\S+(?: \S+)?) {2,}(.*)$", place.out, flags=re.MULTILINE))
    assert said["model"] == kind
    assert said["watched"] == "the output is the unwatched one, bit for bit"
    assert place.err == ""


def test_the_default_model_is_sound(place):
    assert place.run("doctor", "the river bank", "--model", "minilm") == 0
    assert "BertModel, checked on 5 tokens" in place.out


def test_a_model_with_a_lost_mask_is_the_answer_no(place, writer, monkeypatch):
    from transformers import GPT2Model

    forward = GPT2Model.forward
    monkeypatch.setattr(
        GPT2Model, "forward", lambda self, input_ids, attention_mask=None, **rest: forward(self, input_ids, **rest)
    )
    assert place.run("doctor", "--model", writer) == 1
    assert "WRONG: a longer text beside this one changes its output" in place.out
    assert place.err == "regard: 1 check failed\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a text"], "a text is for --model, which is missing."),
        ([" ", "--model", "minilm"], "the text must hold something to read, but is empty."),
        (["--model", "./nowhere"], "nowhere"),
    ],
)
def test_wrong_arguments_are_one_line(place, words, said):
    assert place.run("doctor", *words) == 2
    assert said in place.err
    assert place.err.count("\n") == 1
