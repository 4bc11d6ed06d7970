"""regard as an attention implementation, without watching."""

from __future__ import annotations

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM

import regard.hf
from regard.errors import UnsupportedError
from regard.lens import watch
from regard.ops.probes import Rows
from tests.parity.test_models import assert_equal_but_for_rounding, real_queries, tensors_of
from tests.parity.tiny_models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_the_same_output_as_eager(name):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    eager, ours = tiny.build("eager"), tiny.build("regard")
    with torch.no_grad():
        for expected, got in zip(tensors_of(eager(**inputs)), tensors_of(ours(**inputs)), strict=True):
            real = ...
            if expected.dim() == 3:
                real = real_queries(expected[:, None], inputs)
            assert_equal_but_for_rounding(got[real], expected[real])


@pytest.mark.parametrize(
    ("name", "cache"), [("llama", "dynamic"), *((name, "static") for name, tiny in MODELS.items() if tiny.generates)]
)
def test_the_same_tokens_as_eager(name, cache):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": cache}
    expected = tiny.build("eager").generate(**inputs, **options)
    assert torch.equal(tiny.build("regard").generate(**inputs, **options), expected)


def test_switching_a_model_and_watching_it():
    tiny = MODELS["mistral"]
    model, inputs = tiny.build("sdpa"), tiny.inputs()
    with torch.no_grad():
        with watch(model, [Rows()]) as before:
            model(**inputs)
        model.set_attn_implementation("regard")
        unwatched = model(**inputs).logits
        with watch(model, [Rows()]) as after:
            assert torch.equal(model(**inputs).logits, unwatched)
    for left, right in zip(before.layers, after.layers, strict=True):
        torch.testing.assert_close(left.rows, right.rows, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["llama", "gpt_oss", "t5", "bert"])
def test_weights_are_returned_when_asked_for(name):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    eager, ours = tiny.build("eager"), tiny.build("regard")
    with torch.no_grad():
        expected = eager(**inputs, output_attentions=True)
        found = ours(**inputs, output_attentions=True)
        with watch(eager, [], serve="regard"):
            served = eager(**inputs, output_attentions=True)
        assert not ours(**inputs).get("attentions")
    for key in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        for theirs, *both in zip(*(each.get(key) or () for each in (expected, found, served)), strict=True):
            real = real_queries(theirs, inputs)
            for weights in both:
                torch.testing.assert_close(
                    weights.transpose(1, 2)[real], theirs.transpose(1, 2)[real], atol=1e-5, rtol=0
                )


def test_gradients_are_those_of_eager():
    tiny = MODELS["llama"]
    ids = tiny.inputs()["input_ids"].clamp(min=3)
    found = []
    for implementation in ("eager", "regard"):
        model = tiny.build(implementation)
        model(ids, labels=ids).loss.backward()
        found.append(model.model.layers[0].self_attn.q_proj.weight.grad)
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-3)


def test_a_dense_mask_that_a_person_made_passes():
    tiny = MODELS["llama"]
    ids = tiny.inputs()["input_ids"].clamp(min=3)
    allowed = (torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(5)) < 0.5) | torch.eye(11).bool()
    added = torch.zeros(2, 1, 11, 11).masked_fill(~allowed, torch.finfo(torch.float32).min)
    eager, ours = tiny.build("eager"), tiny.build("regard")
    with torch.no_grad():
        expected = eager(ids, attention_mask=added).logits
        for mask in (added, allowed):
            torch.testing.assert_close(ours(ids, attention_mask=mask).logits, expected, atol=2e-5, rtol=1e-4)
        with watch(eager, [Rows()]) as seen:
            eager(ids, attention_mask=added)
    assert ((seen.layers[0].rows > 0) <= allowed).all()


def test_what_cannot_be_expressed_is_refused():
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(UnsupportedError, match="`block_indices`"):
        regard.hf.attention.regard_attention(torch.nn.Module(), q, q, q, None, block_indices=torch.zeros(1))


def test_the_keys_a_sparse_indexer_chose():
    q = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    k = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(1))
    indices = torch.tensor([[[0, 4], [2, -1], [1, 1]]])
    out, _ = regard.hf.attention.regard_attention(torch.nn.Module(), q, k, k, None, indices=indices, is_causal=False)
    allowed = torch.tensor([[1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]).bool()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=allowed)
    torch.testing.assert_close(out, expected.transpose(1, 2))


def passing_through(module, query, key, value, attention_mask, **kwargs):
    """What a person registers without a mask function: transformers then gives it no mask (case C09)."""
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return eager_attention_forward(module, query, key, value, attention_mask, **kwargs)


def test_an_implementation_without_masks_is_served_with_the_right_ones():
    tiny = MODELS["llama"]
    inputs = tiny.inputs()
    AttentionInterface.register("passing", passing_through)
    try:
        model = tiny.build("passing")
        assert isinstance(model, AutoModelForCausalLM.from_config(model.config).__class__)
        with torch.no_grad():
            expected = tiny.build("eager")(**inputs).logits
            blind = model(**inputs).logits
            with watch(model, [Rows()]) as told:
                assert torch.equal(model(**inputs).logits, blind), "serve='model' must not repair the model"
            with watch(model, [Rows()], serve="regard") as seen:
                served = model(**inputs).logits
            assert torch.equal(model(**inputs).logits, blind)
        real = inputs["attention_mask"].bool()
        torch.testing.assert_close(served[real], expected[real], atol=1e-6, rtol=1e-5)
        for layer in seen.layers:
            assert (layer.rows.triu(1) == 0).all()
        assert all("no mask function" in entry.reason for entry in told.coverage)
    finally:
        del AttentionInterface._global_mapping["passing"]
