"""Attention as modules: the layers a Transformer is made of."""

from regard.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from regard.nn.position import ALiBi, Rotary, alibi_slopes

__all__ = ["ALiBi", "MultiHeadAttention", "Rotary", "ScaledDotProductAttention", "alibi_slopes"]
