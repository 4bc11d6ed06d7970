"""From what was seen to a file and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.lens import watch
from regard.ops.probes import Distance, Entropy, FirstKeys, HeatMap, KeyMass, LogSumExp, Rows, SinkShare, TopK
from regard.records import Recording, Sequence, Token

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


def test_a_call_of_another_batch_is_left_out_and_said_so():
    seen = seen_by(Model(), (torch.randn(2, 3, 8),), (torch.randn(1, 3, 8),))
    recording = seen.recording(tokens=["a", "b", "c"])
    assert [call.notes for call in recording.calls] == [("run 2 of this module",)] * 2
    assert "left out" in recording.notes[0]
