"""Questions whose answers stand in a text: windows, characters, what is learned, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from regard.cli import app
from regard.errors import ConfigError
from regard.hf.loading import load as load_model
from regard.tasks import evaluate, load, observe, predict, task_named, train
from regard.tasks.matches import matches
from regard.tasks.training import new_tokenizer
from regard.tasks.windows import read_passage
from regard.text import Answer, Examples, Place, Question
from regard.train.baselines import overlap_answer
from regard.train.metrics import exact_match_and_f1
from regard.view import write_page
from tests.tasks.made import ASKED, questions
from tests.train.tiny import Listener

pytestmark = pytest.mark.usefixtures("unchecked")  # trainings are long loops

TRAINING = {"precision": "fp32", "warmup": 10, "learning_rate": 5e-3, "preset": "tiny", "batch_rows": 16}
MIXED = "The  bank, opened in 1899.\n\n银行在河边，1998年開業🙂🙂。她说 “naïve” 和「é」。" * 3


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model of questions that all have answers, the file, and what was told."""
    torch.set_num_threads(1)
    folder, watcher = tmp_path_factory.mktemp("answer"), Listener()
    data = questions(folder / "questions.jsonl")
    outcome = train("answer", data, folder / "model", steps=90, round_steps=30, watcher=watcher, **TRAINING)
    return outcome, data, watcher


@pytest.fixture(scope="module")
def sceptic(tmp_path_factory):
    """A model that has learned that there may be no answer."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("sceptic")
    data = questions(folder / "questions.jsonl", unanswerable=True)
    return train("answer", data, folder / "model", steps=120, watcher=Listener(), **TRAINING), data


@pytest.fixture(scope="module", params=["bpe", "unigram", "word", "character", "minilm", "e5-small"])
def tokenizer(request):
    """Ours, and those of two models: word pieces that drop accents, and a unigram model with markers."""
    if request.param == "e5-small":
        request.getfixturevalue("chinese_model")
    if request.param in ("minilm", "e5-small"):
        return load_model(request.param).tokenizer
    return new_tokenizer([MIXED] * 5, kind=request.param, size=400, pairs=True)


@pytest.mark.parametrize("max_tokens", [30, 70, 512])
def test_every_token_of_every_window_knows_its_characters(tokenizer, max_tokens):
    passage = read_passage(tokenizer, "Where is the bank 银行？", MIXED, max_tokens=max_tokens)
    held = set()
    for window in passage.windows:
        sequence = passage.sequence(window)
        assert len(window.row["input_ids"]) == len(sequence.tokens) <= max_tokens
        written = sequence.text.encode()
        for number, (start, end) in enumerate(zip(window.starts, window.ends, strict=True)):
            token = sequence.tokens[window.place + number]
            assert MIXED[start:end] == written[token.start : token.end].decode().strip()
            held.update(range(start, end))
    marks = {"\N{COMBINING ACUTE ACCENT}"}  # some tokenizers drop them
    assert {MIXED[at] for at in range(len(MIXED)) if at not in held and not MIXED[at].isspace()} <= marks
    assert (len(passage.windows) == 1) == (max_tokens == 512)


@pytest.mark.parametrize("answer", ["1998", "河边", "🙂🙂", "opened in 1899", "“naïve”"])
def test_answers_are_found_among_the_tokens_to_the_character(tokenizer, answer):
    passage = read_passage(tokenizer, "?", MIXED, max_tokens=512)
    for start in (MIXED.index(answer), MIXED.rindex(answer)):
        tokens = passage.touching(start, start + len(answer))
        found = MIXED[passage.starts[tokens.start] : passage.ends[tokens.stop - 1]]
        assert answer in found
        assert len(found) <= len(answer) + 3  # no more than the rest of the pieces at both ends


def test_one_window_is_what_the_tokenizer_makes_of_the_pair(tokenizer):
    (window,) = read_passage(tokenizer, "Where?", MIXED, max_tokens=512).windows
    whole = tokenizer("Where?", MIXED)
    assert window.row == {name: whole[name] for name in window.row}
    assert set(window.row) == set(tokenizer.model_input_names) & set(whole)


def test_every_token_knows_what_its_words_share_with_the_question(tokenizer):
    question, context = "When did The Bank open 銀行？", "the bank opened. 銀行 銀，行 Bank did The bank"
    (window,) = read_passage(tokenizer, question, context, max_tokens=512, matched=True).windows
    if "token_type_ids" not in tokenizer.model_input_names:
        assert "token_type_ids" not in window.row  # a model that tells no parts apart
        return
    segments = np.array(window.row["token_type_ids"])
    inside = slice(window.place, window.place + len(window.starts))
    assert segments[inside].tolist() == (1 + matches(question, context, window.starts, window.ends)).tolist()
    assert segments[inside].max() == 4  # "did The bank"
    assert not segments[: window.place].any()


def test_windows_overlap_and_the_last_is_full():
    tokenizer = new_tokenizer(["a b c"], kind="character", size=300, pairs=True)
    passage = read_passage(tokenizer, "ab", "abc" * 10, max_tokens=14, stride=4)
    assert [window.first for window in passage.windows] == [0, 4, 8, 12, 16, 20]
    assert {len(window.starts) for window in passage.windows} == {10}
    by_default = read_passage(tokenizer, "ab", "abc" * 10, max_tokens=14)
    assert [window.first for window in by_default.windows] == [0, 6, 12, 18, 20]
    without_gaps = read_passage(tokenizer, "ab", "abc" * 10, max_tokens=14, stride=99)
    assert [window.first for window in without_gaps.windows] == [0, 10, 20]


def test_a_long_question_loses_its_end_and_an_empty_context_has_no_window():
    tokenizer = new_tokenizer(["a b c"], kind="character", size=300, pairs=True)
    passage = read_passage(tokenizer, "abc" * 20, "cba" * 4, max_tokens=14)
    assert [len(window.row["input_ids"]) for window in passage.windows] == [14] * len(passage.windows)
    assert tokenizer.decode(passage.windows[0].row["input_ids"][:6]) == "abcabc"
    assert read_passage(tokenizer, "abc", "", max_tokens=14).windows == ()


def test_targets_are_the_answer_where_a_window_holds_it_whole(learned):
    trained = load(learned[0].folder)
    filler = "今天很好。" * 60
    context = f"{filler}Today Anna is in the garden.{filler}"
    question = Question(context, ASKED["en"][1], (Answer("garden", context.index("garden")),))
    empty = Question("Today.", ASKED["en"][1])
    data, left_out = task_named("answer").data(trained, Examples((question, empty), (Place("a", 1), Place("a", 2))))
    passage = read_passage(trained.tokenizer, question.question, context, max_tokens=trained.info.max_tokens)
    assert left_out == 0
    assert len(data) >= 3
    answered = 0
    for window, row in zip(passage.windows, data.rows, strict=False):
        first, last = row["start_positions"], row["end_positions"]
        if first == last == window.none:
            continue
        answered += 1
        read = context[window.starts[first - window.place] : window.ends[last - window.place]]
        assert read == "garden"
    assert answered >= 1
    assert data.rows[-1]["start_positions"] == data.rows[-1]["end_positions"]
    batch = data.batch_of([{**row, "rows": number} for number, row in enumerate(data.rows)])
    assert batch["start_positions"].shape == (len(data),)


def test_an_answer_that_no_window_holds_is_too_long(learned):
    trained = load(learned[0].folder)
    context = "好坏" * 400
    examples = Examples((Question(context, "?", (Answer(context[:700], 0),)),), (Place("a", 1),))
    data, left_out = task_named("answer").data(trained, examples)
    assert (len(data), left_out) == (0, 1)


def test_it_learns_and_answers_in_both_languages(learned):
    outcome, _, watcher = learned
    losses = [figures["loss"] for figures, _ in watcher.rounds]
    assert losses[-1] < 0.2 * watcher.moments[0].loss
    assert outcome.report.figures["exact_match"] > 0.9
    asked = [(ASKED["en"][0], "Today Clara is in the attic."), (ASKED["zh"][1], "今天老李在厨房里。")]
    found = predict(outcome.model, asked)
    assert [(one.text, one.start) for one in found] == [("Clara", 6), ("厨房", 5)]
    assert all(0.5 < one.score <= 1 for one in found)
    assert str(found[0]) == f"Clara\t{found[0].score:.3f}"


def test_loaded_and_among_others_it_answers_the_same(learned):
    outcome, _, _ = learned
    again = load(outcome.folder, task="answer")
    asked = [(ASKED["en"][0], "Today Clara is in the attic."), (ASKED["zh"][0], "今天老李在厨房里。" * 5), ("", "x")]
    together = predict(again, asked)
    assert [one.text for one in together] == [one.text for one in predict(outcome.model, asked)]
    for one, given in zip(together, asked, strict=True):
        (alone,) = predict(again, [given])
        assert (alone.text, alone.start) == (one.text, one.start)
        assert alone.score == pytest.approx(one.score, abs=1e-4)
    assert predict(again, []) == []


def test_long_contexts_are_searched_window_by_window(learned):
    outcome, _, _ = learned
    filler = "今天很好。" * 100
    for place in (0, 1, 2):
        parts = [filler, filler]
        parts.insert(place, "Today Boris is in the kitchen.")
        context = "".join(parts)
        for options in ({}, {"stride": 20}):
            (found,) = predict(outcome.model, [(ASKED["en"][0], context)], **options)
            assert context[found.start : found.start + len(found.text)] == found.text
            assert found.text == "Boris"


def test_answers_are_no_longer_than_asked_for(learned):
    outcome, _, _ = learned
    details = outcome.model.info.details
    assert (details["longest"], details["no_answer"], details["matched"]) == (7, False, True)
    texts = [(ASKED["en"][1], "Today Anna is in the kitchen."), ("?", "one two three four five six")]
    for one in predict(outcome.model, texts):
        assert len(one.text) <= 7
    for one in predict(outcome.model, texts, longest=1):
        assert " " not in one.text  # one token, however long it is


def test_lengths_are_those_of_the_answers():
    texts = ["a", "ab", "abc", "abcd"] * 50 + ["a" * 300]
    examples = [Question(f"{text}.", "?", (Answer(text, 0),)) for text in texts]
    details = task_named("answer").details(examples)
    logarithms = np.log([len(text) for text in texts])
    assert details["longest"] == 4
    assert details["length"] == pytest.approx(logarithms.mean())
    assert details["spread"] == pytest.approx(logarithms.std())
    assert details["no_answer"] is False
    alike = task_named("answer").details([*examples[1:2] * 5, Question("a", "?")])
    assert (alike["longest"], alike["spread"], alike["no_answer"]) == (2, 0.5, True)


def test_words_are_hidden_after_the_first_epoch(learned):
    trained = load(learned[0].folder)
    examples = task_named("answer").read(learned[1], trained.info.options)
    data, _ = task_named("answer").data(trained, examples, seed=3)
    again, _ = task_named("answer").data(trained, examples, seed=3)
    assert data.row(0, 0) == data.rows[0]
    kept, changed, unknown = set(trained.tokenizer.all_special_ids), 0, trained.tokenizer.unk_token_id
    for index in range(len(data)):
        row, whole = data.row(index, 2), data.rows[index]
        assert row == again.row(index, 2)
        assert {**row, "input_ids": 0} == {**whole, "input_ids": 0}
        for one, other in zip(row["input_ids"], whole["input_ids"], strict=True):
            assert one == other or (one == unknown and other not in kept)
            changed += one != other
    words = sum(one not in kept for row in data.rows for one in row["input_ids"])
    assert 0.12 < changed / words < 0.18
    assert [data.row(index, 1) for index in range(9)] != [data.row(index, 2) for index in range(9)]
    assert data.fingerprint() == again.fingerprint()
    assert data.fingerprint() != task_named("answer").data(trained, examples, seed=4)[0].fingerprint()


def test_the_best_span_is_the_one_that_trying_all_finds(learned):
    """In float64, over all spans of all windows, with what their lengths say; its probability too."""
    outcome, _, _ = learned
    trained, question = outcome.model, ASKED["en"][0]
    context = "今天很好。Today Anna is in the attic. " * 12
    limit = trained.info.max_tokens
    passage = read_passage(trained.tokenizer, question, context, max_tokens=limit, stride=50, matched=True)
    sums, details = {}, trained.info.details
    for number, window in enumerate(passage.windows):
        with torch.no_grad():
            logits = trained.model(**{name: torch.tensor([ids]) for name, ids in window.row.items()})
        start, end = logits.start_logits[0].double().tolist(), logits.end_logits[0].double().tolist()
        for first in range(len(window.starts)):
            for last in range(first, len(window.starts)):
                span = window.starts[first], window.ends[last]
                one = first == last or span[1] - span[0] <= 7
                if one and window.visible[first] and window.visible[last]:
                    distance = (math.log(span[1] - span[0]) - details["length"]) / details["spread"]
                    logits_of = start[window.place + first] + end[window.place + last]
                    sums[number, first, last] = logits_of - distance**2 / 2, span
    best, span = max(sums.values())
    total = np.logaddexp.reduce([total for total, _ in sums.values()])
    (found,) = predict(trained, [(question, context)], stride=50)
    assert (found.start, found.start + len(found.text)) == span
    assert found.score == pytest.approx(np.exp(best - total), abs=1e-4)


def test_what_has_no_answer_gets_none(sceptic):
    outcome, _ = sceptic
    assert outcome.model.info.details["no_answer"] is True
    assert outcome.report.figures["unanswerable"]["exact_match"] > 0.8
    asked = [(ASKED["en"][2], "Today Clara is in the attic."), (ASKED["zh"][1], "今天老李在厨房里。")]
    none, some = predict(outcome.model, asked)
    assert (none.text, none.start, some.text) == ("", None, "厨房")
    assert str(none) == f"(no answer)\t{none.score:.3f}"
    _, recording = observe(outcome.model, asked[0])
    assert recording.notes[-1] == "The model found no answer."
    assert recording.tables[0].chosen == ()


@pytest.mark.parametrize("context", ["", "   \n", "\t"])
def test_a_context_with_nothing_in_it_answers_nothing(learned, context):
    outcome, _, _ = learned
    (found,) = predict(outcome.model, [("Who?", context)])
    assert (found.text, found.start, found.score) == ("", None, 1.0)
    if not context:
        with pytest.raises(ConfigError, match="the context must have something in it, but is empty"):
            observe(outcome.model, ("Who?", context))


def test_odd_texts_are_answered_from_what_is_there(learned):
    outcome, _, _ = learned
    contexts = ["é" * 3, "🙂👩‍👩‍👧 Anna", "</s> <s> Anna", "a\ud800b Anna", "x" * 3000]
    for found, context in zip(
        predict(outcome.model, [("Who is there?", text) for text in contexts]), contexts, strict=True
    ):
        clean = context.replace("\ud800", "\N{REPLACEMENT CHARACTER}")
        assert found.text
        assert clean[found.start : found.start + len(found.text)] == found.text


def test_evaluate_gives_the_metric_s_own_numbers_beside_the_baseline_s(learned):
    outcome, data, _ = learned
    report = evaluate(outcome.folder, data)
    examples = task_named("answer").read(data, outcome.model.info.options)
    golds = [[answer.text for answer in example.answers] for example in examples]
    pairs = [(example.question, example.context) for example in examples]
    own = exact_match_and_f1([one.text for one in predict(outcome.model, pairs)], golds)
    lexical = exact_match_and_f1([overlap_answer(*pair) for pair in pairs], golds)
    assert {name: report.figures[name] for name in own.as_dict()} == own.as_dict()
    baseline = {"name": "overlap_answer", "exact_match": lexical.exact_match, "f1": lexical.f1}
    assert report.figures["baseline"] == baseline
    assert lexical.f1 < own.f1
    assert "without a model" in str(report)
    assert report.examples[0].wanted in report.examples[0].given


def test_the_page_shows_the_window_with_the_answer(learned, tmp_path):
    outcome, _, _ = learned
    context = "今天很好。" * 100 + "Today Boris is in the kitchen."
    found, recording = observe(outcome.folder, (ASKED["en"][0], context))
    assert found.text == "Boris"
    (sequence,) = recording.sequences[0]
    assert sequence.text.startswith(f"{ASKED['en'][0]}\n")
    assert sequence.text.endswith("Today Boris is in the kitchen.")
    assert all(entry.status == "seen" for entry in recording.coverage)
    assert "windows; this is the one with the best answer" in recording.notes[0]
    assert "The answer is characters 506 to 511 of the context, with a probability of" in recording.notes[1]
    content = recording.save(tmp_path / "seen.regard", redact_text=True).joinpath("manifest.json").read_text()
    assert "Boris" not in content  # neither in a note nor in a table
    (table,) = recording.tables
    assert table.rows == ("Who", "is", "there", "?")
    assert table.columns[-7:] == ("Today", "Boris", "is", "in", "the", "kitchen", ".")
    assert [table.columns[number] for number in table.chosen] == ["Boris"]
    assert (table.values.sum(axis=1) < 1).all()  # the rest is on the question
    assert "Boris" in write_page(recording, tmp_path / "page.html").read_text(encoding="utf-8")


def test_questions_about_one_context_are_held_out_together():
    asked = tuple(Question(f"context {number // 4}", f"question {number}") for number in range(40))
    places = tuple(Place("a", number) for number in range(40))
    learned, held_out = task_named("answer").divide(Examples(asked, places), count=8, seed=1)
    assert len(held_out) == 8
    assert not {example.context for example in learned} & {example.context for example in held_out}
    alone = Examples(tuple(Question("one", f"question {number}") for number in range(10)), places[:10])
    assert [len(part) for part in task_named("answer").divide(alone, count=2, seed=1)] == [8, 2]


def test_a_checkpoint_goes_on(tmp_path):
    """MiniLM, with a new head: only that a step is made and the folder can be used."""
    data = questions(tmp_path / "questions.jsonl", 24)
    options = {"precision": "fp32", "steps": 1, "batch_rows": 4, "watcher": Listener()}
    outcome = train("answer", data, tmp_path / "model", model="minilm", **options)
    assert outcome.model.info.max_tokens == 512  # the model's own positions
    assert outcome.model.info.details["matched"] is False
    assert predict(load(outcome.folder), [("Who?", "Today Anna is in the garden.")])[0].text


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        ("Who?", {}, r"`inputs` must be pairs of a question and its context, but is 'Who\?'"),
        (("Who?",), {}, "`inputs` must be pairs"),
        (("Who?", None), {}, "`inputs` must be pairs"),
        (("Who?", "Anna"), {"beams": 3}, "there is no option `beams` of answer; there are stride, longest"),
        (
            ("Who?", "Anna"),
            {"stride": 0, "longest": 0},
            r"(?s)2 problems:.*`stride` must be an integer of at least 1.*`longest` must be",
        ),
    ],
)
def test_what_cannot_be_asked_is_said(learned, given, options, problem):
    outcome, _, _ = learned
    with pytest.raises(ConfigError, match=problem):
        predict(outcome.model, [given], **options)
    with pytest.raises(ConfigError, match=problem):
        observe(outcome.model, given, **options)


def test_what_cannot_be_learned_is_said_before_anything_is_written(tmp_path):
    data, out = questions(tmp_path / "questions.jsonl", 24), tmp_path / "model"
    options = {"preset": "tiny", "steps": 1, "watcher": Listener()}
    with pytest.raises(ConfigError, match=r"`label_smoothing` must be 0 for answer, but is 0\.1"):
        train("answer", data, out, label_smoothing=0.1, **options)
    none = tmp_path / "none.jsonl"
    rows = [json.dumps({"context": f"Text {number}.", "question": "Who?", "answers": []}) for number in range(20)]
    none.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="the data must have at least one answer, but none of 20 questions has any"):
        train("answer", none, out, **options)
    assert not out.exists()


def test_on_the_command_line(learned, tmp_path, monkeypatch, capsys):
    outcome, _, _ = learned
    monkeypatch.chdir(tmp_path)
    model, file = str(outcome.folder), tmp_path / "text.txt"
    file.write_text("今天很好。\nToday Boris is in the kitchen.\n", encoding="utf-8")
    asked = ["answer", ASKED["en"][0], "--model", model]
    for given in (["--context", "Today Boris is in the attic."], ["--file", str(file)]):
        assert app.main([*asked, *given]) == 0
        assert capsys.readouterr().out.startswith("Boris\t")
    assert app.main(["predict", *asked, "--pair-file", str(file), "--attention", "page.html", "-o", "said.jsonl"]) == 0
    said = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8"))
    assert (said["text"], said["start"]) == ("Boris", 12)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert f"regard predict answer QUESTION --pair CONTEXT --model {outcome.folder.name}" in (
        outcome.folder / "README.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            [],
            "must be pairs of a question and its context, but is 'Who?'. (on the command line: regard answer QUESTION",
        ),
        (["--context", "a", "--file", "b"], "a second text and a file with it exclude each other; give one of them"),
        (["--file", "nowhere.txt"], "nowhere.txt: no such file"),
        (["--file", "text.txt", "--attention", "text.txt"], "must not replace what is read"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line(learned, tmp_path, monkeypatch, capsys, arguments, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Anna", encoding="utf-8")
    assert app.main(["answer", "Who?", "--model", str(learned[0].folder), *arguments]) == 2
    assert problem in capsys.readouterr().err
