"""The models of the tests: small ones, one for each family and option."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.models import (
    ConvolutionalLM,
    ConvolutionalLMConfig,
    RecurrentClassifier,
    RecurrentClassifierConfig,
    RecurrentEncoderDecoder,
    RecurrentEncoderDecoderConfig,
    RecurrentLM,
    RecurrentLMConfig,
    TextCNN,
    TextCNNConfig,
)

VOCABULARY = 11
TRANSLATORS = [(kind, attention) for kind in ("lstm", "gru") for attention in ("none", "additive", "dot")]


def translator(kind: str, attention: str, **options: Any) -> RecurrentEncoderDecoder:
    """Two layers below, one above, unless told otherwise."""
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 9, "vocab_size": VOCABULARY, "embed_dim": 6, "hidden_dim": 8, "encoder_layers": 2}
    return RecurrentEncoderDecoder(
        RecurrentEncoderDecoderConfig(**{**sizes, "kind": kind, "attention": attention, **options})
    ).eval()


def recurrent_lm(**options: Any) -> RecurrentLM:
    torch.manual_seed(0)
    return RecurrentLM(
        RecurrentLMConfig(**{"vocab_size": VOCABULARY, "embed_dim": 6, "hidden_dim": 8, "num_layers": 2, **options})
    ).eval()


def convolutional_lm(**options: Any) -> ConvolutionalLM:
    torch.manual_seed(0)
    return ConvolutionalLM(
        ConvolutionalLMConfig(**{"vocab_size": VOCABULARY, "embed_dim": 8, "num_layers": 3, **options})
    ).eval()


def classifier(pooling: str, **options: Any) -> RecurrentClassifier:
    torch.manual_seed(0)
    return RecurrentClassifier(
        RecurrentClassifierConfig(
            **{
                "vocab_size": VOCABULARY,
                "num_classes": 3,
                "embed_dim": 6,
                "hidden_dim": 4,
                "pooling": pooling,
                **options,
            }
        )
    ).eval()


def text_cnn(**options: Any) -> TextCNN:
    torch.manual_seed(0)
    return TextCNN(
        TextCNNConfig(**{"vocab_size": VOCABULARY, "num_classes": 3, "embed_dim": 6, "num_filters": 5, **options})
    ).eval()


LMS = {
    "lstm": recurrent_lm,
    "gru": lambda **options: recurrent_lm(kind="gru", **options),
    "convolutional": convolutional_lm,
    "gated": lambda **options: convolutional_lm(gated=True, **options),
}
CLASSIFIERS = {
    **{
        pooling: lambda pooling=pooling, **options: classifier(pooling, **options)
        for pooling in ("last", "mean", "max")
    },
    "attention": lambda **options: classifier("attention", **options),
    "cnn": text_cnn,
}


def texts(batch: int, length: int, *, vocabulary: int = VOCABULARY) -> Tensor:
    """Ids without special ones, from a generator of their own."""
    return torch.randint(3, vocabulary, (batch, length), generator=torch.Generator().manual_seed(1))


def all_models() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Every family, and what it reads."""
    source, target = texts(3, 5, vocabulary=9), texts(3, 4)
    source[1, 3:], source[2, :2] = 0, 0
    target[:, 0] = 1
    tokens = texts(3, 6)
    tokens[1, 4:] = 0
    found: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        f"{kind}_{attention}": (translator(kind, attention), (source, target)) for kind, attention in TRANSLATORS
    }
    for makers in (LMS, CLASSIFIERS):
        found |= {name: (make(), (tokens,)) for name, make in makers.items()}
    return found
