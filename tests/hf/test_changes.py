"""Changes and explanations of transformers' models, through their attention interface."""

from __future__ import annotations

import copy

import pytest
import torch

import regard
from regard.lens import gradient_attention, rollout, value_norms, watch
from tests.parity.tiny_models import MODELS

PROJECTIONS = {
    "bert": "encoder.layer.1.attention.output.dense",
    "gpt2": "transformer.h.1.attn.c_proj",
    "llama": "model.layers.1.self_attn.o_proj",
    "mistral": "model.layers.1.self_attn.o_proj",
    "gemma2": "model.layers.1.self_attn.o_proj",
    "gpt_oss": "model.layers.1.self_attn.o_proj",
    "vit": "layers.1.attention.output.dense",
}


def output_of(model, inputs):
    with torch.no_grad():
        found = model(**inputs)
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


def projection_of(model):
    """The output projection of the second layer, by what modules are called."""
    names = [name for name, _ in model.named_modules()]
    wanted = [name for name in names if name in PROJECTIONS.values() or name.endswith("layers.1.attention.o_proj")]
    return model.get_submodule(wanted[0]) if wanted else None


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mistral"])
def test_silencing_heads_is_zeroing_their_columns(name, implementation):
    tiny = MODELS[name]
    model, inputs = tiny.build(implementation), tiny.inputs()
    zeroed = copy.deepcopy(model)
    weight = projection_of(zeroed).weight
    columns = weight.mT if name == "gpt2" else weight
    heads = model.config.num_attention_heads
    width = columns.shape[1] // heads
    with torch.no_grad():
        columns[:, width : 2 * width] = 0
    silent = regard.SilenceHeads(heads=[1], layers=[1])
    before = output_of(model, inputs)
    with watch(model, changes=[silent]):
        found = output_of(model, inputs)
    assert torch.equal(found, output_of(zeroed, inputs))
    assert not torch.equal(found, before)
    assert torch.equal(output_of(model, inputs), before)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss", "t5"])
def test_a_generation_is_changed_at_every_step(name):
    """What is generated with a span blocked is what one pass over it says, with the span blocked."""
    tiny = MODELS[name]
    model = tiny.build("eager")
    ids = torch.arange(5, 12)[None]
    block = regard.BlockSpans(key_spans=[(1, 3)], kind="cross" if name == "t5" else None)
    with watch(model, changes=[block]):
        written = model.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None)
        passed = {"input_ids": ids, "decoder_input_ids": written} if name == "t5" else {"input_ids": written}
        logits = output_of(model, passed)
    start = 1 if name == "t5" else 7
    assert logits[0, start - 1 : -1].argmax(-1).tolist() == written[0, start:].tolist()
    assert not torch.equal(output_of(model, passed), logits)


def test_a_masked_span_is_as_if_padding_hid_it():
    model = MODELS["bert"].build("sdpa")
    ids = torch.arange(5, 12)[None]
    keep = torch.tensor([[1, 1, 0, 0, 1, 1, 1]])
    with watch(model, changes=[regard.BlockSpans(key_spans=[(2, 4)])]):
        found = output_of(model, {"input_ids": ids})
    expected = output_of(model, {"input_ids": ids, "attention_mask": keep})
    seen = keep[0].bool()
    torch.testing.assert_close(found[:, seen], expected[:, seen], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "vit"])
def test_projections_are_met_and_explanations_are_those_of_returned_weights(name):
    tiny = MODELS[name]
    model, inputs = tiny.build("eager"), tiny.inputs()
    with watch(model, keep=True) as seen:
        output = model(**inputs, output_attentions=True)
    assert all(call.projection is not None for call in seen.calls)
    stack = output.encoder_attentions if name == "t5" else output.attentions
    modules = "encoder" if name == "t5" else None
    mean = [weights.double().mean(1).detach() for weights in stack]
    eye = torch.eye(mean[0].shape[-1], dtype=torch.float64)
    mixed = [(part + eye) / (part + eye).sum(-1, keepdim=True) for part in mean]
    expected = mixed[1] @ mixed[0]
    rows = [-1, -3]  # the first are padding, where transformers looks everywhere and regard nowhere
    torch.testing.assert_close(rollout(seen, rows, modules=modules), expected[:, rows], atol=1e-5, rtol=0)
    norms = value_norms(seen, seen.calls[0].name, [0])
    assert norms.together.shape == (expected.shape[0], 1, expected.shape[-1])
    hidden = output.logits if hasattr(output, "logits") else output.last_hidden_state
    target = hidden[0, -1].float().square().sum()
    gradients = torch.autograd.grad(target, stack, allow_unused=True, retain_graph=True)
    found = gradient_attention(seen, target, modules=modules)
    for ours, weights, gradient in zip(found, stack, gradients, strict=False):
        product = (weights * gradient).double().sum(2)
        torch.testing.assert_close(ours.key_sums(), product, atol=1e-4, rtol=1e-4)
