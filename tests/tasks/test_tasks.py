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
from regard.tasks.encoding import unknown_share
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
TABLES = {"translate": ["Words and their sources"], "classify": [], "generate": []}
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
    assert [table.name for table in recording.tables] == TABLES[task]
    for table in recording.tables:  # a translation: its words, and the characters it came from
        assert "".join(table.rows) == said.text.replace(" ", "")
        assert "".join(table.columns) == INPUT[task]
        assert (table.values.sum(axis=1) <= 1 + 1e-6).all()
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("task", [*DATA, "answer", "summarize"])
def test_resumed_it_ends_as_it_would_have(task, tmp_path):
    data = {**DATA, "answer": made.questions, "summarize": made.documents}[task](
        tmp_path / NAME.get(task, "data.jsonl")
    )
    options = {**TRAINING, "round_steps": 4, "preset": "tiny", "average": 0, "schedule": "inverse_sqrt"}
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


def test_half_of_the_words_are_hidden_from_a_new_classifier_while_it_learns(trained):
    outcome, _, data = trained("classify")
    chosen, tokenizer = task_named("classify"), outcome.model.tokenizer
    learned, _ = chosen.data(outcome.model, chosen.read(data, outcome.model.info.options))
    first, later = (
        [token for index in range(len(learned)) for token in learned.row(index, epoch)["input_ids"]] for epoch in (0, 3)
    )
    words = [number for number, token in enumerate(first) if token not in tokenizer.all_special_ids]
    hidden = [number for number in words if later[number] == tokenizer.unk_token_id]
    assert first.count(tokenizer.unk_token_id) == 0
    assert len(hidden) / len(words) == pytest.approx(0.5, abs=0.05)


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
    likeliest = predict(outcome.model, ["aaa"], do_sample=False)
    assert predict(outcome.model, ["aaa"], temperature=0, top_k=3, seed=1) == likeliest
    assert outcome.report.figures["perplexity"] < 20


@pytest.mark.parametrize(
    ("task", "options", "problem"),
    [
        ("classify", {"num_beams": 2}, r"there is no option `num_beams` of classify; there is none\."),
        (
            "translate",
            {"seed": 1},
            r"nothing is left to chance, and `seed` would change nothing\..*temperature above 0",
        ),
        ("translate", {"top_k": 3, "do_sample": False}, r"nothing is left to chance, and `top_k` would change nothing"),
        ("translate", {"num_return_sequences": 2}, r"`num_return_sequences` must be as it is: one text for each input"),
        ("translate", {"beams": 2}, r"the options cannot be used: .*beams"),
        ("translate", {"num_beams": 0}, r"`num_beams` must be an integer of at least 1, or None, but is 0"),
        ("translate", {"max_new_tokens": "9"}, r"`max_new_tokens` must be an integer of at least 1, or None"),
        ("generate", {"temperature": -1}, r"the options cannot be used: .*temperature"),
    ],
)
def test_options_that_cannot_be_are_refused(trained, task, options, problem):
    outcome, _, data = trained(task)
    for use in (predict, observe, evaluate):
        given = {predict: [INPUT[task]], observe: INPUT[task], evaluate: data}[use]
        if (use, task) == (evaluate, "generate"):  # what is measured is not drawn
            problem = "there is no option `.*` of the evaluation of generate; there is none"
        with pytest.raises(ConfigError, match=f"(?s){problem}"):
            use(outcome.model, given, **options)


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


def test_by_chance_texts_differ_and_are_the_same_from_a_seed(trained):
    outcome, _, _ = trained("translate")
    found = {
        str(predict(outcome.model, ["一三二"], temperature=9.0, seed=seed, max_new_tokens=6)[0]) for seed in range(6)
    }
    assert len(found) > 1
    again = [predict(outcome.model, ["一三二"], temperature=9.0, seed=3, max_new_tokens=6)[0] for _ in range(2)]
    assert again[0] == again[1]
    assert predict(outcome.model, ["一三二"], temperature=0) == predict(outcome.model, ["一三二"])


@pytest.mark.parametrize("task", ["translate", "classify", "generate"])
def test_of_a_long_text_the_page_shows_what_the_model_read(trained, task):
    outcome, _, _ = trained(task)
    limit, word = outcome.model.info.max_tokens, {"translate": "一三", "classify": "good ", "generate": "aaa\n"}[task]
    text, options = word * 2 * limit, {**WRITING[task], **({} if task == "classify" else {"max_new_tokens": 4})}
    said, recording = observe(outcome.model, text, **options)
    assert said == predict(outcome.model, [text], **options)[0]
    sequence = recording.sequences[0][0]
    assert len(sequence.tokens) <= limit + 4
    assert sequence.text[:9] in text
    assert len(sequence.text) < len(text)
    assert any("left out" in note for note in recording.notes)
    assert observe(outcome.model, word, **options)[1].notes == ()


@pytest.mark.parametrize("given", [3, None, ("a",), ("a", "b", "c"), ("a", 3), b"a"])
@pytest.mark.parametrize("task", ["translate", "classify", "generate"])
def test_what_is_no_text_is_shown(trained, task, given):
    outcome, _, _ = trained(task)
    with pytest.raises(ConfigError, match=r"`inputs` must be texts(, or pairs of texts)?, but is "):
        predict(outcome.model, ["a", given])


def test_texts_and_pairs_together_are_as_alone(trained):
    outcome, _, _ = trained("classify")
    given = ["这 电影 精彩", ("a dull scene", "it was"), "the film"]
    alone = [predict(outcome.model, [one])[0].probability for one in given]
    assert [one.probability for one in predict(outcome.model, given)] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "end"),
    [("line\n" * 5, "e\n"), ("abcdefghij" * 3, "hij"), ("abcdefghij" * 3 + "\n", "ij\n"), ("ab\n" * 20, "ab\n")],
)
def test_of_one_text_the_end_is_held_out_whatever_its_lines(tmp_path, text, end):
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    chosen = task_named("generate")
    (learned,), (held_out,) = chosen.divide(chosen.read(path, ReadOptions()), count=1, seed=1)
    assert (learned + held_out, held_out[-len(end) :]) == (text, end)
    assert len(held_out) >= 2


def test_after_a_stop_all_rounds_are_kept(tmp_path):
    data = made.reviews(tmp_path / "data.tsv", 60)
    options = {**TRAINING, "round_steps": 2, "preset": "tiny", "watcher": Listener()}
    train("classify", data, tmp_path / "out", steps=4, **options)
    train("classify", data, tmp_path / "out", steps=8, resume=True, **options)
    kept = json.loads((tmp_path / "out" / "training.json").read_text(encoding="utf-8"))
    assert [one["step"] for one in kept["history"]] == [2, 4, 6, 8]
    assert kept["examples"] == 57  # three are held out
    assert "learned from 57 examples" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_model_is_written_whole_or_not_at_all(trained, tmp_path, monkeypatch):
    outcome, _, _ = trained("classify")
    folder = tmp_path / "model"
    outcome.model.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    whole = type(outcome.model.model).save_pretrained

    def torn(model, place):
        whole(model, place)
        (place / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(outcome.model.model), "save_pretrained", torn)
    with pytest.raises(OSError, match="No space left"):
        outcome.model.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_classifier_that_goes_on_keeps_the_numbers_of_its_classes(trained, tmp_path):
    outcome, _, data = trained("classify")
    assert outcome.model.info.labels == ("pos", "neg")
    lines = data.read_text(encoding="utf-8").split("\n")
    turned = tmp_path / "turned.tsv"
    turned.write_text("\n".join([lines[0], *reversed(lines[1:-1])]) + "\n", encoding="utf-8")
    options = {"steps": 1, "precision": "fp32", "learning_rate": 1e-9, "watcher": Listener()}
    again = train("classify", turned, tmp_path / "again", model=str(outcome.folder), **options)
    assert again.model.info.labels == ("pos", "neg")
    assert again.report.figures["accuracy"] > 0.9
    assert again.model.info.checkpoint == outcome.folder.name
    assert (outcome.model.info.details["hidden"], again.model.info.details["hidden"]) == (0.5, 0.0)
    assert f"begun from: {outcome.folder.name}" in (again.folder / "README.md").read_text(encoding="utf-8")


def test_what_validation_has_in_common_with_training_is_said(tmp_path):
    """D30: the count is printed; ``Examples.without`` drops them."""
    data, valid = made.reviews(tmp_path / "data.tsv", 30), tmp_path / "valid.tsv"
    lines = data.read_text(encoding="utf-8").split("\n")
    valid.write_text("\n".join([*lines[:5], "pos\tsomething else"]) + "\n", encoding="utf-8")
    watcher = Listener()
    train("classify", data, tmp_path / "out", valid=valid, preset="tiny", steps=1, watcher=watcher)
    assert any("validation data: 4 of 5 test examples (80.0%) are also trained on" in note for note in watcher.notes)


@pytest.mark.parametrize(
    ("task", "line", "problem"),
    [("classify", "pos\tsame\nneg\tsame\n", "belongs together"), ("translate", "一\tone\n", "belongs together")],
)
def test_data_that_asks_one_thing_cannot_be_divided(tmp_path, task, line, problem):
    path = tmp_path / "data.tsv"
    path.write_text(line * 10, encoding="utf-8")
    columns = {"label": "1", "text": "2"} if task == "classify" else {}
    options = ReadOptions(columns=columns, header=False)
    with pytest.raises(ConfigError, match=f"some of the data must be held out, but all of it {problem}"):
        train(task, path, tmp_path / "out", preset="tiny", steps=1, options=options, watcher=Listener())
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_is_chosen_once(trained, tmp_path):
    outcome, _, data = trained("classify")
    with pytest.raises(ConfigError, match="`tokenizer` must be \"auto\": a checkpoint has its own, but is 'word'"):
        train("classify", data, tmp_path / "out", model=str(outcome.folder), tokenizer="word", watcher=Listener())
    with pytest.raises(ConfigError, match="the tokenizer was word, and is character now"):
        train("classify", data, outcome.folder, resume=True, preset="tiny", tokenizer="character", watcher=Listener())


def test_d23_unknown_characters_do_not_stop_a_prediction(tmp_path):
    path = tmp_path / "abc.txt"
    path.write_text("abc\n" * 200, encoding="utf-8")
    options = {"preset": "tiny", "tokenizer": "character", "steps": 5, "watcher": Listener()}
    outcome = train("generate", path, tmp_path / "out", **options, **TRAINING)
    found = predict(outcome.model, ["d?"], max_new_tokens=4)[0]
    assert found.prompt == "d?"
    assert unknown_share(outcome.model.tokenizer, ["d?", "ab"]) == 0.5
    _, recording = observe(outcome.model, "d?ab", max_new_tokens=4)
    assert "50% of the tokens are unknown to this model." in recording.notes
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


@pytest.mark.parametrize(
    ("task", "most", "expected"),
    [
        ("translate", 2, "a table, or two files whose lines belong together"),
        ("answer", 1, "one file"),
        ("summarize", 1, "one file"),
        ("generate", 1, "one file"),
        ("classify-image", 2, "a folder, a table, or two IDX files: images and labels"),
        ("caption", 1, "one table"),
    ],
)
def test_more_files_than_a_task_reads_are_refused(task, most, expected, tmp_path):
    for count in (0, most + 1):
        with pytest.raises(ConfigError, match=f"`data` must be {expected}, but is {count} files"):
            train(task, [tmp_path / "a.tsv"] * count, tmp_path / "out", preset="tiny", steps=1, watcher=Listener())
    with pytest.raises((FormatError, OSError), match=r"a\.tsv"):  # a list of one is that file
        train(task, [tmp_path / "a.tsv"], tmp_path / "out", preset="tiny", steps=1, watcher=Listener())


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
    assert not (tmp_path / "out").exists()
