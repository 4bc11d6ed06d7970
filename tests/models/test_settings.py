"""Settings that cannot be, or that a model would not honour, are named; those that can be are honoured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.models import (
    CaptionModel,
    ConvolutionalLM,
    ConvolutionalLMConfig,
    DecoderLM,
    EncoderClassifier,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderForSpans,
    EncoderTagger,
    ImageEncoder,
    MaskedLM,
    RecurrentClassifier,
    RecurrentClassifierConfig,
    RecurrentEncoderDecoder,
    RecurrentEncoderDecoderConfig,
    RecurrentLM,
    RecurrentLMConfig,
    Seq2Seq,
    TextCNN,
    TextCNNConfig,
    TextEncoder,
    TransformerConfig,
    VisionClassifier,
    VisionConfig,
)
from tests.models.test_transformers import TINY

pytestmark = pytest.mark.usefixtures("unchecked")

CONFIGS: dict[Any, dict[str, Any]] = {
    ConvolutionalLMConfig: {"vocab_size": 9},
    EncoderConfig: {"vocab_size": 9},
    EncoderDecoderConfig: {"vocab_size": 9},
    RecurrentClassifierConfig: {"vocab_size": 9, "num_classes": 2},
    RecurrentEncoderDecoderConfig: {"source_vocab_size": 9, "vocab_size": 9},
    RecurrentLMConfig: {"vocab_size": 9},
    TextCNNConfig: {"vocab_size": 9, "num_classes": 2},
    TransformerConfig: {"vocab_size": 9},
    VisionConfig: {},
}
MODELS: dict[type[nn.Module], Any] = {
    CaptionModel: VisionConfig,
    ConvolutionalLM: ConvolutionalLMConfig,
    DecoderLM: TransformerConfig,
    EncoderClassifier: EncoderConfig,
    EncoderForSpans: EncoderConfig,
    EncoderTagger: EncoderConfig,
    ImageEncoder: VisionConfig,
    MaskedLM: EncoderConfig,
    RecurrentClassifier: RecurrentClassifierConfig,
    RecurrentEncoderDecoder: RecurrentEncoderDecoderConfig,
    RecurrentLM: RecurrentLMConfig,
    Seq2Seq: EncoderDecoderConfig,
    TextCNN: TextCNNConfig,
    TextEncoder: EncoderConfig,
    VisionClassifier: VisionConfig,
}
WRONG: dict[str, list[Any]] = {
    "int": ["4", 2.5, 2.0, True, None, [2, 3]],
    "int | None": ["4", 2.5, True, [2, 3]],
    "float": ["0.1", None, True, [0.1]],
    "bool": ["False", 1, None],
    "tuple[int, ...]": [3, "345", (2.5,), None],
}


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_is_of_its_type(config: Any) -> None:
    needed = CONFIGS[config]
    config(**needed)
    for field in fields(config):
        for value in WRONG.get(str(field.type), ["nothing like it", 3, None]):
            with pytest.raises(ConfigError) as caught:
                config(**{**needed, field.name: value})
            assert str(caught.value).startswith(f"{config.__name__}(): `{field.name}` must be ")
            assert str(caught.value).endswith(f", but is {value!r}.")


@pytest.mark.parametrize("config", CONFIGS)
def test_every_size_is_at_least_one(config: Any) -> None:
    names = {field.name for field in fields(config)} & {
        *("vocab_size", "source_vocab_size", "embed_dim", "hidden_dim", "ff_dim", "max_len", "window", "kernel_size"),
        *("num_heads", "num_kv_heads", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"),
        *("num_classes", "num_filters", "num_channels", "image_size", "patch_size"),
    }
    for name in names:
        with pytest.raises(ConfigError, match=rf"`{name}` must be at least 1, but is 0"):
            config(**{**CONFIGS[config], name: 0})


def test_what_is_wrong_by_itself_is_listed_with_what_is_not_of_its_type() -> None:
    with pytest.raises(ConfigError, match=r"(?s)3 problems.*`vocab_size` .*'40'.*`num_heads` .* 0.*`norm` .*'batch'"):
        TransformerConfig(vocab_size="40", num_heads=0, norm="batch")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: EncoderConfig(vocab_size=9, mask_id=0), "`mask_id` must be another id than `pad_id`, but is 0"),
        (lambda: EncoderConfig(vocab_size=9, mask_id=2), "`mask_id` must be another id than `eos_id`, but is 2"),
        (lambda: EncoderConfig(vocab_size=9, mask_id=9), r"`mask_id` must be an id of the vocabulary \(0 to 8\)"),
        (
            lambda: EncoderDecoderConfig(vocab_size=20, source_vocab_size=5, pad_id=10),
            r"`pad_id` must be an id of the source too \(below 5\), but is 10",
        ),
        (
            lambda: VisionClassifier(VisionConfig(window=4, positions="rotary")),
            r"(?s)2 problems.*`config.positions` must be left at 'sinusoidal', .*'rotary'.*`config.window` .* but is 4",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_named(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_captions_honour_positions_and_window() -> None:
    model = CaptionModel(VisionConfig(**TINY, positions="rotary", window=2, image_size=8, patch_size=4)).eval()
    image, tokens = torch.randn(1, 1, 8, 8), torch.tensor([[3, 4, 5, 6]])
    other = tokens.clone()
    other[0, 0] = 7
    found, changed = model(image, tokens), model(image, other)
    assert not torch.allclose(found[:, 1], changed[:, 1])
    torch.testing.assert_close(found[:, 3], changed[:, 3], msg="two layers that see two tokens reach back two places")


@pytest.mark.parametrize("model", MODELS)
def test_a_model_takes_the_settings_of_its_own_family(model: Any) -> None:
    for config, needed in CONFIGS.items():
        if config is not MODELS[model]:
            with pytest.raises(ConfigError) as caught:
                model(config(**needed))
            expected = f"`config` must be of class {MODELS[model].__name__}, but is of class {config.__name__}."
            assert str(caught.value) == f"{model.__name__}(): {expected}"
    with pytest.raises(ConfigError, match="but is of class dict"):
        model({"vocab_size": 9})


@dataclass(frozen=True, kw_only=True)
class Mine(TransformerConfig):
    """A person's own settings, of the family of those it extends."""

    name: str = "mine"


def test_settings_may_be_extended() -> None:
    assert DecoderLM(Mine(**TINY)).config.name == "mine"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="must be of class EncoderConfig, but is of class Mine"):
        TextEncoder(Mine(**TINY))  # type: ignore[arg-type]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_what_comes_before_the_words_of_a_masked_lm_follows_the_settings(activation: Any) -> None:
    model = MaskedLM(EncoderConfig(**TINY, activation=activation, norm="rms"))
    x = torch.randn(3, 32)
    linear, norm = model.transform[0], nn.RMSNorm(32, eps=1e-5)
    torch.testing.assert_close(model.transform(x), norm(getattr(nn.functional, activation)(linear(x))))


@pytest.mark.parametrize("model", [m for m, config in MODELS.items() if issubclass(config, TransformerConfig)])
def test_without_bias_there_is_none(model: Any) -> None:
    options = {**TINY, "dropout_p": 0.0}
    assert any("bias" in name for name, _ in model(MODELS[model](**options)).named_parameters())
    assert not [name for name, _ in model(MODELS[model](**options, bias=False)).named_parameters() if "bias" in name]
