"""Attention as modules, and the layers and stacks that Transformers are made of."""

from regard.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from regard.nn.block import DecoderLayer, EncoderLayer
from regard.nn.cache import CachedKeys, KeyValueCache, LayerCache
from regard.nn.decoder import Decoder, EncoderDecoder
from regard.nn.dropout import Dropout, dropout
from regard.nn.embedding import TokenEmbedding
from regard.nn.encoder import Encoder
from regard.nn.feed_forward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.position import LearnedPositions, SinusoidalPositions
from regard.nn.position_bias import ALiBi, RelativeBias, alibi_slopes
from regard.nn.rotary import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling
from regard.nn.steps import Steps, steps
from regard.nn.textbook import SelfAttention, ValuesKeysQueryAttention, from_textbook
from regard.nn.torch_modules import from_torch

__all__ = [
    "ALiBi",
    "CachedKeys",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "DynamicScaling",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "FeedForward",
    "KeyValueCache",
    "LayerCache",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "MultiHeadAttention",
    "RelativeBias",
    "Rotary",
    "ScaledDotProductAttention",
    "SelfAttention",
    "SinusoidalPositions",
    "Steps",
    "TokenEmbedding",
    "ValuesKeysQueryAttention",
    "YarnScaling",
    "alibi_slopes",
    "dropout",
    "from_textbook",
    "from_torch",
    "make_norm",
    "steps",
]
