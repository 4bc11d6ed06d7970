"""What the Transformers of this package have in common: their settings, and the parts built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from regard.errors import must_be
from regard.models.configuration import check_config
from regard.nn import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    RelativeBias,
    Rotary,
    SinusoidalPositions,
    TokenEmbedding,
    make_norm,
)
from regard.nn.feed_forward import ACTIVATIONS
from regard.nn.norm import NormKind

PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Settings of a Transformer.

    Args:
        vocab_size: Number of tokens.
        embed_dim: Width of the states.
        num_heads: Query heads of every attention.
        num_kv_heads: Key and value heads within a sequence; ``num_heads`` by default.
        num_layers: Layers of a stack.
        ff_dim: Inner width of the feed-forward parts.
        max_len: Longest sequence, for learned positions; the others have no limit.
        positions: How order comes in; "none" leaves it out.
        window: Keys a query may see at most, its own included; None for all. For decoders.
        norm: "layer" or "rms".
        norm_first: Pre-norm, or post-norm as the paper had it.
        activation: "relu", "gelu" or "silu".
        gated: Whether the feed-forward parts are gated.
        bias: Whether linear maps and norms add a bias.
        dropout_p: Share dropped of embeddings and of what each part adds, in training.
        attention_dropout_p: Share of the attention weights dropped in training.
        pad_id: Fills rows up to the longest; None if there is no such token.
        bos_id: Begins a text.
        eos_id: Ends a text.

    Raises:
        ConfigError: listing every setting that cannot work.
    """

    vocab_size: int
    embed_dim: int = 256
    num_heads: int = 4
    num_kv_heads: int | None = None
    num_layers: int = 4
    ff_dim: int = 1024
    max_len: int = 512
    positions: PositionKind = "sinusoidal"
    window: int | None = None
    norm: NormKind = "layer"
    norm_first: bool = True
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    gated: bool = False
    bias: bool = True
    dropout_p: float = 0.1
    attention_dropout_p: float = 0.0
    pad_id: int | None = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        check_config(
            self,
            sizes=("vocab_size", "embed_dim", "num_heads", "num_layers", "ff_dim", "max_len", *self.more_sizes()),
            ids=("pad_id", "bos_id", "eos_id"),
            shares=("dropout_p", "attention_dropout_p"),
            choices={
                "positions": get_args(PositionKind),
                "norm": get_args(NormKind),
                "activation": tuple(ACTIVATIONS),
                **self.choices(),
            },
            more=self.problems,
        )

    def more_sizes(self) -> tuple[str, ...]:
        """Other fields that must be at least 1, where they are not None."""
        return ("num_kv_heads", "window")

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Other fields that are one of some words."""
        return {}

    def problems(self) -> list[str]:
        """What cannot work in one field because of another, one sentence each."""
        found = []
        heads = self.num_heads
        kv_heads = heads if self.num_kv_heads is None else self.num_kv_heads
        if heads >= 1 and self.embed_dim % heads:
            found.append(must_be("embed_dim", f"a multiple of num_heads ({heads})", self.embed_dim))
        elif heads >= 1 and self.positions == "rotary" and self.embed_dim // heads % 2:
            found.append(must_be("embed_dim / num_heads", "even for rotary positions", self.embed_dim // heads))
        if kv_heads >= 1 and heads % kv_heads:
            found.append(must_be("num_heads", f"a multiple of num_kv_heads ({kv_heads})", heads))
        return found


def embedding(config: TransformerConfig, vocab_size: int) -> TokenEmbedding:
    """Token vectors, with positions where they are absolute."""
    positions: SinusoidalPositions | LearnedPositions | None = None
    if config.positions == "sinusoidal":
        positions = SinusoidalPositions(config.embed_dim)
    elif config.positions == "learned":
        positions = LearnedPositions(config.max_len, config.embed_dim)
    scaled = config.positions != "learned"
    return TokenEmbedding(vocab_size, config.embed_dim, positions=positions, scaled=scaled, dropout_p=config.dropout_p)


def self_attention(config: TransformerConfig, *, bidirectional: bool) -> MultiHeadAttention:
    """Attention within a sequence, with the positions that attention itself knows."""
    positions: Rotary | ALiBi | RelativeBias | None = None
    if config.positions == "rotary":
        positions = Rotary(config.embed_dim // config.num_heads)
    elif config.positions == "alibi":
        positions = ALiBi(config.num_heads)
    elif config.positions == "relative":
        positions = RelativeBias(config.num_heads, bidirectional=bidirectional)
    return _attention(config, positions)


def plain_attention(config: TransformerConfig) -> MultiHeadAttention:
    """Attention without positions: to another sequence, or where positions are in the states already."""
    return _attention(config, None)


def _attention(config: TransformerConfig, positions: Rotary | ALiBi | RelativeBias | None) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.embed_dim,
        config.num_heads,
        num_kv_heads=config.num_kv_heads,
        bias=config.bias,
        positions=positions,
        dropout_p=config.attention_dropout_p,
    )


def feed_forward(config: TransformerConfig) -> FeedForward:
    """The part that works on every position by itself."""
    return FeedForward(
        config.embed_dim,
        config.ff_dim,
        activation=config.activation,
        gated=config.gated,
        bias=config.bias,
        dropout_p=config.dropout_p,
    )


def encoder_stack(config: TransformerConfig, *, positions: bool = True) -> Encoder:
    """``num_layers`` layers that read; without ``positions`` where they are in the states already."""
    layers = [
        EncoderLayer(
            self_attention(config, bidirectional=True) if positions else plain_attention(config),
            feed_forward(config),
            **_layer_options(config),
        )
        for _ in range(config.num_layers)
    ]
    return Encoder(layers, norm=_last_norm(config))


def decoder_stack(config: TransformerConfig, *, num_layers: int, cross: bool) -> Decoder:
    """Layers that write, with attention to a source where there is one."""
    layers = [
        DecoderLayer(
            self_attention(config, bidirectional=False),
            feed_forward(config),
            cross=plain_attention(config) if cross else None,
            **_layer_options(config),
        )
        for _ in range(num_layers)
    ]
    return Decoder(layers, norm=_last_norm(config))


def _layer_options(config: TransformerConfig) -> dict[str, Any]:
    """How a layer joins its parts."""
    return {"norm": config.norm, "norm_first": config.norm_first, "dropout_p": config.dropout_p}


def _last_norm(config: TransformerConfig) -> nn.Module | None:
    """What ends a stack of pre-norm layers; post-norm layers end in one already."""
    return make_norm(config.norm, config.embed_dim, bias=config.bias) if config.norm_first else None
