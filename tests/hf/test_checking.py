"""What check_model says of sound models, and of models that are broken on purpose."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama

from regard.errors import ConfigError
from regard.hf import check_model
from tests.parity.tiny_models import MODELS, text

TEXTS = [name for name in MODELS if name not in ("whisper", "vit", "clip", "llava")]


def inputs(name: str = "bert") -> dict[str, torch.Tensor]:
    ids = text()["input_ids"][:1]
    return {"input_ids": ids, **({"decoder_input_ids": ids[:, :6]} if name in ("t5", "bart") else {})}


def wrong(check) -> dict[str, str]:
    return {finding.name: finding.text for finding in check.wrong}


@pytest.fixture
def implementation():
    """Registers an attention function under a name, and takes it away again."""
    names = []

    def register(name, function, mask=None):
        names.append(name)
        AttentionInterface.register(name, function)
        if mask is not None:
            AttentionMaskInterface.register(name, AttentionMaskInterface._global_mapping[mask])
        return name

    yield register
    for name in names:
        AttentionInterface._global_mapping.pop(name, None)
        AttentionMaskInterface._global_mapping.pop(name, None)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("own", ["eager", "sdpa"])
def test_a_sound_model_has_nothing_wrong(name, own):
    if own == "sdpa" and not MODELS[name].fused:
        own = "eager"
    model = MODELS[name].build(own)
    check = check_model(model, inputs(name))
    assert not check.wrong, str(check)
    assert model.config._attn_implementation == own
    said = {finding.name: finding.text for finding in check.findings}
    assert said["watched"] == "the output is the unwatched one, bit for bit"
    assert said["weights"].startswith(f"those of eager attention in {6 if name in ('t5', 'bart') else 2} layers")


def test_kinds_of_attention_are_told():
    model = MODELS["gemma2"].build("eager")
    assert check_model(model, inputs()).kinds == (
        "self-attention of model.layers, causal, window of 4 keys, 4 heads on 2 key heads, soft cap 2: layers 0",
        "self-attention of model.layers, causal, 4 heads on 2 key heads, soft cap 2: layers 1",
    )
    assert ", sinks: layers 0" in str(check_model(MODELS["gpt_oss"].build("eager"), inputs()))


def test_an_implementation_without_a_mask_function_is_named(implementation):
    implementation("bare", modeling_llama.eager_attention_forward)
    found = wrong(check_model(MODELS["llama"].build("bare"), inputs()))
    assert "the attention implementation 'bare' has no mask function" in found['serve="regard"']
    assert "the attention implementation 'bare' loses the mask, eager does not" in found["padding mask"]


def test_an_encoder_whose_implementation_has_no_masks_is_named_by_padding(implementation):
    implementation("bare", modeling_bert.eager_attention_forward)
    found = wrong(check_model(MODELS["bert"].build("bare"), inputs()))
    assert "'bare' loses the mask, eager does not" in found["padding mask"]


def test_a_model_that_ignores_its_padding_is_named(monkeypatch):
    model = MODELS["bert"].build("eager")
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, input_ids, attention_mask=None, **rest: forward(self, input_ids, **rest)
    )
    found = wrong(check_model(model, inputs()))
    assert [*found] == ["padding mask"]
    assert found["padding mask"].endswith("the model ignores its padding mask")


def test_an_implementation_that_computes_something_else_is_named(implementation):
    def colder(module, query, key, value, attention_mask, scaling=None, **rest):
        return modeling_llama.eager_attention_forward(module, query * 0.5, key, value, attention_mask, scaling, **rest)

    implementation("colder", colder, mask="eager")
    found = wrong(check_model(MODELS["llama"].build("colder"), inputs()))
    assert "the attention implementation 'colder' computes something else" in found['serve="regard"']


def test_attention_that_cannot_be_observed_is_named(monkeypatch):
    model = MODELS["bert"].build("eager")

    class BertSelfAttention(torch.nn.Module):
        def forward(self, hidden_states, *args, **rest):
            scores = hidden_states @ hidden_states.transpose(1, 2) / 32
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)  # no softmax that could be met
            return weights @ hidden_states, None

    model.encoder.layer[1].attention.self = BertSelfAttention()
    found = wrong(check_model(model, inputs()))
    assert "encoder.layer.1.attention.self (not seen)" in found["coverage"]
    assert "padding mask" in found  # and it has no mask


def test_an_output_that_is_no_number_is_named():
    model = MODELS["bert"].build("eager")
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] = float("nan")
    assert "are NaN or infinite" in wrong(check_model(model, inputs()))["output"]


@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused():
    model = MODELS["bert"].build("eager")
    for given, said in [
        ({}, "`inputs` must be of one text: input_ids [1, tokens], but is a NoneType."),
        ({"input_ids": torch.ones(2, 3)}, "input_ids [1, tokens], but is of the shape (2, 3)."),
    ]:
        with pytest.raises(ConfigError, match=re.escape(said)):
            check_model(model, given)
    with pytest.raises(ConfigError, match=r"`model` must be in evaluation mode \(model\.eval\(\)\)"):
        check_model(model.train(), inputs())
