"""The summary against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from regard.errors import ConfigError
from regard.records import MaskProgram, Op
from regard.view import summary

from .conftest import call_of, call_of_rows, recording_of, softmax_rows, words

UNIFORM = np.log(2)


def two_heads() -> np.ndarray:
    """Head 0 is certain, head 1 is torn between the first two keys."""
    rows = np.zeros((1, 2, 3, 3), dtype=np.float32)
    rows[0, 0] = [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
    rows[0, 1, :, :2] = 0.5
    return rows


def test_layers_pairs_and_heads():
    found = summary(recording_of(call_of_rows(two_heads()), sequences=((words("bank", "river", "bank"),),)))
    assert (found.model, found.item, found.items) == ("made", 0, 1)
    (layer,) = found.layers
    assert (layer.name, layer.layer, layer.kind) == ("layer.0", 0, "self")
    assert layer.entropy == pytest.approx(UNIFORM / 2)
    assert layer.first == pytest.approx((1 + 0 + 0 + 3 * 0.5) / 6)
    assert [(head.head, head.entropy) for head in found.focused] == [(0, 0), (1, pytest.approx(UNIFORM))]
    first, *_ = found.pairs
    assert (first.query, first.key, first.weight, first.peak, first.peak_head) == (0, 0, 0.75, 1.0, 0)
    pairs = {(pair.query, pair.key): pair for pair in found.pairs}
    assert pairs[1, 2].weight == 0.5
    assert pairs[1, 0].weight == 0.25
    assert pairs[1, 0].peak_head == 1
    assert (1, 1) in pairs
    assert len(found.pairs) == 8


def test_equal_words_are_two_pairs():
    rows = np.array([[[[0.5, 0, 0.5], [0.6, 0, 0.4], [0, 1, 0]]]], dtype=np.float32)
    found = summary(recording_of(call_of_rows(rows), sequences=((words("bank", "river", "bank"),),)))
    river = [(pair.key, pair.key_text, round(pair.weight, 6)) for pair in found.pairs if pair.query == 1]
    assert river == [(0, "bank", 0.6), (2, "bank", 0.4)]


def test_the_mean_is_over_all_layers_and_the_peak_names_one():
    a, b = np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 2, 2))
    a[..., 0], b[..., 0], b[..., 1] = 1, 0.2, 0.8
    calls = call_of_rows(b, name="low", layer=0), call_of_rows(a, name="high", layer=1)
    found = summary(recording_of(*calls, sequences=((words("x", "y"),),)))
    best = found.pairs[0]
    assert (best.weight, best.peak, best.peak_name, best.peak_layer) == (pytest.approx(0.6), 1, "high", 1)
    assert [layer.name for layer in found.layers] == ["low", "high"]


def test_special_tokens_are_left_out_of_pairs_unless_asked_for():
    rows = np.array([[[[1.0, 0], [0.9, 0.1]]]])
    recording = recording_of(call_of_rows(rows), sequences=((words("[CLS]", "a", special=(0,)),),))
    assert [(pair.query, pair.key) for pair in summary(recording).pairs] == [(1, 1)]
    assert [(pair.query, pair.key) for pair in summary(recording, special=True).pairs] == [(0, 0), (1, 0), (1, 1)]


def test_padded_empty_and_nan_rows_are_left_out():
    rows = np.zeros((2, 1, 4, 4))
    rows[1, 0, :2, :2] = 0.5
    rows[1, 0, 2:, 0] = 1  # rows of padding: certain, and not to be counted
    rows[0] = np.eye(4)
    keep = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=bool)
    mask = MaskProgram((Op.PADDING, 0), (keep,))
    padded = words("a", "b", "[PAD]", "[PAD]", special=(2, 3))
    recording = recording_of(call_of_rows(rows, mask=mask), sequences=((words(*"abcd"),), (padded,)))
    found = summary(recording, item=1, special=True)
    assert found.layers[0].entropy == pytest.approx(UNIFORM)
    assert found.layers[0].first == pytest.approx(0.5)
    assert {(pair.query, pair.key) for pair in found.pairs} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    empty = np.zeros((1, 1, 3, 3))
    empty[0, 0, 1, :2], empty[0, 0, 2, 0] = 0.5, np.nan
    found = summary(recording_of(call_of_rows(empty)))
    assert found.layers[0].entropy == pytest.approx(UNIFORM)
    assert [(pair.query, pair.weight) for pair in found.pairs] == [(1, 0.5), (1, 0.5)]
    assert any("1 rows hold NaN" in note for note in found.notes)


def test_a_pair_is_averaged_over_the_rows_that_count():
    rows = np.zeros((1, 2, 2, 2))
    rows[0, 0] = [[1, 0], [0.5, 0.5]]
    rows[0, 1, 1] = [0.5, 0.5]  # head 1 has no row for query 0
    found = {(pair.query, pair.key): pair.weight for pair in summary(recording_of(call_of_rows(rows))).pairs}
    assert found == {(0, 0): 1, (1, 0): 0.5, (1, 1): 0.5}
    rows[0, 1, 0] = np.nan
    found = {(pair.query, pair.key): pair.weight for pair in summary(recording_of(call_of_rows(rows))).pairs}
    assert found[0, 0] == 1


def test_pairs_far_apart_are_ranked_together():
    rows = np.zeros((1, 1, 700, 3))
    rows[0, 0, 600, 2], rows[0, 0, 5, 1], rows[0, 0, 513, 0] = 0.9, 0.8, 0.95
    pairs = summary(recording_of(call_of_rows(rows, kind="cross", sequence_k="source"))).pairs
    assert [(pair.query, pair.key) for pair in pairs] == [(513, 0), (600, 2), (5, 1)]


def test_empty_rows_are_known_from_lse_or_from_the_mask():
    entropy = np.array([[[0.0, 1.0]]])
    by_lse = call_of({"entropy": entropy, "log_sum_exp": np.array([[[-np.inf, 3.0]]])}, q=2, k=2)
    mask = MaskProgram((Op.ALLOWED, 0), (np.array([[[[0, 0], [1, 1]]]], dtype=bool),))
    by_mask = call_of({"entropy": entropy}, q=2, k=2, mask=mask)
    for call in (by_lse, by_mask):
        assert summary(recording_of(call)).layers[0].entropy == 1.0


def test_the_first_token_is_the_first_that_is_no_padding():
    rows = np.zeros((1, 1, 3, 3))
    rows[..., 1] = 0.25
    rows[..., 2] = 0.75
    mask = MaskProgram((Op.PADDING, 0), (np.array([[0, 1, 1]], dtype=bool),))
    recording = recording_of(call_of_rows(rows, mask=mask), sequences=((words("[PAD]", "a", "b", special=(0,)),),))
    assert summary(recording).layers[0].first == 0.25


def test_top_keys_stand_in_for_rows():
    rows = softmax_rows(1, 2, 200, 200, causal=True)
    order = np.argsort(-rows, -1, kind="stable")[..., :16]
    weights = np.take_along_axis(rows, order, -1)
    values = {
        "top_k.indices": np.where(weights > 0, order, -1),
        "top_k.weights": weights,
        "top_k.rest": (1 - weights.sum(-1)).astype(np.float32),
    }
    listed = np.zeros_like(rows)
    np.put_along_axis(listed, order, weights, -1)
    exact = summary(recording_of(call_of_rows(listed)))
    top = summary(recording_of(call_of(values, q=200, k=200, heads=2)))
    assert [(pair.query, pair.key) for pair in top.pairs] == [(pair.query, pair.key) for pair in exact.pairs]
    assert [pair.weight for pair in top.pairs] == pytest.approx([pair.weight for pair in exact.pairs])
    assert [pair.peak_head for pair in top.pairs] == [pair.peak_head for pair in exact.pairs]
    assert any("counts as 0" in note for note in top.notes)
    assert top.layers[0].entropy is None


def test_positions_of_sliding_and_generated_calls():
    rows = np.array([[[[0.25, 0.75]]]])
    call = call_of_rows(rows, q_positions=np.array([[5]]), kv_start=4)
    found = summary(recording_of(call, sequences=((words(*"abcdef"),),)))
    assert [(pair.query_text, pair.key_text, pair.weight) for pair in found.pairs] == [
        ("f", "f", 0.75),
        ("f", "e", 0.25),
    ]


def test_cross_attention_names_both_sequences():
    source, target = words("x", "y", name="source"), words("a", name="target")
    rows = np.array([[[[0.25, 0.75]]]])
    call = call_of_rows(rows, kind="cross", sequence_q="target", sequence_k="source")
    best = summary(recording_of(call, sequences=((source, target),))).pairs[0]
    assert (best.sequence_q, best.query_text, best.sequence_k, best.key_text) == ("target", "a", "source", "y")


def test_a_batch_and_an_item_that_is_not_there():
    recording = recording_of(call_of_rows(softmax_rows(2, 1, 2, 2)))
    assert summary(recording, item=1).items == 2
    with pytest.raises(ConfigError, match=r"`item` must be from 0 to 1 \(the recording has 2 items\), but is 2"):
        summary(recording, item=2)
    with pytest.raises(ConfigError, match="has 1 item"):
        summary(replace(recording, calls=()), item=-1)


def test_nothing_recorded():
    found = summary(recording_of(call_of({}, q=2, k=2)))
    assert (found.layers[0].entropy, found.layers[0].first, found.pairs, found.focused) == (None, None, (), ())
