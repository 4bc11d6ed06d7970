"""Settings of our models in transformers: two names for one field, special tokens, what `generate` reads of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSeq2SeqLM

from regard.errors import ConfigError
from regard.hf import (
    RegardCaptionConfig,
    RegardDecoderConfig,
    RegardEncoderConfig,
    RegardForCausalLM,
    RegardForConditionalGeneration,
    RegardForImageCaptioning,
    RegardForImageClassification,
    RegardSeq2SeqConfig,
    RegardVisionConfig,
)

TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 32, "num_layers": 1, "ff_dim": 48, "dropout_p": 0.0}
WRITERS = {
    "causal": (RegardForCausalLM, RegardDecoderConfig),
    "seq2seq": (RegardForConditionalGeneration, RegardSeq2SeqConfig),
    "captions": (RegardForImageCaptioning, RegardCaptionConfig),
}


def words(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("names", [("pad_id", "bos_id", "eos_id"), ("pad_token_id", "bos_token_id", "eos_token_id")])
def test_generate_knows_the_special_tokens_of_the_settings(name: str, names: tuple[str, ...], tmp_path: Path) -> None:
    model_class, config_class = WRITERS[name]
    model = model_class(config_class(**TINY, **dict(zip(names, (5, 6, 7), strict=True))))
    model.save_pretrained(tmp_path)
    loaded = model_class.from_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    bare = model_class.from_pretrained(tmp_path)  # as from a checkpoint of a training, which holds the config only
    for one in (model, loaded, bare):
        found = one.generation_config
        assert (found.pad_token_id, found.bos_token_id, found.eos_token_id) == (5, 6, 7)
        assert found.decoder_start_token_id == (None if name == "causal" else 6)
        assert (one.config.settings.pad_id, one.config.settings.bos_id, one.config.settings.eos_id) == (5, 6, 7)


def test_a_language_model_begins_a_text_by_itself() -> None:
    torch.manual_seed(0)
    model = RegardForCausalLM(RegardDecoderConfig(**TINY, bos_id=4)).eval()
    written = model.generate(max_new_tokens=3, do_sample=False)
    assert torch.equal(written, model.generate(torch.tensor([[4]]), max_new_tokens=3, do_sample=False))


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_sees_no_padding_in_a_source(beams: int) -> None:
    torch.manual_seed(0)
    model = RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY)).eval()
    source, seen = words(2, 6), []
    source[1, 4:] = 0
    write = model.write
    model.write = lambda target, memory, real, **rest: seen.append(real) or write(target, memory, real, **rest)
    model.generate(source, max_new_tokens=2, num_beams=beams)
    assert torch.equal(seen[0], source != 0), "a source is read once for all beams"
    assert torch.equal(seen[1], (source != 0).repeat_interleave(beams, dim=0))


def test_a_source_that_was_read_knows_its_padding() -> None:
    torch.manual_seed(0)
    model = RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY)).eval()
    source, target = words(2, 6), words(2, 3)
    source[1, 4:] = 0
    read = model.get_encoder()(source)
    wanted = model(source, decoder_input_ids=target).logits
    torch.testing.assert_close(model(encoder_outputs=read, decoder_input_ids=target).logits, wanted)
    by_hand = model(encoder_outputs=(read[0],), attention_mask=(source != 0).long(), decoder_input_ids=target)
    torch.testing.assert_close(by_hand.logits, wanted)


def test_a_target_begins_with_the_token_that_is_given(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, decoder_start_token_id=7)).eval()
    assert model.config.decoder_start_token_id == 7
    source, labels = words(2, 5), words(2, 3)
    begun = torch.cat([torch.full((2, 1), 7), labels[:, :-1]], dim=1)
    torch.testing.assert_close(model(source, labels=labels).logits, model(source, decoder_input_ids=begun).logits)
    assert model.generate(source, max_new_tokens=2)[:, 0].tolist() == [7, 7]
    model.save_pretrained(tmp_path)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config.decoder_start_token_id == 7
    assert RegardCaptionConfig(**TINY, bos_id=5).decoder_start_token_id == 5


def test_one_field_by_two_names_must_be_one_value() -> None:
    assert RegardDecoderConfig(**TINY, hidden_size=32).settings.embed_dim == 32
    with pytest.raises(ConfigError) as caught:
        RegardEncoderConfig(**TINY, hidden_size=64, num_labels=3, num_classes=5)
    assert str(caught.value) == (
        "RegardEncoderConfig(): 2 problems:\n"
        "  - `embed_dim` must be as `hidden_size` says (64), but is 32.\n"
        "  - `num_classes` must be as `num_labels` says (3), but is 5."
    )
    with pytest.raises(ConfigError, match=r"`num_classes` must be as `num_labels` says \(1\), but is 2"):
        RegardEncoderConfig(**TINY, id2label={0: "good"}, num_classes=2)


def test_special_tokens_that_are_no_ids_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        RegardForCausalLM(RegardDecoderConfig(**TINY, eos_token_id=[2, 3], bos_id=None, pad_id="<pad>"))
    assert str(caught.value) == (
        "RegardDecoderConfig(): 3 problems:\n"
        "  - `pad_id` must be one id, or None, but is '<pad>'.\n"
        "  - `bos_id` must be one id, but is None.\n"
        "  - `eos_id` must be one id (`generation_config.eos_token_id` may hold several), but is [2, 3]."
    )
    with pytest.raises(ConfigError, match=r"`decoder_start_token_id` must be an id .* \(0 to 39\), but is 40"):
        RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, decoder_start_token_id=40))
    with pytest.raises(ConfigError, match=r"`decoder_start_token_id` must be one id, but is \[1\]"):
        RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, decoder_start_token_id=[1]))


def test_a_model_takes_only_its_own_configuration() -> None:
    wanted = r"RegardForCausalLM\(\): `config` must be a RegardDecoderConfig, but is a RegardEncoderConfig\."
    with pytest.raises(ConfigError, match=wanted):
        RegardForCausalLM(RegardEncoderConfig(**TINY))
    with pytest.raises(ConfigError, match="`config` must be a RegardSeq2SeqConfig, but is a RegardCaptionConfig"):
        RegardForConditionalGeneration(RegardCaptionConfig(**TINY))


def test_several_ends_are_for_generate() -> None:
    torch.manual_seed(0)
    model = RegardForCausalLM(RegardDecoderConfig(**TINY)).eval()
    written = model.generate(words(1, 4), max_new_tokens=4, eos_token_id=None)[0].tolist()
    model.generation_config.eos_token_id = [2, written[5]]
    assert model.generate(words(1, 4), max_new_tokens=4)[0].tolist() == written[: written.index(written[5], 4) + 1]


def test_two_classes_come_back_where_two_are_not_the_default(tmp_path: Path) -> None:
    model = RegardForImageClassification(RegardVisionConfig(**TINY, num_classes=2))
    model.save_pretrained(tmp_path)
    assert AutoModelForImageClassification.from_pretrained(tmp_path).config.settings.num_classes == 2
    assert AutoConfig.from_pretrained(tmp_path, num_labels=5).settings.num_classes == 5
    RegardEncoderConfig(**TINY, id2label={0: "a", 1: "b", 2: "c"}).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).id2label == {0: "a", 1: "b", 2: "c"}
    assert AutoConfig.from_pretrained(tmp_path, num_labels=5).settings.num_classes == 5


def test_a_decoder_deeper_than_its_encoder_writes() -> None:
    torch.manual_seed(0)
    model = RegardForConditionalGeneration(RegardSeq2SeqConfig(**TINY, num_decoder_layers=3)).eval()
    wanted = {"max_new_tokens": 5, "do_sample": False}
    plain = model.generate(words(2, 5), use_cache=False, **wanted)
    assert torch.equal(model.generate(words(2, 5), **wanted), plain)
    assert torch.equal(model.generate(words(2, 5), cache_implementation="static", **wanted), plain)
    assert model.config.num_layers == 1
