"""Attention as modules, and the recurrent and convolutional layers it is compared with."""

from regard.nn.additive import AdditiveAttention, DotAttention
from regard.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from regard.nn.convolutional import CausalBlock, CausalConvolution, TextBlock
from regard.nn.position import ALiBi, Rotary, alibi_slopes
from regard.nn.recurrent import RecurrentEncoder
from regard.nn.recurrent_decoder import AttentionDecoder

__all__ = [
    "ALiBi",
    "AdditiveAttention",
    "AttentionDecoder",
    "CausalBlock",
    "CausalConvolution",
    "DotAttention",
    "MultiHeadAttention",
    "RecurrentEncoder",
    "Rotary",
    "ScaledDotProductAttention",
    "TextBlock",
    "alibi_slopes",
]
