"""What every task must do: learn, be stopped and resumed, be loaded, used, evaluated and looked at."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch

from regard.errors import ConfigError, FormatError
from regard.tasks import TASKS, evaluate, load, observe, predict, task_named, train
from regard.text import ReadOptions
from regard.view import write_page
from tests.tasks import made
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

DATA = {"classify": made.reviews, "translate": made.numbers, "generate": made.rhymes}
NAME = {"classify": "data.tsv", "translate": "data.tsv", "generate": "data.txt"}
INPUT = {"classify": "the film was lovely", "translate": "一三二", "generate": "aaa "}
STEPS = {"classify": 60, "translate": 200, "generate": 90}
WRITING = {"classify": {}, "translate": {"num_beams": 2}, "generate": {"max_new_tokens": 12, "seed": 3}}
TRAINING = {"precision": "fp32", "warmup": 10, "learning_rate": 5e-3, "batch_tokens": 600}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One model of each task, trained once."""
    made_once = {}

    def of(task):
        if task not in made_once:
            folder = tmp_path_factory.mktemp(task)
            data, watcher = DATA[task](folder / NAME[task]), Listener()
            options = {**TRAINING, "steps": STEPS[task], "round_steps": 30}
            outcome = train(task, data, folder / "model", preset="tiny", watcher=watcher, **options)
            made_once[task] = outcome, watcher, data
        return made_once[task]

    torch.set_num_threads(1)
    return of


tasks = pytest.mark.parametrize("task", list(DATA))


@tasks
def test_it_learns_and_says_what_it_read(trained, task):
    outcome, watcher, data = trained(task)
    losses = [figures["loss"] for figures, _ in watcher.rounds]
    assert losses[-1] < 0.8 * watcher.moments[0].loss
    assert data.name in watcher.notes[0]
    assert {
        "README.md",
        "report.json",
        "report.md",
        "curves.png",
        "training.json",
        "task.json",
        "model.safetensors",
    } <= {path.name for path in outcome.folder.iterdir()}
    assert json.loads((outcome.folder / "training.json").read_text())["settings"]["steps"] == STEPS[task]


@tasks
def test_loaded_it_does_the_same(trained, task):
    outcome, _, _ = trained(task)
    again = load(outcome.folder, task=task)
    given = [INPUT[task], INPUT[task][:3]]
    assert predict(again, given, **WRITING[task]) == predict(outcome.model, given, **WRITING[task])


@tasks
def test_an_input_alone_is_as_among_others(trained, task):
    outcome, _, _ = trained(task)
    given = [INPUT[task], INPUT[task] * 3, INPUT[task][:2]]
    together = [str(one) for one in predict(outcome.model, given, **WRITING[task])]
    assert together == [str(predict(outcome.model, [one], **WRITING[task])[0]) for one in given]
    assert predict(outcome.model, []) == []


@tasks
def test_it_is_evaluated_with_its_figures_and_its_worst(trained, task, tmp_path):
    outcome, _, data = trained(task)
    report = evaluate(outcome.folder, data)
    data_path, page = report.save(tmp_path / "report")
    kept = json.loads(data_path.read_text(encoding="utf-8"))
    assert kept["task"] == task
    assert kept["examples"] == report.count > 0
    assert len(kept["worst"]) > 0
    scores = [example["score"] for example in kept["worst"]]
    assert scores == sorted(scores)
    assert "## The worst examples" in page.read_text(encoding="utf-8")


@tasks
def test_its_attention_is_a_page(trained, task, tmp_path):
    outcome, _, _ = trained(task)
    said, recording = observe(outcome.folder, INPUT[task], **WRITING[task])
    assert str(said) == str(predict(outcome.model, [INPUT[task]], **WRITING[task])[0])
    assert all(entry.status == "seen" for entry in recording.coverage)
    assert recording.calls
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


@tasks
def test_resumed_it_ends_as_it_would_have(task, tmp_path):
    data = DATA[task](tmp_path / NAME[task])
    options = {**TRAINING, "round_steps": 4, "preset": "tiny", "average": 0}
    straight = train(task, data, tmp_path / "straight", steps=8, watcher=Listener(), **options)
    train(task, data, tmp_path / "stopped", steps=4, watcher=Listener(), **options)
    watcher = Listener()
    resumed = train(task, data, tmp_path / "stopped", steps=8, resume=True, watcher=watcher, **options)
    assert any(note.startswith("resumed after step 4 ") for note in watcher.notes)
    for name, weight in straight.model.model.state_dict().items():
        assert torch.equal(resumed.model.model.state_dict()[name], weight), name


def test_classes_are_told_apart(trained):
    outcome, _, _ = trained("classify")
    assert outcome.report.figures["accuracy"] > 0.9
    found = predict(outcome.model, ["这 电影 精彩", "a dull scene"])
    assert [one.label for one in found] == ["pos", "neg"]
    assert sum(found[0].probabilities.values()) == pytest.approx(1)
    assert found[0].probability == max(found[0].probabilities.values())


def test_numbers_are_translated(trained):
    outcome, _, _ = trained("translate")
    pairs = list(itertools.product(zip(made.SOURCE, made.TARGET, strict=True), repeat=2))
    said = predict(outcome.model, [first + second for (first, _), (second, _) in pairs])
    right = sum(one.text == f"{first} {second}" for one, ((_, first), (_, second)) in zip(said, pairs, strict=True))
    assert right >= 27  # of 36
    assert "nrefs:1" in outcome.report.figures["bleu"]["signature"]


def test_lines_go_on(trained):
    outcome, _, _ = trained("generate")
    found = predict(outcome.model, ["aaa yy\nbbb"], max_new_tokens=4, do_sample=False)[0]
    assert re.match(r" (xx|yy|zz)\n", found.text)
    assert predict(outcome.model, ["aaa"], seed=1) == predict(outcome.model, ["aaa"], seed=1)
    assert outcome.report.figures["perplexity"] < 20


def test_d13_labels_travel_with_the_model(trained, tmp_path):
    """In a new process with another hash seed, and with the file in another order."""
    outcome, _, data = trained("classify")
    lines = data.read_text(encoding="utf-8").split("\n")
    turned = tmp_path / "turned.tsv"
    turned.write_text("\n".join([lines[0], *reversed(lines[1:-1])]) + "\n", encoding="utf-8")
    program = (
        "import sys, json; from regard.tasks import predict, load; import torch; torch.set_num_threads(1);"
        "texts = [line.split('\\t')[1] for line in open(sys.argv[2], encoding='utf-8').read().split('\\n')[1:-1]];"
        "print(json.dumps([one.label for one in predict(load(sys.argv[1]), texts[:20])]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(outcome.folder), str(turned)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    texts = [line.split("\t")[1] for line in reversed(lines[1:-1])][:20]
    assert json.loads(done.stdout) == [one.label for one in predict(outcome.model, texts)]


@pytest.mark.parametrize(
    ("task", "rows"), [("translate", ["一\tone", "壹\tone"]), ("classify", ["pos\tfine", "neg\tfine"])]
)
def test_what_is_held_out_is_not_asked_in_training(task, rows, tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("\n".join(rows * 20 + ["二\ttwo", "pos\tfair"]) + "\n", encoding="utf-8")
    chosen = task_named(task)
    options = ReadOptions(columns={"label": "1", "text": "2"}, header=False) if task == "classify" else ReadOptions()
    for seed in range(5):
        parts = chosen.divide(chosen.read(path, options), count=1, seed=seed)
        assert sorted(map(len, parts)) == [1, 41]


def test_d15_one_class_is_refused(tmp_path):
    path = tmp_path / "one.tsv"
    path.write_text("label\ttext\n" + "".join(f"pos\tgood film {number}\n" for number in range(10)), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"the data must have at least two classes, but all .* examples are 'pos'"):
        train("classify", path, tmp_path / "out", preset="tiny", steps=1, watcher=Listener())
    assert not (tmp_path / "out").exists()


def test_d22_another_vocabulary_is_refused(trained, tmp_path):
    outcome, _, _ = trained("translate")
    folder = tmp_path / "swapped"
    shutil.copytree(outcome.folder, folder)
    written = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = written["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (folder / "tokenizer.json").write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(FormatError, match=r"must be the vocabulary of this model \(.*…\), but is another one"):
        load(folder)


def test_d23_unknown_characters_do_not_stop_a_prediction(tmp_path):
    path = tmp_path / "abc.txt"
    path.write_text("abc\n" * 200, encoding="utf-8")
    options = {"preset": "tiny", "tokenizer": "character", "steps": 5, "watcher": Listener()}
    outcome = train("generate", path, tmp_path / "out", **options, **TRAINING)
    found = predict(outcome.model, ["d?"], max_new_tokens=4)[0]
    assert found.prompt == "d?"
    assert len(outcome.model.tokenizer) == 4 + len("abc\n")


def test_f20_one_pair_cannot_be_divided(tmp_path):
    path = tmp_path / "pair.tsv"
    path.write_text("一\tone", encoding="utf-8")
    with pytest.raises(
        ConfigError, match="the data must hold at least 10 examples, of which some are held out, but holds 1"
    ):
        train("translate", path, tmp_path / "out", steps=1, watcher=Listener())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"preset": "huge"}, r'`preset` must be "tiny" or "small" or "base", but is \'huge\''),
        ({"minute": 3}, "there is no setting `minute`; there are steps, epochs, minutes"),
        ({"steps": 0}, "`steps` must be at least 1, or None, but is 0"),
        ({"schedule": "up"}, "`schedule` must be"),
        ({"tokenizer": "syllable"}, "`kind` must be one of bpe, unigram, word, character"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(tmp_path, change, problem):
    data = made.reviews(tmp_path / "data.tsv", 30)
    with pytest.raises(ConfigError, match=problem):
        train("classify", data, tmp_path / "out", watcher=Listener(), **{"steps": 1, **change})
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_written_over(trained, tmp_path):
    data = made.reviews(tmp_path / "data.tsv", 30)
    with pytest.raises(ConfigError, match=r"(?s)`out` must be a new or an empty folder, but is .*resume goes on"):
        train("classify", data, tmp_path, steps=1, watcher=Listener())
    with pytest.raises(ConfigError, match="`out` must be a folder, but is the file"):
        train("classify", data, data, steps=1, watcher=Listener())


def test_a_task_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=f"`task` must be one of {', '.join(TASKS)}, but is 'sing'"):
        task_named("sing")


def test_a_folder_that_is_no_model_is_refused(trained, tmp_path):
    outcome, _, _ = trained("classify")
    with pytest.raises(ConfigError, match=r"`model` must be a folder that `regard train` made, but is .*, which"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="must do translate, but does classify"):
        load(outcome.folder, task="translate")
    broken = tmp_path / "broken"
    shutil.copytree(outcome.folder, broken)
    (broken / "task.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match=r"task.json must say what the model does, but cannot be read"):
        load(broken)


def test_unknown_labels_in_what_is_validated_on_are_named(tmp_path):
    data, valid = made.reviews(tmp_path / "data.tsv", 30), tmp_path / "valid.tsv"
    valid.write_text("label\ttext\nodd\tgood film\npos\tgood\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="the data must have the labels pos, neg, but has odd too"):
        train("classify", data, tmp_path / "out", valid=valid, preset="tiny", steps=1, watcher=Listener())
