"""Models in pure torch: the Transformers, and the recurrent and convolutional models they replaced."""

from regard.models.config import TransformerConfig
from regard.models.decoder_lm import DecoderLM
from regard.models.encoder import (
    EncoderClassifier,
    EncoderConfig,
    EncoderForSpans,
    Hidden,
    MaskedLM,
    Spans,
    TextEncoder,
    hide_words,
)
from regard.models.encoder_decoder import EncoderDecoderConfig, Seq2Seq
from regard.models.vision import CaptionModel, ImageEncoder, VisionClassifier, VisionConfig

__all__ = [
    "CaptionModel",
    "DecoderLM",
    "EncoderClassifier",
    "EncoderConfig",
    "EncoderDecoderConfig",
    "EncoderForSpans",
    "Hidden",
    "ImageEncoder",
    "MaskedLM",
    "Seq2Seq",
    "Spans",
    "TextEncoder",
    "TransformerConfig",
    "VisionClassifier",
    "VisionConfig",
    "hide_words",
]
