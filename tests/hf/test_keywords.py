"""What a wrapper is called with: what transformers passes works, and nothing that is not honoured is swallowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache

from regard.errors import ConfigError, ShapeError
from regard.hf import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardForCausalLM,
    RegardForConditionalGeneration,
    RegardForImageCaptioning,
    RegardForImageClassification,
    RegardForMaskedLM,
    RegardForQuestionAnswering,
    RegardForSequenceClassification,
    RegardForTokenClassification,
    RegardSeq2SeqConfig,
    RegardVisionConfig,
)
from regard.nn import KeyValueCache

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 1, "ff_dim": 48, "dropout_p": 0.0}
PIXELS: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(2))


def causal(**options: Any) -> Any:
    torch.manual_seed(0)
    return RegardForCausalLM(RegardDecoderConfig(**TINY, **options)).eval()


def seq2seq() -> Any:
    torch.manual_seed(0)
    return RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY)).eval()


def made() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every wrapper, and a call of it."""
    text, images = {"input_ids": words(2, 5)}, {"pixel_values": torch.ones(2, 1, 8, 8)}
    encoder, image = RegardEncoderConfig(**TINY), RegardVisionConfig(**PIXELS)
    return {
        "causal": (RegardForCausalLM(RegardDecoderConfig(**TINY)), {**text, "labels": words(2, 5)}),
        "seq2seq": (RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY)), {**text, "labels": words(2, 4)}),
        "captions": (RegardForImageCaptioning(RegardCaptionConfig(**PIXELS)), {**images, "labels": words(2, 4)}),
        "classes": (RegardForSequenceClassification(encoder), {**text, "labels": torch.tensor([0, 1])}),
        "spans": (
            RegardForQuestionAnswering(encoder),
            {**text, "start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([1, 4])},
        ),
        "tokens": (RegardForTokenClassification(encoder), {**text, "labels": torch.tensor([[0, 1, 1, 0, -100]] * 2)}),
        "masked": (RegardForMaskedLM(encoder), {**text, "labels": words(2, 5)}),
        "images": (RegardForImageClassification(image), {**images, "labels": torch.tensor([0, 1])}),
    }


NAMES = ("causal", "seq2seq", "captions", "classes", "spans", "tokens", "masked", "images")


@pytest.mark.parametrize("name", NAMES)
def test_every_keyword_that_is_not_honoured_is_refused_by_name(name: str) -> None:
    model, inputs = made()[name]
    with pytest.raises(ConfigError) as caught:
        model(**inputs, atention_mask=torch.ones(2, 5), position_ids=torch.arange(5)[None], output_attentions=True)
    said = str(caught.value)
    assert said.startswith(f"{type(model).__name__}(): 3 problems:\n")
    assert "  - `output_attentions` must be False (`with regard.watch(model, probes=[regard.Rows()]) as seen`" in said
    assert f"  - `atention_mask` must be one of {next(iter(inputs))}, " in said
    assert ", but is none of them." in said
    assert "  - `position_ids` must be None (positions are counted over the real tokens of `attention_mask`)" in said
    model(**inputs, head_mask=None, position_ids=None, output_attentions=False, output_hidden_states=None)


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_a_tuple_where_that_is_asked_for(name: str) -> None:
    model, inputs = made()[name]
    output = model.eval()(**inputs)
    found = model(**inputs, return_dict=False)
    assert isinstance(found, tuple)
    for one, other in zip(found, output.to_tuple(), strict=True):
        torch.testing.assert_close(one, other)
    model.config.return_dict = False
    assert isinstance(model(**inputs), tuple)
    torch.testing.assert_close(model(**inputs, return_dict=True).loss, output.loss)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_is_divided_by_what_the_trainer_counts(name: str) -> None:
    model, inputs = made()[name]
    counted = {"causal": 8, "seq2seq": 8, "captions": 8, "tokens": 8, "masked": 10}.get(name, 2)
    loss = model.eval()(**inputs).loss
    torch.testing.assert_close(model(**inputs, num_items_in_batch=4 * counted).loss, loss / 4)
    torch.testing.assert_close(model(**inputs, num_items_in_batch=torch.tensor(counted)).loss, loss)


@pytest.mark.parametrize("option", ["output_attentions", "output_hidden_states"])
def test_what_only_a_watch_shows_is_refused_in_generate_and_in_the_config(option: str) -> None:
    for model in (causal(), seq2seq()):
        with pytest.raises(ConfigError, match=rf"`{option}` must be False \(`with regard\.watch"):
            model.generate(words(1, 4), max_new_tokens=3, return_dict_in_generate=True, **{option: True})
    for config_class, model_class in (
        (RegardDecoderConfig, RegardForCausalLM),
        (RegardSeq2SeqConfig, RegardForConditionalGeneration),
    ):
        model = model_class(config_class(**TINY, **{option: True}, attn_implementation="eager"))
        with pytest.raises(ConfigError, match=rf"`{option}` must be False"):
            model(words(1, 4), **({"decoder_input_ids": words(1, 2)} if model.config.is_encoder_decoder else {}))


def test_positions_for_generate_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`position_ids` must be None \(positions are counted"):
        causal().generate(words(1, 4), position_ids=torch.arange(4)[None], max_new_tokens=3)


def test_ids_beside_an_image_begin_what_is_written() -> None:
    model, image = made()["captions"][0].eval(), torch.randn(2, 1, 8, 8)
    begun = torch.tensor([[1, 5], [1, 6]])
    options = {"max_new_tokens": 2, "do_sample": False, "eos_token_id": None}
    written = model.generate(pixel_values=image, input_ids=begun, **options)
    assert torch.equal(written[:, :2], begun)
    assert torch.equal(written, model.generate(pixel_values=image, decoder_input_ids=begun, **options))


def test_a_cache_by_its_old_name_is_filled() -> None:
    model, tokens, cache = causal(), words(2, 6), DynamicCache()
    first = model(tokens[:, :4], past_key_values=cache)
    assert cache.get_seq_length() == 4
    assert first.past_key_values is cache
    step = model(tokens[:, 4:], past_key_values=cache)
    torch.testing.assert_close(step.logits, model(tokens).logits[:, 4:], atol=1e-5, rtol=1e-4)
    writer, pair = seq2seq(), EncoderDecoderCache(DynamicCache(), DynamicCache())
    writer(tokens, decoder_input_ids=tokens[:, :3], past_key_values=pair)
    assert pair.get_seq_length() == 3
    with pytest.raises(
        ConfigError, match="`past_key_values` must be None where `cache` is given, but is a DynamicCache"
    ):
        model(tokens, cache=DynamicCache(), past_key_values=cache)


@pytest.mark.usefixtures("unchecked")
def test_a_cache_that_is_none_of_transformers_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        causal()(words(1, 4), cache=KeyValueCache())
    assert str(caught.value) == (
        "RegardForCausalLM(): `cache` must be a Cache of transformers, but is a KeyValueCache.\n"
        "  hint: a KeyValueCache is for the model inside: `model.model`"
    )
    with pytest.raises(ConfigError, match="`cache` must be a Cache of transformers, but is a tuple"):
        seq2seq()(words(1, 4), decoder_input_ids=words(1, 2), past_key_values=((),))


def test_logits_are_kept_as_many_as_are_asked_for() -> None:
    model, tokens = causal(), words(2, 6)
    whole = model(tokens, labels=tokens)
    assert model(tokens, logits_to_keep=0).logits.shape == (2, 6, 40)
    last = model(tokens, labels=tokens, logits_to_keep=2)
    assert torch.equal(last.logits, whole.logits[:, -2:])
    assert torch.equal(last.loss, whole.loss)
    places = torch.tensor([0, 3])
    assert torch.equal(model(tokens, logits_to_keep=places).logits, whole.logits[:, places])
    with pytest.raises(ConfigError, match=r"`logits_to_keep` must be at least 0 \(0 keeps all\), .* but is -1"):
        model(tokens, logits_to_keep=-1)
    with pytest.raises(ConfigError, match="`logits_to_keep` must be one of input_ids, "):
        seq2seq()(tokens, labels=tokens, logits_to_keep=1)


def test_segments_are_refused_where_there_are_none() -> None:
    tokens, none = words(2, 5), torch.zeros(2, 5, dtype=torch.long)
    encoder = RegardForSequenceClassification(RegardEncoderConfig(**TINY)).eval()
    for model, inputs in ((encoder, {}), (causal(), {}), (seq2seq(), {"labels": tokens})):
        found = model(tokens, token_type_ids=none, **inputs).logits
        torch.testing.assert_close(found, model(tokens, **inputs).logits)
        with pytest.raises(ConfigError, match=r"`token_type_ids` must be 0 everywhere \(this model tells no segments"):
            model(tokens, token_type_ids=none + 1, **inputs)
    two = RegardForSequenceClassification(RegardEncoderConfig(**TINY, num_segments=2)).eval()
    assert not torch.equal(two(tokens, token_type_ids=none).logits, two(tokens, token_type_ids=none + 1).logits)


@pytest.mark.usefixtures("unchecked")
def test_a_single_text_is_refused_by_its_name() -> None:
    with pytest.raises(ShapeError, match=r"RegardForCausalLM\(\): `input_ids` must be of shape \[batch, length\]"):
        causal()(words(4))
    with pytest.raises(
        ShapeError, match=r"`decoder_input_ids` must be of shape \[batch, length\], but is of shape \(3,"
    ):
        seq2seq()(words(1, 4), decoder_input_ids=words(3))
    with pytest.raises(ShapeError, match=r"`labels` must be of shape \(batch, length\), but is of shape \(3,\)"):
        seq2seq()(words(1, 4), labels=words(3))
    with pytest.raises(ShapeError, match=r"`labels` must be of shape \(1, 4\), but is of shape \(1, 3\)"):
        causal()(words(1, 4), labels=words(1, 3))


def test_what_is_read_while_labels_are_learned_can_be_asked_for() -> None:
    labels = torch.tensor([[5, 6, -100]])
    assert seq2seq().prepare_decoder_input_ids_from_labels(labels=labels).tolist() == [[1, 5, 6]]


@pytest.mark.parametrize("name", ["classes", "images", "spans", "causal", "seq2seq", "masked"])
def test_a_trainer_that_accumulates_takes_the_same_step(name: str, tmp_path: Path) -> None:
    """Four batches of two, or one of eight, are one step."""
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    steps = []
    for size, accumulated in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        model, inputs = made()[name]
        rows = [{key: value[i % 2] for key, value in inputs.items()} for i in range(8)]
        before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
        arguments = TrainingArguments(
            str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulated,
            learning_rate=0.1,
            optim="sgd",
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        steps.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]) - before)
    torch.testing.assert_close(steps[1], steps[0], atol=1e-6, rtol=1e-4)
    assert steps[0].norm() > 1e-3


def test_what_accelerate_unwraps_after_training_is_still_called_by_transformers() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    model, call = made()["seq2seq"]
    AcceleratorState._reset_state(reset_partial_state=True)  # another test may have left it with another precision
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    accelerator.unwrap_model(accelerator.prepare_model(model), keep_fp32_wrapper=False)
    AcceleratorState._reset_state(reset_partial_state=True)
    assert model(**call, return_dict=True).logits.dtype == torch.float32
