"""Settings of our models as transformers keeps them: JSON beside the weights, and the names its own code asks for."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from regard.errors import all_problems, must_be
from regard.models import EncoderConfig, EncoderDecoderConfig, TransformerConfig, VisionConfig

_ANY_KEYWORD = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), Parameter("kwargs", Parameter.VAR_KEYWORD)])
_SMALLEST = {
    "vocab_size": 4,
    "source_vocab_size": 4,
    "num_classes": 2,
}  # transformers builds each once without arguments
_SPECIAL = {"pad_id": "pad_token_id", "bos_id": "bos_token_id", "eos_id": "eos_token_id"}
_START = "decoder_start_token_id"


class SettingsConfig(PreTrainedConfig):
    """A ``PreTrainedConfig`` with the fields of one of the settings classes of ``regard.models``.

    Args:
        **kwargs: Fields of the settings, and whatever every ``PreTrainedConfig`` takes. Many fields have a second name,
            that of transformers: ``hidden_size``, ``num_attention_heads``, ``pad_token_id``, ``bos_token_id``,
            ``eos_token_id``, ….

    Raises:
        ConfigError: a field is given by both of its names, with two values; listing every setting that cannot work,
            when ``settings`` is asked for.
    """

    settings_class: ClassVar[type[Any]] = TransformerConfig
    pad_may_be_none: ClassVar[bool] = True
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "embed_dim",
        "num_attention_heads": "num_heads",
        "num_key_value_heads": "num_kv_heads",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ff_dim",
        "max_position_embeddings": "max_len",
        "sliding_window": "window",
        "num_classes": "num_labels",
        **{theirs: ours for ours, theirs in _SPECIAL.items()},
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__init__.__signature__ = _ANY_KEYWORD  # type: ignore[attr-defined]  # what it takes, and does not say

    def __post_init__(self, **kwargs: Any) -> None:
        also = {ours: theirs for theirs, ours in self.attribute_map.items()} | {"num_classes": "num_labels"}
        chosen, problems = {}, []
        if self.id2label is not None and "num_labels" not in kwargs:  # there are as many classes as names
            kwargs["num_labels"] = len(self.id2label)
        for field in fields(self.settings_class):
            default = _SMALLEST.get(field.name) if field.default is MISSING else field.default
            names = (also.get(field.name), field.name)
            given = {str(name): kwargs.pop(name) for name in names if name in kwargs}
            chosen[field.name] = next(iter(given.values()), default)
            problems += _disagreements(given)
        if problems:
            raise all_problems(type(self).__name__, problems)
        if "num_classes" in chosen:
            kwargs["num_labels"] = chosen.pop("num_classes")
        super().__post_init__(**kwargs)
        for name, value in chosen.items():
            setattr(self, name, value)

    @property
    def settings(self) -> Any:
        """The settings that the model is built from, checked."""
        if problems := self._id_problems():
            raise all_problems(type(self).__name__, problems)
        return self.settings_class(**{field.name: getattr(self, field.name) for field in fields(self.settings_class)})

    def to_dict(self) -> dict[str, Any]:
        """All of it; special tokens by the names that ``generate`` reads, and the number of classes even if it is 2."""
        found: dict[str, Any] = super().to_dict()
        for ours, theirs in _SPECIAL.items():
            if ours in found:
                found[theirs] = found.pop(ours)
        if any(field.name == "num_classes" for field in fields(self.settings_class)):
            found["num_labels"] = self.num_labels
        return found

    def _id_problems(self) -> list[str]:
        """Special tokens that are no ids: transformers knows lists of them and None, our models do not."""
        also = {"eos_id": " (`generation_config.eos_token_id` may hold several)"}
        also |= {"pad_id": ", or None"} if self.pad_may_be_none else {}
        none = ("pad_id",) if self.pad_may_be_none else ()
        return [
            must_be(name, "one id" + also.get(name, ""), repr(found))
            for name in _SPECIAL
            if name in self.settings_class.__dataclass_fields__
            and not isinstance(found := getattr(self, name), int)
            and not (name in none and found is None)
        ]


class WriterConfig(SettingsConfig):
    """What the configurations of models with a source have in common: the token that a target begins with."""

    def __post_init__(self, **kwargs: Any) -> None:
        start = kwargs.pop(_START, None)
        super().__post_init__(**kwargs)
        self.decoder_start_token_id = self.bos_id if start is None else start

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Any:
        """Itself; for the decoder alone, of which caches are made, a copy with as many layers as that has."""
        found: Any = super().get_text_config(decoder=decoder, encoder=encoder)
        if decoder and not encoder:
            found.num_layers = self.num_decoder_layers or self.num_layers
        return found

    def _id_problems(self) -> list[str]:
        found, start, size = super()._id_problems(), self.decoder_start_token_id, self.vocab_size
        if not isinstance(start, int):
            found.append(must_be(_START, "one id", repr(start)))
        elif isinstance(size, int) and not 0 <= start < size:
            found.append(must_be(_START, f"an id of the vocabulary (0 to {size - 1})", start))
        return found


class RegardDecoderConfig(SettingsConfig):
    """Settings of ``RegardForCausalLM``; fields as for ``regard.models.TransformerConfig``."""

    model_type = "regard_decoder"
    settings_class = TransformerConfig


class RegardSeq2SeqConfig(WriterConfig):
    """Settings of ``RegardForConditionalGeneration``; fields as for ``regard.models.EncoderDecoderConfig``.

    ``decoder_start_token_id`` begins a target; it is ``bos_id`` unless given.
    """

    model_type = "regard_seq2seq"
    settings_class = EncoderDecoderConfig

    is_encoder_decoder: bool = True


class RegardEncoderConfig(SettingsConfig):
    """Settings of the encoders; fields as for ``regard.models.EncoderConfig``. ``num_labels`` gives ``num_classes``."""

    model_type = "regard_encoder"
    settings_class = EncoderConfig


class RegardVisionConfig(SettingsConfig):
    """Settings of ``RegardForImageClassification``; fields as for ``regard.models.VisionConfig``."""

    model_type = "regard_vision"
    settings_class = VisionConfig


class RegardCaptionConfig(WriterConfig):
    """Settings of ``RegardForImageCaptioning``; fields as for ``regard.models.VisionConfig``.

    ``decoder_start_token_id`` begins a caption; it is ``bos_id`` unless given.
    """

    model_type = "regard_caption"
    settings_class = VisionConfig

    is_encoder_decoder: bool = True


def _disagreements(given: dict[str, Any]) -> list[str]:
    """One sentence for each name of a field that says something else than its first name."""
    first, *others = given or {"": None}
    return [
        must_be(name, f"as `{first}` says ({given[first]})", given[name])
        for name in others
        if given[name] != given[first]
    ]
