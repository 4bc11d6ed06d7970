"""Summaries that are chosen and summaries that are written: sentences, stretches, what is learned, what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from regard.cli import app
from regard.errors import ConfigError
from regard.hf import RegardEncoderConfig, RegardForTokenClassification
from regard.hf.loading import load as load_model
from regard.tasks import evaluate, load, observe, predict, task_named, train
from regard.tasks.extracts import NUMBERED, Sentences, stretches
from regard.tasks.training import new_tokenizer
from regard.text import Document, Examples, Place
from regard.train.baselines import extractive_oracle, lead, oracle_sentences
from regard.train.metrics import rouge
from regard.train.objective import IGNORED
from regard.view import write_page
from tests.tasks.made import document, documents
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

TRAINING = {"preset": "tiny", "precision": "fp32", "warmup": 10, "learning_rate": 5e-3, "batch_rows": 16}
TEXT = "Dr. Li paid 3.5 yuan.  Why?\n\n“很好。”他说🙂🙂。 She left “naïve”！ No end"


@pytest.fixture(scope="module")
def chooser(tmp_path_factory):
    """A model that chooses, its file, and what was told."""
    torch.set_num_threads(1)
    folder, watcher = tmp_path_factory.mktemp("chooser"), Listener()
    data = documents(folder / "documents.jsonl")
    outcome = train("summarize", data, folder / "model", steps=60, round_steps=20, watcher=watcher, **TRAINING)
    return outcome, data, watcher


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A model that writes, its file, and what was told."""
    torch.set_num_threads(1)
    folder, watcher = tmp_path_factory.mktemp("writer"), Listener()
    data = documents(folder / "documents.jsonl")
    options = {**TRAINING, "learning_rate": 3e-3, "style": "abstractive", "watcher": watcher}
    return train("summarize", data, folder / "model", steps=120, round_steps=40, **options), data, watcher


@pytest.fixture(scope="module", params=["bpe", "unigram", "word", "character", "minilm", "e5-small"])
def tokenizer(request):
    """Ours, and those of two models: word pieces that drop accents, and a unigram model with markers."""
    if request.param == "e5-small":
        request.getfixturevalue("chinese_model")
    if request.param in ("minilm", "e5-small"):
        return load_model(request.param).tokenizer
    return new_tokenizer([TEXT] * 5, kind=request.param, size=400, pairs=False)


def test_sentences_of_a_text_and_of_a_list_know_where_they_stand():
    found = Sentences.of(TEXT)
    assert found.text == TEXT
    assert found.listed[:2] == ("Dr. Li paid 3.5 yuan.", "Why?")
    assert [TEXT[start : start + len(one)] for start, one in zip(found.starts, found.listed, strict=True)] == [
        *found.listed
    ]
    again = Sentences.of(["同样。", "同样。", "  ", "a \ud800", "b"])
    assert again.text == "同样。同样。  a \N{REPLACEMENT CHARACTER} b"
    assert again.listed == ("同样。", "同样。", "a \N{REPLACEMENT CHARACTER}", "b")
    assert again.starts[:2] == (0, 3)
    assert Sentences.of("") == Sentences.of([]) == Sentences("", (), ())
    assert Sentences.of(" \n ").listed == ()


@pytest.mark.parametrize("max_tokens", [24, 40, 512])
def test_every_token_of_a_stretch_knows_its_sentence(tokenizer, max_tokens):
    document = Sentences.of(TEXT * 2)
    found = stretches(tokenizer, document, max_tokens=max_tokens, numbered=True)
    assert [one.first for one in found] == [0, *(one.first + one.count for one in found[:-1])]
    assert found[-1].first + found[-1].count == len(document.listed)
    for one in found:
        assert len(one.row["input_ids"]) == len(one.parts) == len(one.sequence.tokens) <= max_tokens
        assert {part for part in one.parts if part != IGNORED} == set(range(one.count))
        written = one.sequence.text.encode()
        for number in range(one.count):
            tokens = [
                token
                for token, part in zip(one.sequence.tokens, one.parts, strict=True)
                if part == number and token.start >= 0
            ]
            read = written[min(token.start for token in tokens) : max(token.end for token in tokens)].decode().strip()
            whole = document.listed[one.first + number]
            assert read == whole or (one.count == 1 and whole.startswith(read))  # cut where it has no room
        segments = [0 if part == IGNORED else min(one.first + part, NUMBERED - 1) for part in one.parts]
        assert one.row["token_type_ids"] == segments
    assert (len(found) == 1) == (max_tokens == 512)


def test_a_stretch_is_what_the_tokenizer_makes_of_the_text(tokenizer):
    (one,) = stretches(tokenizer, Sentences.of(TEXT), max_tokens=512, numbered=False)
    whole = tokenizer(TEXT)
    assert one.row == {name: whole[name] for name in one.row}
    assert stretches(tokenizer, Sentences.of(""), max_tokens=512, numbered=False) == []


def test_what_is_learned_are_the_sentences_of_the_oracle(chooser):
    trained = load(chooser[0].folder)
    told = ["The sky is grey.", "We show that tea works.", "Nobody was there."]
    empty = Document("   ", ("nothing",))
    examples = Examples((Document(" ".join(told), ("tea works",)), empty), (Place("a", 1), Place("a", 2)))
    data, left_out = task_named("summarize").data(trained, examples)
    assert (len(data), left_out) == (1, 1)
    assert data.rows[0]["labels"] == [0, 1, 0]
    assert oracle_sentences(told, ["tea works"], count=1) == (1,)
    batch = data.collate([data.rows[0], {**data.rows[0], "labels": [1]}])
    assert batch["labels"].tolist() == [[0, 1, 0], [1, IGNORED, IGNORED]]


def test_it_learns_to_choose_in_both_languages(chooser):
    outcome, _, watcher = chooser
    losses = [figures["loss"] for figures, _ in watcher.rounds]
    assert losses[-1] < 0.3 * watcher.moments[0].loss
    details = outcome.model.info.details
    assert (details["style"], details["count"], details["numbered"]) == ("extractive", 1, True)
    draw = random.Random(7)
    for language in ("en", "zh"):
        sentences, summary = document(draw, language)
        for given in (sentences, ("" if language == "zh" else " ").join(sentences)):
            (found,) = predict(outcome.model, [given])
            assert summary.split()[0][:2] in found.text
            assert [one.text for one in found.sentences] == sentences
            assert [one.text for one in found.sentences if one.chosen] == [found.text] == [str(found)]
            assert max(one.weight for one in found.sentences) == next(o.weight for o in found.sentences if o.chosen)
            assert all(0 <= one.weight <= 1 for one in found.sentences)


def test_more_sentences_stay_in_their_order(chooser):
    outcome, _, _ = chooser
    text = "The shop is closed. We show that rain works. Nobody was there. We show that tea works."
    (found,) = predict(outcome.model, [text], count=2)
    assert found.text == "We show that rain works. We show that tea works."
    (every,) = predict(outcome.model, [text], count=99)
    assert every.text == text


def test_loaded_and_among_others_it_weighs_the_same(chooser):
    outcome, _, _ = chooser
    again = load(outcome.folder, task="summarize")
    given = ["We show that tea works. Nobody was there.", "今天很长。我们证明茶叶有效。" * 3, "", " \n", "one"]
    together = predict(again, given)
    assert [one.text for one in together] == [one.text for one in predict(outcome.model, given)]
    for one, text in zip(together, given, strict=True):
        (alone,) = predict(again, [text])
        assert alone.text == one.text
        assert [each.weight for each in alone.sentences] == pytest.approx(
            [each.weight for each in one.sentences], abs=1e-5
        )
    assert [one.text for one in together[2:]] == ["", "", "one"]
    assert predict(again, []) == []


def test_a_weight_is_that_of_the_mean_state_of_its_tokens(chooser):
    outcome, _, _ = chooser
    trained, told = outcome.model, ["The sky is grey.", "We show that tea works."]
    (one,) = stretches(trained.tokenizer, Sentences.of(told), max_tokens=512, numbered=True)
    inner = trained.model.model
    with torch.no_grad():
        states = inner.text(torch.tensor([one.row["input_ids"]]), segments=torch.tensor([one.row["token_type_ids"]]))[0]
        for number, weighed in enumerate(predict(trained, [told])[0].sentences):
            mean = states[[place for place, part in enumerate(one.parts) if part == number]].mean(dim=0)
            assert weighed.weight == pytest.approx(inner.classes(mean).softmax(dim=-1)[1].item(), abs=1e-5)


def test_long_documents_are_weighed_stretch_by_stretch(chooser, tmp_path):
    outcome, _, _ = chooser
    draw = random.Random(3)
    sentences, _ = document(draw, "en", 150)
    (found,) = predict(outcome.model, [sentences])
    assert found.text.startswith("We show that")
    summary, recording = observe(outcome.model, sentences)
    assert summary == found
    (shown,) = recording.sequences[0]
    assert found.text in shown.text
    assert len(shown.text) < len(" ".join(sentences))
    assert "stretches; this is the one with the sentence of most weight" in recording.notes[0]
    (table,) = recording.tables
    assert table.columns == tuple(sentences)  # all of them, not only those of the stretch
    assert table.values[0].tolist() == [one.weight for one in found.sentences]
    assert [table.columns[number] for number in table.chosen] == [found.text]
    assert found.text in write_page(recording, tmp_path / "page.html").read_text(encoding="utf-8")


def test_evaluate_gives_the_metric_s_own_numbers_beside_those_of_the_first_sentences(chooser):
    outcome, data, _ = chooser
    report = evaluate(outcome.folder, data)
    examples = task_named("summarize").read(data, outcome.model.info.options)
    wanted = [example.summaries for example in examples]
    given = [example.sentences or example.text for example in examples]
    own = rouge([one.text for one in predict(outcome.model, given)], wanted)
    listed = [Sentences.of(one).listed for one in given]
    first = rouge([lead(one, 1) for one in listed], wanted)
    most = rouge([extractive_oracle(one, each, count=1) for one, each in zip(listed, wanted, strict=True)], wanted)
    assert report.figures["rouge"] == own.as_dict()
    assert report.figures["baseline"] == {"name": "lead-1", **first.as_dict()}
    assert report.figures["oracle"] == most.as_dict()
    assert first.rouge_l.f1 < own.rouge_l.f1 <= most.rouge_l.f1
    assert "without a model, the first 1 of the sentences" in str(report)
    two = evaluate(outcome.folder, data, count=2)
    assert two.figures["baseline"]["name"] == "lead-2"


def test_it_learns_to_write_in_both_languages(writer, tmp_path):
    outcome, data, watcher = writer
    losses = [figures["loss"] for figures, _ in watcher.rounds]
    assert losses[-1] < 0.3 * watcher.moments[0].loss
    assert outcome.model.info.auto == "AutoModelForSeq2SeqLM"
    assert outcome.model.info.details["longest"] == len("sleep works")
    report = evaluate(outcome.folder, data, num_beams=1)
    assert report.figures["rouge"]["rouge_l"]["f1"] > report.figures["baseline"]["rouge_l"]["f1"]
    given = ["We show that tea works. The sky is grey.", ["今天很长。", "我们证明茶叶有效。"]]
    found = predict(load(outcome.folder), given)
    assert [one.text for one in found] == [predict(outcome.model, [one])[0].text for one in given]
    assert found[0].text.endswith("works")
    assert found[1].text.endswith("有效")
    assert found[0].sentences == ()
    summary, recording = observe(outcome.model, given[0], num_beams=1)
    assert summary.text.endswith("works")
    assert [one.name for one in recording.sequences[0]] == ["input", "output"]
    assert " ".join(recording.tables[0].rows) == summary.text
    assert write_page(recording, tmp_path / "page.html").stat().st_size > 10_000


def test_a_checkpoint_goes_on(tmp_path):
    """MiniLM, with a new head: only that a step is made and the folder can be used."""
    data = documents(tmp_path / "documents.jsonl", 24)
    options = {"precision": "fp32", "steps": 1, "batch_rows": 4, "watcher": Listener()}
    outcome = train("summarize", data, tmp_path / "model", model="minilm", **options)
    assert outcome.model.info.details["numbered"] is False
    assert predict(load(outcome.folder), ["The sky is grey. We show that tea works."])[0].text


def test_a_checkpoint_of_other_classes_is_refused(tmp_path):
    tokenizer = new_tokenizer(["a b c"], kind="character", size=300, pairs=False)
    config = RegardEncoderConfig(vocab_size=300, embed_dim=8, num_heads=2, num_layers=1, ff_dim=16, num_labels=3)
    RegardForTokenClassification(config).save_pretrained(tmp_path / "tagger")
    tokenizer.save_pretrained(tmp_path / "tagger")
    data = documents(tmp_path / "documents.jsonl", 24)
    with pytest.raises(
        ConfigError, match="`model` must be one that tells two classes of tokens apart, but is one of 3"
    ):
        train("summarize", data, tmp_path / "model", model=str(tmp_path / "tagger"), steps=1, watcher=Listener())


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        (3, {}, "`inputs` must be texts, or lists of their sentences, but is 3"),
        (["a", None], {}, "`inputs` must be texts, or lists of their sentences"),
        ("a", {"num_beams": 3}, r"there is no option `num_beams` of summaries that are chosen; there is count\."),
        ("a", {"count": 0}, "`count` must be an integer of at least 1, or None, but is 0"),
    ],
)
def test_what_cannot_be_asked_is_said(chooser, given, options, problem):
    outcome, _, _ = chooser
    with pytest.raises(ConfigError, match=problem):
        predict(outcome.model, [given], **options)
    with pytest.raises(ConfigError, match=problem):
        observe(outcome.model, given, **options)


def test_what_has_no_sentences_cannot_be_looked_at_and_written_ones_are_not_counted(chooser, writer):
    for trained in (chooser[0].model, writer[0].model):
        with pytest.raises(ConfigError, match="the document must have something in it, but is empty"):
            observe(trained, " \n")
    with pytest.raises(ConfigError, match="`count` must be for summaries that are chosen, not written"):
        predict(writer[0].model, ["a"], count=2)


def test_what_cannot_be_learned_is_said_before_anything_is_written(tmp_path):
    data, out = documents(tmp_path / "documents.jsonl", 24), tmp_path / "model"
    options = {"preset": "tiny", "steps": 1, "watcher": Listener()}
    with pytest.raises(ConfigError, match='`style` must be "extractive" or "abstractive", but is \'poetic\''):
        train("summarize", data, out, style="poetic", **options)
    with pytest.raises(ConfigError, match="`data` must be one file, but is 2 files"):
        train("summarize", (data, data), out, **options)
    assert not out.exists()


def test_a_style_stays_what_it_was(tmp_path):
    data, out = documents(tmp_path / "documents.jsonl", 24), tmp_path / "model"
    train("summarize", data, out, steps=1, watcher=Listener(), **TRAINING)
    with pytest.raises(ConfigError, match="style was 'extractive', and is 'abstractive' now"):
        train("summarize", data, out, steps=2, resume=True, style="abstractive", watcher=Listener(), **TRAINING)


def test_on_the_command_line(chooser, tmp_path, monkeypatch, capsys):
    outcome, data, _ = chooser
    monkeypatch.chdir(tmp_path)
    text = "今天很长。\nNobody was there. We show that rain works.\nThe sky is grey.\n"
    Path("text.txt").write_text(text, encoding="utf-8")
    model = ["--model", str(outcome.folder)]
    assert app.main(["summarize", "--file", "text.txt", *model]) == 0
    assert capsys.readouterr().out == "We show that rain works.\n"
    assert (
        app.main(
            ["predict", "summarize", "Nobody. We show that tea works.", "--count", "2", *model, "-o", "said.jsonl"]
        )
        == 0
    )
    said = json.loads(Path("said.jsonl").read_text(encoding="utf-8"))
    assert said["text"] == "Nobody. We show that tea works."
    assert [one["chosen"] for one in said["sentences"]] == [True, True]
    assert app.main(["summarize", "--file", "text.txt", *model, "--attention", "page.html"]) == 0
    assert Path("page.html").stat().st_size > 10_000
    train_options = ["--preset", "tiny", "--steps", "1", "--style", "abstractive", "-o", "writer"]
    assert app.main(["train", "summarize", "--data", str(data), *train_options]) == 0
    assert load("writer").info.details["style"] == "abstractive"
