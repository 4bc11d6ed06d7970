"""Generation: one layer per module, absolute positions, beams."""

from __future__ import annotations

import pytest
import torch
from transformers import Cache, GenerationMixin

from regard.lens import watch
from regard.ops.probes import HeatMap, KeyMass, Rows, TopK
from tests.parity.tiny_models import MODELS


def test_a_generation_is_one_lower_triangle():
    """Case C02: prompt 3, 4 new tokens: 6 rows, as the last token is no query yet."""
    model = MODELS["gpt2"].build("sdpa")
    ids = torch.tensor([[5, 6, 7]])
    with watch(model, [Rows()]) as seen:
        tokens = model.generate(ids, max_new_tokens=4, do_sample=False)
    with torch.no_grad(), watch(model, [Rows()]) as once:
        model(tokens[:, :6])
    assert tokens.shape == (1, 7)
    for stepped, whole in zip(seen.layers, once.layers, strict=True):
        assert stepped.rows.shape == (1, 4, 6, 6)
        assert (stepped.rows.triu(1) == 0).all()
        torch.testing.assert_close(stepped.rows, whole.rows, atol=1e-5, rtol=0)


def test_an_encoder_decoder_has_source_target_and_cross_layers():
    """Case C03: source 6, 3 new tokens."""
    model = MODELS["t5"].build("eager")
    with watch(model, [Rows()]) as seen:
        tokens = model.generate(torch.tensor([[5, 6, 7, 8, 9, 10]]), max_new_tokens=3, do_sample=False)
    assert tokens.shape == (1, 4)
    shapes = {(layer.kind, tuple(layer.rows.shape[2:]), tuple(layer.q_positions.shape)) for layer in seen.layers}
    assert shapes == {("self", (6, 6), (1, 6)), ("self", (3, 3), (1, 3)), ("cross", (3, 6), (1, 3))}
    for layer in seen.layers:
        if layer.name.startswith("decoder") and layer.kind == "self":
            assert (layer.rows.triu(1) == 0).all()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("serve", ["model", "regard"])
def test_rows_of_a_sliding_cache_are_labelled_by_absolute_keys(cache, serve):
    """Case C05: window, prompt 5, 4 new tokens: row p holds keys p − 3 … p and nothing else."""
    model = MODELS["mistral"].build("sdpa")
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with watch(model, [Rows(), KeyMass(), TopK(4)], serve=serve) as seen:
        model.generate(ids, max_new_tokens=5, do_sample=False, cache_implementation=cache)
    for layer in seen.layers:
        assert layer.rows.shape == (1, 4, 9, 9)
        band = torch.ones(9, 9, dtype=torch.bool).tril() & torch.ones(9, 9, dtype=torch.bool).triu(-3)
        assert torch.equal(layer.rows[0, 0] > 0, band)
        torch.testing.assert_close(layer.key_mass, layer.rows.sum(2), atol=1e-5, rtol=0)
        for p in range(9):
            assert set(layer.top_k.indices[0, 0, p].tolist()) <= set(range(max(0, p - 3), p + 1)) | {-1}


def test_a_heat_map_with_a_length_adds_up_over_steps():
    model = MODELS["llama"].build("sdpa")
    ids = torch.tensor([[5, 6, 7, 8]])
    with watch(model, [HeatMap(8, 8, length=8), Rows()]) as seen:
        model.generate(ids, max_new_tokens=5, do_sample=False)
    torch.testing.assert_close(seen.layers[0].heat_map, seen.layers[0].rows, atol=1e-6, rtol=0)


BEAMS = [("gpt2", False, 3), ("gpt2", True, 1), ("mistral", True, 3), ("bart", True, 3), ("t5", True, 1)]


@pytest.mark.parametrize(("name", "ends", "returned"), BEAMS)
def test_rows_of_a_beam_search_are_those_of_the_returned_sequences(name, ends, returned):
    """Case C04; with ``ends`` hypotheses finish at different lengths."""
    tiny = MODELS[name]
    model, inputs = tiny.build("eager"), tiny.inputs()
    inputs.pop("decoder_input_ids", None)
    options = {
        "num_beams": 3,
        "max_new_tokens": 8,
        "do_sample": False,
        "num_return_sequences": returned,
        "return_dict_in_generate": True,
        "output_scores": True,
        "eos_token_id": list(range(40, 61)) if ends else None,
        "length_penalty": 0.0,
    }
    originals = Cache.reorder_cache, GenerationMixin._beam_search, GenerationMixin._update_finished_beams
    expected = model.generate(**inputs, **options)
    with watch(model, [Rows(), KeyMass()]) as seen:
        found = model.generate(**inputs, **options)
    assert (Cache.reorder_cache, GenerationMixin._beam_search, GenerationMixin._update_finished_beams) == originals
    assert torch.equal(found.sequences, expected.sequences)
    if not ends:
        assert len(set(found.beam_indices.flatten().tolist())) > 1, "the search never changed beams"
    for number, sequence in enumerate(found.sequences):
        length = int((found.beam_indices[number] >= 0).sum())
        with torch.no_grad(), watch(model, [Rows()]) as once:
            model(**_one(model, inputs, number // returned, sequence, length))
        for stepped, whole in zip(seen.layers, once.layers, strict=True):
            assert stepped.name == whole.name
            if stepped.batch != len(found.sequences):  # the encoder, which has no hypotheses
                continue
            q_len, kv_len = whole.rows.shape[2:]
            rows = stepped.rows[number]
            torch.testing.assert_close(rows[:, :q_len, :kv_len], whole.rows[0], atol=1e-5, rtol=0)
            assert (rows[:, q_len:] == 0).all(), "rows after the end of a hypothesis"
            torch.testing.assert_close(stepped.key_mass[number], rows.sum(1), atol=1e-5, rtol=0)


def _one(model, inputs, item, sequence, length):
    """The inputs of one forward over one returned sequence, as generate() placed it."""
    if model.config.is_encoder_decoder:
        alone = {name: value[item : item + 1] for name, value in inputs.items()}
        return {**alone, "decoder_input_ids": sequence[None, :length]}
    keep = torch.cat([inputs["attention_mask"][item], torch.ones(length - 1, dtype=torch.long)])[None]
    ids = sequence[None, : keep.shape[1]]
    return {"input_ids": ids, "attention_mask": keep, "position_ids": (keep.cumsum(1) - 1).clamp(min=0)}


def test_two_generations_in_one_watch_do_not_join():
    model = MODELS["llama"].build("sdpa")
    with watch(model, [Rows()]) as seen:
        for _ in range(2):
            model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, do_sample=False)
    assert [(layer.index, layer.rows.shape[2]) for layer in seen.layers] == [(0, 5), (0, 5), (1, 5), (1, 5)]


@pytest.mark.parametrize("name", ["gpt2", "gpt_oss", "bart"])
def test_sampling_draws_the_same_tokens(name):
    tiny = MODELS[name]
    model, inputs = tiny.build("eager"), tiny.inputs()
    inputs.pop("decoder_input_ids", None)
    found = []
    for watched in (False, True):
        torch.manual_seed(7)
        if watched:
            with watch(model, [TopK(2)]):
                found.append(model.generate(**inputs, max_new_tokens=4, do_sample=True))
        else:
            found.append(model.generate(**inputs, max_new_tokens=4, do_sample=True))
    assert torch.equal(*found)
