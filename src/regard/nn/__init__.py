"""Attention as modules, the layers that Transformers are made of, and those they replaced."""

from regard.nn.additive import AdditiveAttention, DotAttention
from regard.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from regard.nn.block import DecoderLayer, EncoderLayer
from regard.nn.cache import CachedKeys, KeyValueCache, LayerCache
from regard.nn.convolutional import CausalBlock, CausalConvolution, TextBlock
from regard.nn.decoder import Decoder, EncoderDecoder
from regard.nn.dropout import Dropout, dropout
from regard.nn.embedding import TokenEmbedding
from regard.nn.encoder import Encoder
from regard.nn.feed_forward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.places import Places
from regard.nn.position import LearnedPositions, SinusoidalPositions
from regard.nn.position_bias import ALiBi, RelativeBias, alibi_slopes
from regard.nn.recurrent import RecurrentEncoder
from regard.nn.recurrent_decoder import AttentionDecoder
from regard.nn.rotary import DynamicScaling, LinearScaling, Llama3Scaling, Rotary, YarnScaling
from regard.nn.steps import Steps, steps
from regard.nn.textbook import SelfAttention, ValuesKeysQueryAttention, from_textbook
from regard.nn.torch_modules import from_torch

__all__ = [
    "ALiBi",
    "AdditiveAttention",
    "AttentionDecoder",
    "CachedKeys",
    "CausalBlock",
    "CausalConvolution",
    "Decoder",
    "DecoderLayer",
    "DotAttention",
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
    "Places",
    "RecurrentEncoder",
    "RelativeBias",
    "Rotary",
    "ScaledDotProductAttention",
    "SelfAttention",
    "SinusoidalPositions",
    "Steps",
    "TextBlock",
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
