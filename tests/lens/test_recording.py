"""From what was seen to a file and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.lens import watch
from regard.lens.seen import _items
from regard.ops.probes import Distance, Entropy, FirstKeys, HeatMap, KeyMass, LogSumExp, Rows, SinkShare, TopK
from regard.records import Recording, Sequence, Token
from regard.view import page

from .test_watch import Model

PROBES = [
    Entropy(),
    TopK(2),
    KeyMass(),
    HeatMap(3, 3, length=8),
    Rows(),
    Rows([1, 3], name="picked"),
    FirstKeys(2),
    SinkShare(),
    LogSumExp(),
    Distance(),
]


def seen_by(model, *inputs, probes=PROBES):
    with torch.no_grad(), watch(model, probes) as seen:
        for given in inputs:
            model(*given)
    return seen


def test_a_recording_holds_what_was_seen_and_comes_back_equal(tmp_path):
    seen = seen_by(Model(), (torch.randn(2, 5, 8),))
    path = seen.save(tmp_path / "run.regard", model_name="two blocks")
    loaded = Recording.load(path)
    assert loaded.model.name == "two blocks"
    assert loaded.model.architecture == "Model"
    assert [call.name for call in loaded.calls] == ["first", "second"]
    for call, layer in zip(loaded.calls, seen.layers, strict=True):
        np.testing.assert_array_equal(call.values["entropy"], layer.entropy.numpy())
        np.testing.assert_array_equal(call.values["top_k.indices"], layer.top_k.indices.numpy())
        np.testing.assert_array_equal(call.values["picked.indices"], [1, 3])
        assert call.probes["heat_map"] == {"type": "HeatMap", "rows": 3, "cols": 3, "length": 8}
        assert call.pooled == ("heat_map",)
        assert "rows" in call.exact
        assert call.q_positions.tolist() == [[0, 1, 2, 3, 4]]
        assert call.mask_stored
        allowed = call.mask.allowed(call.q_positions, np.arange(call.kv_len))
        np.testing.assert_array_equal(np.broadcast_to(allowed, call.values["rows"].shape), call.values["rows"] > 0)
    assert loaded.coverage == seen.coverage


def test_the_steps_of_a_generation_share_one_mask():
    model, x, caches = Model(), torch.randn(1, 6, 8), ({}, {})
    seen = seen_by(model, (x[:, :4], caches), (x[:, 4:5], caches), (x[:, 5:], caches))
    call = seen.recording().calls[0]
    assert call.q_positions.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert call.mask_stored  # the causal program of the first step holds for the later ones, which had no mask
    allowed = call.mask.allowed(call.q_positions, np.arange(call.kv_len))
    np.testing.assert_array_equal(np.broadcast_to(allowed, call.values["rows"].shape), call.values["rows"] > 0)


def test_tokens_and_sequences():
    seen = seen_by(Model(), (torch.randn(1, 3, 8),))
    recording = seen.recording(tokens=["Guten", "Täg", "!"])
    ((sequence,),) = recording.sequences
    assert sequence.text == "Guten Täg !"
    assert sequence.tokens[1] == Token("Täg", 6, 10)
    assert {(call.sequence_q, call.sequence_k) for call in recording.calls} == {("input", "input")}
    with pytest.raises(ConfigError, match="exclude each other"):
        seen.recording(tokens=["a"], sequences=[[sequence]])


def test_source_and_target_of_a_translation():
    model = nn.Transformer(8, 2, 1, 1, 8, batch_first=True).eval()
    seen = seen_by(model, (torch.randn(1, 3, 8), torch.randn(1, 2, 8)), probes=[Entropy()])
    tokens = tuple(Token(text, -1, -1) for text in "abc")
    recording = seen.recording(sequences=[[Sequence("de", "", tokens), Sequence("en", "", tokens[:2])]])
    assert [(call.kind, call.sequence_q, call.sequence_k) for call in recording.calls] == [
        ("self", "de", "de"),
        ("self", "en", "en"),
        ("cross", "en", "de"),
    ]


@pytest.mark.parametrize(
    ("batch", "tokens", "line"),
    [
        (1, ["a"], "`tokens` must be as many as the positions that were seen (3), but are 1."),
        (1, ["a", "b", "c", "d", "e"], "`tokens` must be as many as the positions that were seen (3), but are 5."),
        (
            2,
            [["a", "b", "c"], ["a", "b"]],
            "`tokens` must be as many as the positions that were seen (3), but are 2 of",
        ),
        (2, ["a", "b", "c"], "`tokens` must be of as many items as the batch that was seen (2), but are of 1."),
        (1, [["a", "b", "c"]] * 2, "`tokens` must be of as many items as the batch that was seen (1), but are of 2."),
    ],
)
def test_tokens_of_another_number_are_refused_with_both(batch, tokens, line, tmp_path):
    model = Model()
    model.first.causal = model.second.causal = False
    seen = seen_by(model, (torch.randn(batch, 3, 8),))
    with pytest.raises(ConfigError) as caught:
        seen.save(tmp_path / "run", tokens=tokens)
    assert str(caught.value).startswith(f"recording(): {line}")
    assert not (tmp_path / "run").exists()


def test_a_token_that_was_written_last_and_never_read_may_be_given():
    model, x, caches = Model(), torch.randn(1, 4, 8), ({}, {})
    steps = [(x[:, :3], caches), (x[:, 3:], caches)]
    seen = seen_by(model, *steps, probes=[Entropy()])
    assert len(seen.recording(tokens=[*"abcd"]).calls) == 2
    assert len(seen.recording(tokens=[*"abcde"]).calls) == 2
    with pytest.raises(ConfigError, match=r"\(4, or 5 with the one written last\), but are 6"):
        seen.recording(tokens=[*"abcdef"])
    first = seen_by(model, (x[:, :3], ({}, {})), probes=[Entropy()])  # a generation of one token
    assert len(first.recording(tokens=[*"abcd"]).calls) == 2
    blind = Model()
    blind.first.causal = blind.second.causal = False
    with pytest.raises(ConfigError, match=r"\(3\), but are 4"):
        seen_by(blind, (x[:, :3],), probes=[Entropy()]).recording(tokens=[*"abcd"])


def test_sequences_of_another_length_are_refused_each_by_name():
    model = nn.Transformer(8, 2, 1, 1, 8, batch_first=True).eval()
    seen = seen_by(model, (torch.randn(1, 3, 8), torch.randn(1, 2, 8)), probes=[Entropy()])
    tokens = tuple(Token(text, -1, -1) for text in "abc")
    source, target = Sequence("de", "", tokens), Sequence("en", "", tokens[:2])
    with pytest.raises(ConfigError, match=r"tokens of `sequences` 'en' must be as many as .* \(2\), but are 3\."):
        seen.recording(sequences=[[source, Sequence("en", "", tokens)]])
    with pytest.raises(ConfigError, match=r"tokens of `sequences` 'de' must be as many as .* \(3\), but are 2\."):
        seen.recording(sequences=[[Sequence("de", "", tokens[:2]), target]])
    assert len(seen.recording(sequences=[[Sequence("de", "", ()), target]]).calls) == 3  # what has no tokens
    with pytest.raises(ConfigError, match=r"`tokens` is for one text, but the model read one and wrote another"):
        seen.recording(tokens=[*"abc"])


def test_a_call_of_another_batch_is_left_out_and_said_so():
    seen = seen_by(Model(), (torch.randn(2, 3, 8),), (torch.randn(1, 3, 8),))
    recording = seen.recording(tokens=["a", "b", "c"])
    assert [call.notes for call in recording.calls] == [("run 2 of this module",)] * 2
    assert "left out" in recording.notes[0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["\ud800", "a", "\udc00\ud800"], ["\ud800", "a", "\udc00\ud800"]),
        (["\ud83d\ude00", "é", "a\0b"], ["\U0001f600", "é", "a\0b"]),
        (["", "x" * 10_000, "<script>"], ["", "x" * 10_000, "<script>"]),
    ],
)
def test_tokens_of_any_characters_are_kept(given, kept, tmp_path):
    seen = seen_by(Model(), (torch.randn(1, 3, 8),), probes=[Rows()])
    (sequence,) = Recording.load(seen.save(tmp_path / "run.regard", tokens=given)).sequences[0]
    assert [token.text for token in sequence.tokens] == kept
    wide = sequence.text.encode("utf-8", "surrogatepass")
    assert [wide[token.start : token.end].decode("utf-8", "surrogatepass") for token in sequence.tokens] == kept
    page(seen.recording(tokens=given))


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2, 3]], [["a", "b", 3]]])
def test_tokens_that_are_no_strings_are_named(tokens):
    with pytest.raises(ConfigError, match=r"`tokens` must be strings, .*, but is holding int\.\n  hint: tok"):
        _items(tokens)
