"""The Transformers as a person writes them with nn.Transformer, with the parameters of ours: cases of ``models.py``."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from regard.models import (
    CaptionModel,
    DecoderLM,
    EncoderClassifier,
    EncoderConfig,
    EncoderDecoderConfig,
    Seq2Seq,
    TransformerConfig,
    VisionClassifier,
    VisionConfig,
)
from regard.nn import Dropout, SinusoidalPositions, from_torch

warnings.filterwarnings("ignore", message="enable_nested_tensor is True")


def layer_options(config: TransformerConfig) -> dict[str, Any]:
    """The settings of a layer in torch's words."""
    return {
        "d_model": config.embed_dim,
        "nhead": config.num_heads,
        "dim_feedforward": config.ff_dim,
        "dropout": config.dropout_p,
        "activation": config.activation,
        "batch_first": True,
        "norm_first": True,
    }


def encoder(config: TransformerConfig) -> nn.TransformerEncoder:
    """A stack that reads, attention dropout off as in ours."""
    layer = nn.TransformerEncoderLayer(**layer_options(config))
    return without_attention_dropout(
        nn.TransformerEncoder(layer, config.num_layers, norm=nn.LayerNorm(config.embed_dim))
    )


def decoder(config: TransformerConfig) -> nn.TransformerDecoder:
    """A stack that writes."""
    layer = nn.TransformerDecoderLayer(**layer_options(config))
    return without_attention_dropout(
        nn.TransformerDecoder(layer, config.num_layers, norm=nn.LayerNorm(config.embed_dim))
    )


def without_attention_dropout(stack: Any) -> Any:
    """With it torch's attention would take its slow path."""
    for module in stack.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return stack


def positions(length: int, dim: int) -> Tensor:
    """The sinusoids, as a buffer."""
    return SinusoidalPositions(dim)(torch.zeros(1, length, dim))[0]


class PlainText(nn.Module):
    """Embedding, sinusoids and dropout, and the same table for the logits."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.scale, self.dropout = ours.scale, nn.Dropout(ours.dropout.p)
        self.table = nn.Embedding.from_pretrained(ours.table.weight.detach().clone(), freeze=False)
        self.register_buffer("positions", positions(512, ours.table.embedding_dim), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens."""
        return self.dropout(self.table(tokens) * self.scale + self.positions[: tokens.shape[1]])


def hidden(length: int) -> Tensor:
    """What a writer may not see, as torch wants it."""
    return nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.bool)


class PlainDecoderLM(nn.Module):
    """nn.TransformerEncoder with a causal mask."""

    def __init__(self, ours: DecoderLM) -> None:
        super().__init__()
        self.text, self.stack = PlainText(ours.embedding), encoder(ours.config)
        ours.decoder.load_state_dict(from_torch(self.stack).state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.stack(self.text(tokens), mask=hidden(tokens.shape[1]), is_causal=True)
        return nn.functional.linear(x, self.text.table.weight)


class PlainSeq2Seq(nn.Module):
    """nn.TransformerEncoder and nn.TransformerDecoder."""

    def __init__(self, ours: Seq2Seq) -> None:
        super().__init__()
        self.text, self.encoder, self.decoder = PlainText(ours.embedding), encoder(ours.config), decoder(ours.config)
        ours.encoder.load_state_dict(from_torch(self.encoder).state_dict())
        ours.decoder.load_state_dict(from_torch(self.decoder).state_dict())

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits."""
        pad = source == 0
        memory = self.encoder(self.text(source), src_key_padding_mask=pad)
        causal = {"tgt_mask": hidden(target.shape[1]), "tgt_is_causal": True}
        x = self.decoder(self.text(target), memory, memory_key_padding_mask=pad, **causal)
        return nn.functional.linear(x, self.text.table.weight)


class PlainClassifier(nn.Module):
    """nn.TransformerEncoder and the mean of the real tokens."""

    def __init__(self, ours: EncoderClassifier) -> None:
        super().__init__()
        self.text, self.stack = PlainText(ours.text.embedding), encoder(ours.config)
        ours.text.encoder.load_state_dict(from_torch(self.stack).state_dict())
        self.classes = nn.Linear(ours.config.embed_dim, ours.config.num_classes)
        self.classes.load_state_dict(ours.classes.state_dict())

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        keep = tokens != 0
        x = self.stack(self.text(tokens), src_key_padding_mask=~keep)
        return self.classes((x * keep[..., None]).sum(dim=1) / keep.sum(dim=1, keepdim=True))


class PlainImage(nn.Module):
    """Patches by nn.Conv2d, learned places, nn.TransformerEncoder."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        config = ours.config
        self.patches = nn.Conv2d(config.num_channels, config.embed_dim, config.patch_size, stride=config.patch_size)
        self.patches.load_state_dict(ours.patches.state_dict())
        self.places, self.dropout = nn.Parameter(ours.places.detach().clone()), nn.Dropout(config.dropout_p)
        self.stack = encoder(config)
        ours.encoder.load_state_dict(from_torch(self.stack).state_dict())

    def forward(self, images: Tensor) -> Tensor:
        """States of the patches."""
        return self.stack(self.dropout(self.patches(images).flatten(2).transpose(1, 2) + self.places))


class PlainVision(nn.Module):
    """The mean of the patches."""

    def __init__(self, ours: VisionClassifier) -> None:
        super().__init__()
        self.image = PlainImage(ours.image)
        self.classes = nn.Linear(ours.config.embed_dim, ours.config.num_classes)
        self.classes.load_state_dict(ours.classes.state_dict())

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return self.classes(self.image(images).mean(dim=1))


class PlainCaptions(nn.Module):
    """nn.TransformerDecoder over patches."""

    def __init__(self, ours: CaptionModel) -> None:
        super().__init__()
        self.image, self.text, self.stack = PlainImage(ours.image), PlainText(ours.embedding), decoder(ours.config)
        ours.decoder.load_state_dict(from_torch(self.stack).state_dict())

    def forward(self, images: Tensor, target: Tensor) -> Tensor:
        """Logits."""
        causal = {"tgt_mask": hidden(target.shape[1]), "tgt_is_causal": True}
        x = self.stack(self.text(target), self.image(images), **causal)
        return nn.functional.linear(x, self.text.table.weight)


def with_dropout(*models: nn.Module, p: float) -> None:
    """Switch on what was off while both sides were compared."""
    for model in models:
        for module in model.modules():
            if isinstance(module, Dropout | nn.Dropout):
                module.p = p


def translation(vocabulary: int) -> tuple[nn.Module, nn.Module]:
    """3 + 3 layers, 256 wide."""
    config = EncoderDecoderConfig(vocab_size=vocabulary, embed_dim=256, num_heads=8, num_layers=3, dropout_p=0.0)
    ours = Seq2Seq(config)
    return ours, PlainSeq2Seq(ours)


def language_model(vocabulary: int) -> tuple[nn.Module, nn.Module]:
    """4 layers, 192 wide."""
    config = TransformerConfig(
        vocab_size=vocabulary, embed_dim=192, num_heads=6, num_layers=4, ff_dim=768, dropout_p=0.0, pad_id=None
    )
    ours = DecoderLM(config)
    return ours, PlainDecoderLM(ours)


def classifier(vocabulary: int) -> tuple[nn.Module, nn.Module]:
    """2 layers, 128 wide."""
    config = EncoderConfig(vocab_size=vocabulary, embed_dim=128, num_layers=2, ff_dim=512, dropout_p=0.0)
    ours = EncoderClassifier(config)
    return ours, PlainClassifier(ours)


def vision(_: int) -> tuple[nn.Module, nn.Module]:
    """4 layers, 96 wide, 49 patches."""
    ours = VisionClassifier(VisionConfig(embed_dim=96, num_layers=4, ff_dim=192, dropout_p=0.0))
    return ours, PlainVision(ours)


def captions(vocabulary: int) -> tuple[nn.Module, nn.Module]:
    """2 + 2 layers, 128 wide, 49 patches."""
    ours = CaptionModel(VisionConfig(vocab_size=vocabulary, embed_dim=128, num_layers=2, ff_dim=512, dropout_p=0.0))
    return ours, PlainCaptions(ours)
