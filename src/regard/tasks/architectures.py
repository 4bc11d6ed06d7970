"""The models that a task can be learned by: the Transformer, and those that it replaced, of as many weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ConfigError, all_problems, message, must_be
from regard.hf import (
    RegardConvolutionalDecoderConfig,
    RegardConvolutionalEncoderConfig,
    RegardConvolutionalForCausalLM,
    RegardConvolutionalForSequenceClassification,
    RegardRecurrentDecoderConfig,
    RegardRecurrentEncoderConfig,
    RegardRecurrentForCausalLM,
    RegardRecurrentForConditionalGeneration,
    RegardRecurrentForSequenceClassification,
    RegardRecurrentSeq2SeqConfig,
)

TRANSFORMER = "transformer"
ARCHITECTURE = "architecture"


@dataclass(frozen=True)
class Architecture:
    """A kind of model beside the Transformer.

    Args:
        called: What a sentence calls it, with its article.
        config: Its configuration, of transformers.
        model: Its class.
        settings: What makes it this one; sizes are the presets'.
    """

    called: str
    config: Any
    model: Any
    settings: Mapping[str, Any] = field(default_factory=dict)

    def new(self, settings: Mapping[str, Any]) -> Any:
        """A model that has learned nothing.

        Args:
            settings: Sizes, special tokens, classes; special tokens that it does not know are left out.
        """
        known = self.config.settings_class.__dataclass_fields__
        given = {name: value for name, value in settings.items() if name in known or not name.endswith("_id")}
        return self.model(self.config(**given, **self.settings))

    def is_that_of(self, model: Any) -> bool:
        """Whether a model is one of these."""
        return type(model) is self.model and all(
            getattr(model.config, name) == value for name, value in self.settings.items()
        )


def _translator(kind: str, attention: str) -> Architecture:
    name = {"lstm": "an LSTM", "gru": "a GRU"}[kind]
    return Architecture(
        f"{name} without attention" if attention == "none" else f"{name} with attention",
        RegardRecurrentSeq2SeqConfig,
        RegardRecurrentForConditionalGeneration,
        {"kind": kind, "attention": attention, "tie_embeddings": True},
    )


TRANSLATORS: Mapping[str, Architecture] = {
    "lstm": _translator("lstm", "none"),
    "lstm-additive": _translator("lstm", "additive"),
    "lstm-dot": _translator("lstm", "dot"),
    "gru": _translator("gru", "none"),
    "gru-additive": _translator("gru", "additive"),
    "gru-dot": _translator("gru", "dot"),
}
CLASSIFIERS: Mapping[str, Architecture] = {
    "bilstm": Architecture(
        "an LSTM without attention",
        RegardRecurrentEncoderConfig,
        RegardRecurrentForSequenceClassification,
        {"kind": "lstm", "pooling": "max"},
    ),
    "cnn": Architecture(
        "a convolutional network", RegardConvolutionalEncoderConfig, RegardConvolutionalForSequenceClassification
    ),
}
LANGUAGE_MODELS: Mapping[str, Architecture] = {
    "lstm": Architecture(
        "an LSTM without attention",
        RegardRecurrentDecoderConfig,
        RegardRecurrentForCausalLM,
        {"kind": "lstm", "tie_embeddings": True},
    ),
    "cnn": Architecture(
        "a convolutional network",
        RegardConvolutionalDecoderConfig,
        RegardConvolutionalForCausalLM,
        {"tie_embeddings": True},
    ),
}


def architecture_of(model: Any, known: Mapping[str, Architecture]) -> str:
    """The name of a model's kind: one that is known, or the Transformer, which every other checkpoint is."""
    return next((name for name, one in known.items() if one.is_that_of(model)), TRANSFORMER)


def check_architecture(asked: Mapping[str, Any], known: Mapping[str, Architecture], *, checkpoint: str | None) -> None:
    """Refuse a choice that cannot be, before anything is read.

    Args:
        asked: What was chosen, by name.
        known: The kinds of the task.
        checkpoint: What the training is to go on from, if anything.

    Raises:
        ConfigError: with every problem.
    """
    if ARCHITECTURE not in asked:
        return
    chosen, problems = asked[ARCHITECTURE], []
    if chosen not in (TRANSFORMER, *known):
        problems.append(must_be(ARCHITECTURE, f"one of {', '.join((TRANSFORMER, *known))}", repr(chosen)))
    if checkpoint is not None:
        problems.append(must_be(ARCHITECTURE, "left out with `model`, which has one", repr(chosen)))
    if problems:
        raise all_problems("train", problems)


def has_attention(model: Any) -> bool:
    """Whether there is anything to look at."""
    return bool(getattr(model, "has_attention", True))


def check_attention(model: Any, known: Mapping[str, Architecture], *, caller: str) -> None:
    """Refuse to look at a model that looks at nothing.

    Raises:
        ConfigError: says what it is, and which architectures have attention.
    """
    if has_attention(model):
        return
    called = next((one.called for one in known.values() if one.is_that_of(model)), "a model without attention")
    others = [TRANSFORMER, *(name for name, one in known.items() if one.called.endswith("with attention"))]
    problem = f"{called} has no weights to look at; trained as {_or(others)}, it would have."
    raise ConfigError(message(caller, problem))


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
