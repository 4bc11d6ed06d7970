"""Trained models as ONNX files."""

from __future__ import annotations

import re
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from benchmarks.scenes import save, scenes

from regard.errors import ConfigError, UnsupportedError
from regard.tasks import export, load, train
from regard.tasks.exporting import _differences
from tests.tasks import made
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs onnx, onnxscript and onnxruntime"
)
DATA = {
    "classify": lambda folder: made.reviews(folder / "data.tsv", 40),
    "translate": lambda folder: made.numbers(folder / "data.tsv", 40),
    "answer": lambda folder: made.questions(folder / "data.jsonl", 40),
    "summarize": lambda folder: made.documents(folder / "data.jsonl", 40),
    "generate": lambda folder: made.rhymes(folder / "data.txt", 40),
    "classify-image": lambda folder: made.images(folder / "images", 20),
    "caption": lambda folder: save(scenes(20, seed=1, size=16, shapes=1, colours=3), folder / "scenes"),
}


def trained(task, folder):
    return train(task, DATA[task](folder), folder / "model", preset="tiny", steps=1, watcher=Listener()).model


@needs_onnx
@pytest.mark.parametrize("task", list(DATA))
def test_onnxruntime_computes_the_same_for_other_sizes(task, tmp_path):
    import onnxruntime

    model = trained(task, tmp_path)
    found = export(tmp_path / "model", tmp_path / "new" / "model.onnx")
    assert found.largest_difference < 1e-5
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(found.path)
    assert tuple(one.name for one in session.get_inputs()) == found.inputs
    assert tuple(one.name for one in session.get_outputs()) == found.outputs
    assert found.outputs == (("start_logits", "end_logits") if task == "answer" else ("logits",))
    assert ("token_type_ids" in found.inputs) == (task in ("classify", "answer", "summarize"))
    if task == "classify":
        read = model.tokenizer(["the film was lovely"] * 7, return_tensors="pt")
        (logits,) = session.run(None, {name: read[name].numpy() for name in found.inputs})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(logits), model.model(**read).logits)


@needs_onnx
def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    trained("classify", tmp_path)
    model = load(tmp_path / "model")
    inner = type(model.model).forward

    def by_numpy(self, *args, **kwargs):
        found = inner(self, *args, **kwargs)
        found.logits = found.logits + float(found.logits.detach().sum())  # a number that no graph holds
        return found

    monkeypatch.setattr(type(model.model), "forward", by_numpy)
    with pytest.raises(UnsupportedError, match=r"export\(\): a RegardForSequenceClassification must be of operations"):
        export(model, tmp_path / "new" / "model.onnx")
    assert list((tmp_path / "new").iterdir()) == []


def test_another_result_is_refused():
    with pytest.raises(UnsupportedError, match=re.escape("must compute what the model does, but is 1.00e-01 away.")):
        _differences([np.array([1.1])], [np.array([1.0])])
    assert _differences([np.array([0.0, 5.0])], [np.array([-np.inf, 5.0])]) == [0.0]


def test_the_ending_of_the_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"export\(\): `out` must be a file ending in .onnx, but is model.pt"):
        export(tmp_path, "model.pt")
