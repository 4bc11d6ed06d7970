"""The tables of the wrappers: found, exchanged, resized; and what AutoModel makes of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel

from regard.errors import ConfigError, UnsupportedError
from regard.hf import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardForCausalLM,
    RegardForConditionalGeneration,
    RegardForImageCaptioning,
    RegardForImageClassification,
    RegardForMaskedLM,
    RegardForSequenceClassification,
    RegardSeq2SeqConfig,
    RegardTextEncoder,
    RegardVisionConfig,
)

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 1, "ff_dim": 48, "dropout_p": 0.0}
IMAGE: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(2))


def made() -> dict[str, tuple[Any, dict[str, Tensor]]]:
    """Wrappers with one vocabulary, each with a call."""
    torch.manual_seed(0)
    target = {"decoder_input_ids": words(2, 3)}
    return {
        "causal": (RegardForCausalLM(RegardDecoderConfig(**TINY)), {"input_ids": words(2, 5)}),
        "seq2seq": (RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY)), {"input_ids": words(2, 5), **target}),
        "masked": (RegardForMaskedLM(RegardEncoderConfig(**TINY)), {"input_ids": words(2, 5)}),
        "captions": (
            RegardForImageCaptioning(RegardCaptionConfig(**IMAGE)),
            {"pixel_values": torch.randn(2, 1, 8, 8), **target},
        ),
    }


@pytest.mark.parametrize("name", ["causal", "seq2seq", "masked", "captions"])
def test_a_vocabulary_grows_and_shrinks(name: str, tmp_path: Path) -> None:
    model, inputs = made()[name]
    before = model.eval()(**inputs).logits
    table = model.resize_token_embeddings(45, mean_resizing=False)
    assert table is model.get_input_embeddings()
    assert (table.num_embeddings, model.config.vocab_size) == (45, 45)
    torch.testing.assert_close(model(**inputs).logits[..., :40], before)
    key = "input_ids" if "input_ids" in inputs else "decoder_input_ids"
    new = {**inputs, key: torch.full_like(inputs[key], 44)}
    assert model(**new).logits.shape[-1] == 45
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(type(model).from_pretrained(tmp_path).eval()(**new).logits, model(**new).logits)
    assert model.resize_token_embeddings(40, pad_to_multiple_of=16).num_embeddings == 48
    assert model.resize_token_embeddings(40).num_embeddings == 40
    torch.testing.assert_close(model(**inputs).logits, before)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(("positions", "std"), [("rotary", 32**-0.5), ("learned", 0.02)])
def test_new_vectors_are_drawn_as_the_others(positions: str, std: float) -> None:
    torch.manual_seed(0)
    model = RegardForCausalLM(RegardDecoderConfig(**TINY, positions=positions))
    table = model.resize_token_embeddings(400, mean_resizing=False).weight.detach()
    assert abs(float(table[40:].std()) / std - 1) < 0.05


def test_the_settings_of_every_part_follow() -> None:
    model, _ = made()["masked"]
    model.resize_token_embeddings(45)
    settings = [module.config for module in model.model.modules() if hasattr(module, "config")]
    assert len(settings) == 2
    assert all(each == model.config.settings for each in settings)


def test_a_special_token_outside_is_refused_before_anything_changes() -> None:
    model = RegardForCausalLM(RegardDecoderConfig(**TINY, eos_id=39))
    with pytest.raises(ConfigError, match=r"`eos_id` must be an id of the vocabulary \(0 to 19\), but is 39"):
        model.resize_token_embeddings(20)
    assert (model.get_input_embeddings().num_embeddings, model.config.vocab_size) == (40, 40)


def test_two_vocabularies_or_none_have_no_one_size() -> None:
    two = RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, source_vocab_size=50))
    assert two.get_input_embeddings() is two.model.source_embedding.table
    with pytest.raises(UnsupportedError, match="must have one vocabulary for its size to change, but has two voc"):
        two.resize_token_embeddings(60)
    none = RegardForImageClassification(RegardVisionConfig(**IMAGE))
    assert none.get_input_embeddings() is none.model.image.patches
    with pytest.raises(UnsupportedError, match="must have one vocabulary for its size to change, but has no vocab"):
        none.resize_token_embeddings(60)


def test_a_table_is_exchanged() -> None:
    for model, _ in made().values():
        table = nn.Embedding(40, 32)
        model.set_input_embeddings(table)
        assert model.get_input_embeddings() is table


@pytest.mark.parametrize("head", [RegardForSequenceClassification, RegardForMaskedLM])
def test_auto_model_is_the_encoder_beneath_any_head(head: Any, tmp_path: Path) -> None:
    model = head(RegardEncoderConfig(**TINY, num_segments=2)).eval()
    model.save_pretrained(tmp_path)
    found = AutoModel.from_pretrained(tmp_path)
    assert type(found) is RegardTextEncoder
    tokens = words(2, 5)
    tokens[1, 3:] = 0
    segments = (torch.arange(5) > 1).long().expand(2, 5)
    states = model.model.text(tokens, segments=segments)
    torch.testing.assert_close(found.eval()(tokens, token_type_ids=segments).last_hidden_state, states)
    by_mask = found(tokens, attention_mask=(tokens != 0).long(), token_type_ids=segments).last_hidden_state
    torch.testing.assert_close(by_mask, states)


@pytest.mark.parametrize("name", ["causal", "seq2seq", "captions"])
def test_auto_model_knows_the_models_that_write(name: str, tmp_path: Path) -> None:
    model, inputs = made()[name]
    model.save_pretrained(tmp_path)
    found = AutoModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(found(**inputs).logits, model.eval()(**inputs).logits)


def test_a_masked_model_without_biases_is_resized() -> None:
    model = RegardForMaskedLM(RegardEncoderConfig(vocab_size=40, embed_dim=32, num_layers=1, ff_dim=48, bias=False))
    model.resize_token_embeddings(44)
    assert model.model.bias is None
    assert model(input_ids=torch.tensor([[3, 43]])).logits.shape == (1, 2, 44)
