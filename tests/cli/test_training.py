"""``regard train``, ``evaluate``, ``predict``: from a file to a model, its figures and its page."""

from __future__ import annotations

import json

import pytest
from tests.tasks import made

from regard.cli import app

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that tells good from bad, and the file it learned from."""
    place = tmp_path_factory.mktemp("cli")
    data = made.reviews(place / "data.tsv", 80)
    arguments = ["train", "classify", "--data", str(data), "--out", str(place / "model"), "--preset", "tiny"]
    assert app.main([*arguments, "--steps", "20", "--learning-rate", "0.005", "--warmup", "5"]) == 0
    return place


def test_train_says_what_it_does_and_where_the_model_is(tmp_path, capsys):
    data = made.reviews(tmp_path / "data.tsv", 40)
    out = tmp_path / "model"
    options = ["--preset", "tiny", "--steps", "2", "--seed", "4", "--columns", "text=text,label=label"]
    assert app.main(["train", "classify", "--data", str(data), "--out", str(out), *options]) == 0
    shown = capsys.readouterr()
    assert (
        shown.out.splitlines()[-1] == f"use it: regard predict classify TEXT --model {out} --attention attention.html"
    )
    assert "40 labelled texts read from data.tsv" in shown.err
    assert "held out to validate on" in shown.err
    assert "round: step 2, " in shown.err
    assert json.loads((out / "training.json").read_text())["settings"]["seed"] == 4


def test_predict_prints_a_line_for_each_input(folder, tmp_path, capsys):
    model = str(folder / "model")
    assert app.main(["predict", "classify", "a lovely film", "--model", model]) == 0
    assert capsys.readouterr().out.split("\t")[0] in ("pos", "neg")
    lines = tmp_path / "lines.txt"
    lines.write_text("好\n差\nthe film\n", encoding="utf-8")
    assert app.main(["classify", "--file", str(lines), "--model", model]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    out = tmp_path / "said.jsonl"
    assert app.main(["predict", "classify", "--file", str(lines), "--model", model, "-o", str(out)]) == 0
    said = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [one["input"] for one in said] == ["好", "差", "the film"]
    assert set(said[0]) == {"input", "label", "probability", "probabilities"}


def test_predict_writes_the_page_of_its_attention(folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    arguments = ["predict", "classify", "a lovely film", "--model", str(folder / "model"), "--attention", str(page)]
    assert app.main(arguments) == 0
    assert "page: " in capsys.readouterr().out
    assert "lovely" in page.read_text(encoding="utf-8")


def test_what_is_said_with_heads_silenced_or_words_blocked_stands_beside_what_is_said_without(folder, tmp_path, capsys):
    model = str(folder / "model")
    assert app.main(["classify", "a lovely film", "--model", model]) == 0
    whole = capsys.readouterr().out.strip()
    for change in (["--block", "lovely"], ["--silence", "0"], ["--silence", "0.1"]):
        assert app.main(["classify", "a lovely film", "--model", model, *change]) == 0
        changed, without = capsys.readouterr().out.splitlines()
        assert without == f"without the change: {whole}"
        assert changed != whole, change
    out, page = tmp_path / "said.json", tmp_path / "page.html"
    changes = ["--block", "lovely", "--block", "film", "--silence", "0.1"]
    arguments = ["classify", "a lovely film", "--model", model, *changes]
    assert app.main([*arguments, "--out", str(out), "--attention", str(page)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["unchanged"]["label"] == whole.split("\t")[0]
    assert found["unchanged"]["probabilities"] != found["probabilities"]
    assert "no token sees" in page.read_text(encoding="utf-8")
    capsys.readouterr()
    assert app.main(["classify", "a lovely film", "--model", model]) == 0
    assert capsys.readouterr().out.strip() == whole, "a change outlives its command"


def test_explain(folder, tmp_path, capsys):
    arguments = ["classify", "a lovely film", "--model", str(folder / "model"), "--explain"]
    assert app.main(arguments) == 0
    shown = capsys.readouterr().out
    label = shown.split("\t")[0]
    assert f"probability of {label}: 0." in shown
    for name in ("relevance", "gradient x attention", "random (control)", "comprehensiveness ↑"):
        assert name in shown
    assert "lovely" in next(line for line in shown.splitlines() if line.startswith("  relevance"))
    out, page = tmp_path / "said.json", tmp_path / "page.html"
    assert app.main([*arguments, "--out", str(out), "--attention", str(page)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))["explanation"]
    assert found["parts"] == ["a", "lovely", "film"]
    assert len(found["scores"]["rollout"]) == 3
    assert page.is_file()


def test_evaluate_prints_and_keeps_a_report(folder, tmp_path, capsys):
    out = tmp_path / "report"
    arguments = ["evaluate", "classify", "--model", str(folder / "model"), "--data", str(folder / "data.tsv")]
    assert app.main([*arguments, "--out", str(out)]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["examples"] == 80


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["train", "sing", "--data", "x", "--out", "y"], "`task` must be one of translate, classify"),
        (["train", "classify", "--data", "nowhere.tsv", "--out", "y"], "nowhere.tsv: no such file"),
        (
            ["train", "classify", "--data", "DATA", "--out", "y", "--columns", "text"],
            "--columns must look like",
        ),
        (["train", "classify", "--data", "DATA", "--out", "y", "--preset", "big"], "`preset` must be"),
        (["train", "classify", "--data", "DATA", "--out", "MODEL"], "must be a new or an empty folder"),
        (["train", "classify", "--data", "DATA", "--out", "y", "--columns", "label=stars"], "stars"),
        (["predict", "classify", "x", "--model", "nowhere"], "a folder that `regard train` made"),
        (["predict", "translate", "x", "--model", "MODEL"], "must do translate, but does classify"),
        (["predict", "classify", "--model", "MODEL"], "there is no text; give one of them"),
        (["predict", "classify", "x", "--file", "DATA", "--model", "MODEL"], "a text and --file exclude each other"),
        (["predict", "classify", "--file", "DATA", "--model", "MODEL", "--attention", "a.html"], "shows one text, but"),
        (["predict", "classify", "x", "--model", "MODEL", "--block", "y"], "is in it once, but 'y' is in it 0 times"),
        (["predict", "classify", "x x", "--model", "MODEL", "--block", "x"], "is in it once, but 'x' is in it 2 times"),
        (["predict", "classify", "x", "--model", "MODEL", "--silence", "a"], "--silence must look like 1.3,2"),
        (["predict", "classify", "x", "--model", "MODEL", "--silence", "7"], "must name layers of the model (0 to 0)"),
        (["predict", "classify", "x", "--model", "MODEL", "--silence", "0.9"], "must be less than the 2 heads of"),
        (
            ["predict", "classify", "--file", "DATA", "--model", "MODEL", "--block", "x"],
            "--block is about one text, but",
        ),
        (
            ["predict", "classify", "--file", "DATA", "--model", "MODEL", "--explain"],
            "is about one text, but there",
        ),
        (["evaluate", "classify", "--model", "MODEL", "--data", "nowhere"], "nowhere"),
    ],
)
def test_what_is_wrong_is_one_line(folder, tmp_path, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(tmp_path)
    places = {"DATA": str(folder / "data.tsv"), "MODEL": str(folder / "model")}
    assert app.main([places.get(word, word) for word in arguments]) == 2
    shown = capsys.readouterr()
    assert problem in shown.err
    assert shown.err.count("\n") == 1 or shown.err.splitlines()[-1].startswith("regard: ")
    assert not (tmp_path / "y").exists()
