"""Settings of our models as transformers keeps them: JSON beside the weights, and the names its own code asks for."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from regard.models import EncoderConfig, EncoderDecoderConfig, TransformerConfig, VisionConfig

_ANY_KEYWORD = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), Parameter("kwargs", Parameter.VAR_KEYWORD)])
_SMALLEST = {"vocab_size": 4}  # transformers builds every config once without arguments


class _Config(PreTrainedConfig):
    """A ``PreTrainedConfig`` with the fields of one of the settings classes of ``regard.models``.

    Args:
        **kwargs: Fields of the settings, and whatever every ``PreTrainedConfig`` takes. The ids of special tokens are
            also known as ``pad_token_id``, ``bos_token_id`` and ``eos_token_id``.

    Raises:
        ConfigError: listing every setting that cannot work, when ``settings`` is asked for.
    """

    settings_class: ClassVar[type[TransformerConfig]] = TransformerConfig
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "embed_dim",
        "num_attention_heads": "num_heads",
        "num_key_value_heads": "num_kv_heads",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ff_dim",
        "max_position_embeddings": "max_len",
        "sliding_window": "window",
        "pad_token_id": "pad_id",
        "bos_token_id": "bos_id",
        "eos_token_id": "eos_id",
        "num_classes": "num_labels",
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__init__.__signature__ = _ANY_KEYWORD  # type: ignore[attr-defined]  # what it takes, and does not say

    def __post_init__(self, **kwargs: Any) -> None:
        also = {ours: theirs for theirs, ours in self.attribute_map.items()}
        chosen = {}
        for field in fields(self.settings_class):
            default = _SMALLEST.get(field.name) if field.default is MISSING else field.default
            if field.name == "num_classes":  # as many as there are names for them, where there are names
                names, given = self.id2label, kwargs.pop("num_labels", None)
                default = len(names) if names is not None else default if given is None else given
            chosen[field.name] = kwargs.pop(field.name, kwargs.pop(also.get(field.name, field.name), default))
        super().__post_init__(**kwargs)
        for name, value in chosen.items():
            setattr(self, name, value)

    @property
    def settings(self) -> TransformerConfig:
        """The settings that the model is built from, checked."""
        return self.settings_class(**{field.name: getattr(self, field.name) for field in fields(self.settings_class)})


class RegardDecoderConfig(_Config):
    """Settings of ``RegardForCausalLM``; fields as for ``regard.models.TransformerConfig``."""

    model_type = "regard_decoder"
    settings_class = TransformerConfig


class RegardSeq2SeqConfig(_Config):
    """Settings of ``RegardForConditionalGeneration``; fields as for ``regard.models.EncoderDecoderConfig``."""

    model_type = "regard_seq2seq"
    settings_class = EncoderDecoderConfig

    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.decoder_start_token_id = self.bos_id


class RegardEncoderConfig(_Config):
    """Settings of the encoders; fields as for ``regard.models.EncoderConfig``. ``num_labels`` gives ``num_classes``."""

    model_type = "regard_encoder"
    settings_class = EncoderConfig


class RegardVisionConfig(_Config):
    """Settings of ``RegardForImageClassification``; fields as for ``regard.models.VisionConfig``."""

    model_type = "regard_vision"
    settings_class = VisionConfig


class RegardCaptionConfig(_Config):
    """Settings of ``RegardForImageCaptioning``; fields as for ``regard.models.VisionConfig``."""

    model_type = "regard_caption"
    settings_class = VisionConfig

    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.decoder_start_token_id = self.bos_id
