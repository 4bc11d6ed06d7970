"""What the Transformer replaced, trained, saved, resumed, used and looked at as the Transformer is."""

from __future__ import annotations

import functools
import itertools
from unittest.mock import patch

import numpy as np
import pytest
import torch

from regard.cli import app
from regard.errors import ConfigError
from regard.hf import (
    RegardRecurrentEncoderConfig,
    RegardRecurrentForSequenceClassification,
)
from regard.tasks import evaluate, load, observe, predict, task_named, train
from regard.tasks.architectures import architecture_of, check_attention, has_attention
from regard.tasks.tables import words_of
from regard.view import write_page
from tests.tasks import made
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

DATA = {"classify": made.reviews, "translate": made.numbers, "generate": made.rhymes}
FILE = {"classify": "data.tsv", "translate": "data.tsv", "generate": "data.txt"}
INPUT = {"classify": "the film was lovely", "translate": "一三二", "generate": "aaa "}
WRITING = {"classify": {}, "translate": {"num_beams": 2}, "generate": {"max_new_tokens": 6, "seed": 3}}
STEPS = {"classify": 16, "translate": 24, "generate": 12}
TRAINING = {"precision": "fp32", "warmup": 5, "learning_rate": 1e-2, "batch_tokens": 400, "average": 0}
ALL = [(task, name) for task in DATA for name in task_named(task).architectures]
SEEING = ["lstm-additive", "lstm-dot", "gru-additive", "gru-dot"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One model of each architecture of each task, trained once."""
    made_once = {}

    def of(task, name):
        if (task, name) not in made_once:
            folder, watcher = tmp_path_factory.mktemp(name), Listener()
            data = DATA[task](folder / FILE[task], 120)
            options = {**TRAINING, "steps": STEPS[task], "preset": "tiny", "watcher": watcher}
            outcome = train(task, data, folder / "model", architecture=name, **options)
            made_once[task, name] = outcome, watcher, data
        return made_once[task, name]

    torch.set_num_threads(1)
    return of


every = pytest.mark.parametrize(("task", "name"), ALL)


@every
def test_it_learns_and_does_the_same_when_it_is_loaded(trained, task, name):
    outcome, watcher, _ = trained(task, name)
    assert watcher.rounds[-1][0]["loss"] < 0.8 * watcher.moments[0].loss
    again = load(outcome.folder, task=task)
    assert again.info.details["architecture"] == name
    assert architecture_of(again.model, task_named(task).architectures) == name
    assert type(again.model) is type(outcome.model.model)
    given = [INPUT[task], "", INPUT[task] * 2]
    said = predict(again, given, **WRITING[task])
    assert said == predict(outcome.model, given, **WRITING[task])
    alone = [predict(again, [one], **WRITING[task])[0] for one in given]
    assert [str(one) for one in said] == [str(one) for one in alone]


@every
def test_its_card_and_its_figures_are_those_of_every_model(trained, task, name):
    outcome, _, data = trained(task, name)
    options = {"num_beams": 1, "max_new_tokens": 4} if task == "translate" else {}
    report = evaluate(outcome.folder, data, **options)
    assert set(report.figures) == set(outcome.report.figures)
    card = (outcome.folder / "README.md").read_text(encoding="utf-8")
    assert f"kind: {outcome.model.model.config.model_type}" in card
    assert f"architecture: {name}" in card
    assert ("--attention" in card) == (name in SEEING)


@every
@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_it_has_as_many_weights_as_the_transformer_of_its_preset(task, name, size):
    preset = task_named(task).presets[size]
    assert set(preset.others) == set(task_named(task).architectures)
    assert weights(task, size, name) == pytest.approx(weights(task, size, "transformer"), rel=0.03)


@functools.cache
def weights(task, size, name):
    """How many weights a new model has, at the vocabulary of its preset; none of them is drawn."""
    preset = task_named(task).presets[size]
    with torch.device("meta"), patch("torch.nn.init.orthogonal_"):  # which takes its time even over nothing
        details = {"architecture": name, "labels": ("pos", "neg")}
        return task_named(task).new_model(preset, Tokens(preset.vocab_size), details).num_parameters()


class Tokens:
    """As many as a preset has."""

    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


@pytest.mark.parametrize("name", SEEING)
def test_its_alignments_are_a_page(trained, name, tmp_path):
    outcome, _, _ = trained("translate", name)
    said, recording = observe(outcome.folder, "一三二", num_beams=2)
    assert said == predict(outcome.model, ["一三二"], num_beams=2)[0]
    (call,) = recording.calls
    assert (call.name, call.kind, call.sequence_q, call.sequence_k) == ("decoder.cross", "cross", "output", "input")
    source, target = recording.sequences[0]
    rows = call.values["rows"]
    assert rows.shape == (1, 1, len(target.tokens), len(source.tokens))
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(call.values["key_mass"], rows.sum(axis=2), atol=1e-5)
    assert (call.values["top_k.indices"][..., 0] == rows.argmax(axis=-1)).all()
    assert [entry.status for entry in recording.coverage] == ["seen"]
    (table,) = recording.tables
    assert ("".join(table.rows), "".join(table.columns)) == (said.text.replace(" ", ""), "一三二")
    read = [number for number, token in enumerate(source.tokens) if not token.special]
    for word, found in zip(words_of(target), table.values, strict=True):  # the row before a token wrote it
        written = rows[0, 0, [number - 1 for number in word.tokens]]
        assert found.sum() == pytest.approx(written[:, read].sum(axis=1).mean(), abs=1e-6)
    page = write_page(recording, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "decoder.cross" in page
    assert recording.load(recording.save(tmp_path / "seen.regard")).calls[0].name == "decoder.cross"


def test_a_long_text_has_maps_and_its_largest_weights(trained):
    outcome, _, _ = trained("translate", "gru-dot")
    _, recording = observe(outcome.model, "一三二四" * 160, num_beams=1, max_new_tokens=3)
    values = recording.calls[0].values
    assert "rows" not in values
    assert values["heat_map"].ndim == 4
    assert recording.calls[0].pooled == ("heat_map",)


@pytest.mark.parametrize(
    ("task", "name", "problem"),
    [
        (
            "translate",
            "lstm",
            "an LSTM without attention has no weights to look at; trained as transformer, lstm-additive, lstm-dot, "
            "gru-additive or gru-dot, it would have.",
        ),
        ("translate", "gru", "a GRU without attention has no weights to look at"),
        ("classify", "bilstm", "an LSTM without attention has no weights to look at; trained as transformer, it would"),
        ("classify", "cnn", "a convolutional network has no weights to look at; trained as transformer, it would"),
        ("generate", "lstm", "an LSTM without attention has no weights to look at"),
        ("generate", "cnn", "a convolutional network has no weights to look at"),
    ],
)
def test_what_looks_at_nothing_says_so(trained, task, name, problem, tmp_path, capsys):
    outcome, _, _ = trained(task, name)
    with pytest.raises(ConfigError) as caught:
        observe(outcome.model, INPUT[task])
    assert str(caught.value).startswith(f"observe(): {problem}")
    if name == "bilstm":
        page = tmp_path / "page.html"
        arguments = ["predict", task, INPUT[task], "--model", str(outcome.folder), "--attention", str(page)]
        assert app.main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"regard: {problem}")
        assert not page.exists()


def test_attention_that_pools_is_seen():
    settings = {"vocab_size": 9, "num_labels": 2, "embed_dim": 4, "hidden_dim": 4}
    pooled = RegardRecurrentForSequenceClassification(RegardRecurrentEncoderConfig(**settings, pooling="attention"))
    other = RegardRecurrentForSequenceClassification(RegardRecurrentEncoderConfig(**settings, pooling="mean"))
    known = task_named("classify").architectures
    assert has_attention(pooled)
    assert check_attention(pooled, known, caller="observe") is None
    with pytest.raises(ConfigError, match="a model without attention has no weights to look at"):
        check_attention(other, known, caller="observe")


@pytest.mark.parametrize(
    ("task", "name"), [("translate", "lstm-additive"), ("classify", "bilstm"), ("generate", "cnn")]
)
def test_resumed_it_ends_as_it_would_have(task, name, tmp_path):
    data = DATA[task](tmp_path / FILE[task], 40)
    options = {**TRAINING, "round_steps": 1, "preset": "tiny"}
    straight = train(task, data, tmp_path / "straight", architecture=name, steps=2, watcher=Listener(), **options)
    train(task, data, tmp_path / "stopped", architecture=name, steps=1, watcher=Listener(), **options)
    resumed = train(task, data, tmp_path / "stopped", steps=2, resume=True, watcher=Listener(), **options)
    for part, weight in straight.model.model.state_dict().items():
        assert torch.equal(resumed.model.model.state_dict()[part], weight), part
    with pytest.raises(ConfigError, match=f"architecture was '{name}', and is 'transformer' now"):
        train(task, data, tmp_path / "stopped", resume=True, architecture="transformer", **options, steps=3)


def test_a_checkpoint_keeps_its_architecture(trained, tmp_path):
    outcome, _, data = trained("classify", "bilstm")
    options = {"steps": 1, "watcher": Listener(), "model": str(outcome.folder)}
    further = train("classify", data, tmp_path / "further", **options)
    assert further.model.info.details["architecture"] == "bilstm"
    assert further.model.model.config.hidden_dim == 52
    with pytest.raises(ConfigError, match=r"`architecture` must be left out with `model`, which has one, but is 'cnn'"):
        train("classify", data, tmp_path / "other", architecture="cnn", **options)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["bilstm", "cnn"])
def test_pairs_are_read_one_after_another(name, tmp_path):
    lines = [
        f"{label}\tthe film {number // 4}\t{text}"
        for number, (label, text) in enumerate(itertools.islice(itertools.cycle((("pos", "好"), ("neg", "差"))), 40))
    ]
    path = tmp_path / "pairs.tsv"
    path.write_text("label\ttext\tpair\n" + "\n".join(lines) + "\n", encoding="utf-8")
    options = {**TRAINING, "steps": 8, "preset": "tiny", "watcher": Listener()}
    outcome = train("classify", path, tmp_path / "model", architecture=name, **options)
    found = predict(load(outcome.folder), [("the film", "好"), ("the film", "差")])
    assert found[0].probabilities["pos"] > found[1].probabilities["pos"]
    assert outcome.model.tokenizer.model_input_names == ["input_ids", "attention_mask"]


def test_what_there_is_not_is_refused_before_anything_is_read(tmp_path):
    known = "transformer, lstm, lstm-additive, lstm-dot, gru, gru-additive, gru-dot"
    with pytest.raises(ConfigError, match=rf"`architecture` must be one of {known}, but is 'rnn'"):
        train("translate", tmp_path / "none.tsv", tmp_path / "out", architecture="rnn", steps=1)
    with pytest.raises(ConfigError) as caught:
        train("generate", tmp_path / "none", tmp_path / "out", architecture="bilstm", model="gpt2", steps=1)
    assert str(caught.value) == (
        "train(): 2 problems:\n"
        "  - `architecture` must be one of transformer, lstm, cnn, but is 'bilstm'.\n"
        "  - `architecture` must be left out with `model`, which has one, but is 'bilstm'."
    )
    with pytest.raises(ConfigError, match="there is no setting `architecture`"):
        train("caption", tmp_path / "none", tmp_path / "out", architecture="lstm", steps=1)


def test_the_command_line_says_what_can_be_done_next(tmp_path, capsys):
    data, out = made.reviews(tmp_path / "data.tsv", 40), tmp_path / "model"
    options = ["--preset", "tiny", "--steps", "2", "--architecture", "cnn"]
    assert app.main(["train", "classify", "--data", str(data), "--out", str(out), *options]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"use it: regard predict classify TEXT --model {out}"
    wrong = ["--out", str(tmp_path / "other"), "--architecture", "rnn"]
    assert app.main(["train", "classify", "--data", str(data), *wrong]) == 2
    assert "`architecture` must be one of transformer, bilstm, cnn, but is 'rnn'" in capsys.readouterr().err
