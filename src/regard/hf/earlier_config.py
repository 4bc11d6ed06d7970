"""Settings of the models that the Transformer replaced, as transformers keeps them."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.hf.config import SettingsConfig, WriterConfig
from regard.models import (
    ConvolutionalLMConfig,
    RecurrentClassifierConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLMConfig,
    TextCNNConfig,
)

_PAD = {"pad_token_id": "pad_id"}
_SPECIAL = {**_PAD, "bos_token_id": "bos_id", "eos_token_id": "eos_id"}
_LAYERS = {"num_hidden_layers": "num_layers"}
_TIED = {"tie_word_embeddings": "tie_embeddings"}
_CLASSES = {"num_classes": "num_labels"}


class RegardRecurrentSeq2SeqConfig(WriterConfig):
    """Settings of ``RegardRecurrentForConditionalGeneration``; fields as for ``RecurrentEncoderDecoderConfig``.

    ``source_vocab_size`` is ``vocab_size`` unless given: one tokenizer for both. ``decoder_start_token_id`` begins a
    target; it is ``bos_id`` unless given.
    """

    model_type = "regard_recurrent_seq2seq"
    settings_class: ClassVar[type[Any]] = RecurrentEncoderDecoderConfig
    pad_may_be_none: ClassVar[bool] = False
    attribute_map: ClassVar[dict[str, str]] = {**_SPECIAL, **_TIED, "hidden_size": "hidden_dim"}

    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if "vocab_size" in kwargs:
            kwargs.setdefault("source_vocab_size", kwargs["vocab_size"])
        super().__post_init__(**kwargs)

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Any:
        """Itself: there is no part of it that caches are made from."""
        return self


class RegardRecurrentDecoderConfig(SettingsConfig):
    """Settings of ``RegardRecurrentForCausalLM``; fields as for ``regard.models.RecurrentLMConfig``."""

    model_type = "regard_recurrent_decoder"
    settings_class: ClassVar[type[Any]] = RecurrentLMConfig
    pad_may_be_none: ClassVar[bool] = False
    attribute_map: ClassVar[dict[str, str]] = {**_SPECIAL, **_TIED, **_LAYERS, "hidden_size": "hidden_dim"}


class RegardConvolutionalDecoderConfig(SettingsConfig):
    """Settings of ``RegardConvolutionalForCausalLM``; fields as for ``regard.models.ConvolutionalLMConfig``."""

    model_type = "regard_convolutional_decoder"
    settings_class: ClassVar[type[Any]] = ConvolutionalLMConfig
    pad_may_be_none: ClassVar[bool] = False
    attribute_map: ClassVar[dict[str, str]] = {**_SPECIAL, **_TIED, **_LAYERS, "hidden_size": "embed_dim"}


class RegardRecurrentEncoderConfig(SettingsConfig):
    """Settings of ``RegardRecurrentForSequenceClassification``; fields as for ``RecurrentClassifierConfig``."""

    model_type = "regard_recurrent_encoder"
    settings_class: ClassVar[type[Any]] = RecurrentClassifierConfig
    pad_may_be_none: ClassVar[bool] = False
    attribute_map: ClassVar[dict[str, str]] = {**_PAD, **_LAYERS, **_CLASSES, "hidden_size": "hidden_dim"}


class RegardConvolutionalEncoderConfig(SettingsConfig):
    """Settings of ``RegardConvolutionalForSequenceClassification``; fields as for ``regard.models.TextCNNConfig``."""

    model_type = "regard_convolutional_encoder"
    settings_class: ClassVar[type[Any]] = TextCNNConfig
    pad_may_be_none: ClassVar[bool] = False
    attribute_map: ClassVar[dict[str, str]] = {**_PAD, **_CLASSES, "hidden_size": "embed_dim"}

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(kwargs.get("kernel_sizes"), list):  # as JSON has it
            kwargs["kernel_sizes"] = tuple(kwargs["kernel_sizes"])
        super().__post_init__(**kwargs)
