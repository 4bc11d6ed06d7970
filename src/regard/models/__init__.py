"""Whole models, one family per file: recurrent and convolutional ones, to compare the Transformer with."""

from regard.models.beam_search import Hypothesis, beam_search
from regard.models.convolutional import ConvolutionalLM, ConvolutionalLMConfig, TextCNN, TextCNNConfig
from regard.models.recurrent import RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig
from regard.models.recurrent_classifier import RecurrentClassifier, RecurrentClassifierConfig
from regard.models.recurrent_lm import RecurrentLM, RecurrentLMConfig

__all__ = [
    "ConvolutionalLM",
    "ConvolutionalLMConfig",
    "Hypothesis",
    "RecurrentClassifier",
    "RecurrentClassifierConfig",
    "RecurrentEncoderDecoder",
    "RecurrentEncoderDecoderConfig",
    "RecurrentLM",
    "RecurrentLMConfig",
    "TextCNN",
    "TextCNNConfig",
    "beam_search",
]
