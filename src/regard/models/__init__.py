"""Models in pure torch: the Transformers, and the recurrent and convolutional models they replaced."""

from regard.models.beam_search import Hypothesis, beam_search
from regard.models.config import TransformerConfig
from regard.models.convolutional import ConvolutionalLM, ConvolutionalLMConfig, TextCNN, TextCNNConfig
from regard.models.decoder_lm import DecoderLM
from regard.models.encoder import (
    EncoderClassifier,
    EncoderConfig,
    EncoderForSpans,
    EncoderTagger,
    Hidden,
    MaskedLM,
    Spans,
    TextEncoder,
    hide_words,
)
from regard.models.encoder_decoder import EncoderDecoderConfig, Seq2Seq
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig
from regard.models.recurrent_classifier import RecurrentClassifier, RecurrentClassifierConfig
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMConfig
from regard.models.vision import CaptionModel, ImageEncoder, VisionClassifier, VisionConfig

__all__ = [
    "CaptionModel",
    "ConvolutionalLM",
    "ConvolutionalLMConfig",
    "DecoderLM",
    "EncoderClassifier",
    "EncoderConfig",
    "EncoderDecoderConfig",
    "EncoderForSpans",
    "EncoderTagger",
    "Hidden",
    "Hypothesis",
    "ImageEncoder",
    "MaskedLM",
    "RecurrentClassifier",
    "RecurrentClassifierConfig",
    "RecurrentEncoderDecoder",
    "RecurrentEncoderDecoderConfig",
    "RecurrentLM",
    "RecurrentLMConfig",
    "Seq2Seq",
    "Spans",
    "TextCNN",
    "TextCNNConfig",
    "TextEncoder",
    "TransformerConfig",
    "VisionClassifier",
    "VisionConfig",
    "beam_search",
    "hide_words",
]
