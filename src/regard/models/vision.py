"""Images as sequences of patches: a class for an image, or words about it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ShapeError, all_problems, message, must_be
from regard.models.config import TransformerConfig, decoder_stack, embedding, encoder_stack
from regard.models.configuration import need_config
from regard.models.padding import check_memory, real_tokens
from regard.models.reading import reading
from regard.nn import Dropout, KeyValueCache
from regard.nn.embedding import check_tokens
from regard.nn.inputs import check_floats


@dataclass(frozen=True, kw_only=True)
class VisionConfig(TransformerConfig):
    """Settings of a model of images; ``vocab_size`` and the ids are those of the captions, where there are any.

    Args:
        image_size: Height and width of the images, in pixels.
        patch_size: Height and width of a patch; must divide ``image_size``.
        num_channels: 1 for grey, 3 for colour.
        num_classes: What ``VisionClassifier`` tells apart.
        num_decoder_layers: Layers that write captions; ``num_layers`` by default.
    """

    vocab_size: int = 3
    image_size: int = 28
    patch_size: int = 4
    num_channels: int = 1
    num_classes: int = 10
    num_decoder_layers: int | None = None

    @property
    def grid(self) -> int:
        """Patches along one side."""
        return self.image_size // self.patch_size

    def more_sizes(self) -> tuple[str, ...]:
        """Other fields that must be at least 1, where they are not None."""
        own = ("image_size", "patch_size", "num_channels", "num_classes", "num_decoder_layers")
        return (*super().more_sizes(), *own)

    def problems(self) -> list[str]:
        """What cannot work, one sentence each."""
        found = super().problems()
        if self.patch_size >= 1 and self.image_size % self.patch_size:
            found.append(must_be("image_size", f"a multiple of patch_size ({self.patch_size})", self.image_size))
        return found


class ImageEncoder(nn.Module):
    """States of an image, one for each patch, each with all of the image in view.

        image ──► patches ──► linear ──► + position ──► layers ──► norm ──► states, row by row
                  ┌─┬─┬─┐                               ├─ x + self(norm(x))
                  ├─┼─┼─┤                               └─ x + feed_forward(norm(x))
                  └─┴─┴─┘

    Each place of the grid has a learned vector of its own.

    Args:
        config: The settings.

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, without its class token: the mean of the patches serves as well (Zhai
        et al. 2022, arXiv:2106.04560).
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        need_config("ImageEncoder", config, VisionConfig)
        self.config = config
        self.patches = nn.Conv2d(
            *(config.num_channels, config.embed_dim),
            kernel_size=config.patch_size,
            stride=config.patch_size,
            bias=config.bias,
        )
        self.places = nn.Parameter(torch.empty(config.grid**2, config.embed_dim))
        self.dropout = Dropout(config.dropout_p)
        self.encoder = encoder_stack(config, positions=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw anew what reads the patches: as a linear map of their pixels, and small vectors for their places."""
        inputs, outputs = self.patches.weight[0].numel(), self.config.embed_dim
        bound = (6 / (inputs + outputs)) ** 0.5  # Glorot's, of the map that the convolution is
        nn.init.uniform_(self.patches.weight, -bound, bound)
        if self.patches.bias is not None:
            nn.init.zeros_(self.patches.bias)
        nn.init.normal_(self.places, std=0.02)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches embed_dim"]:
        """Read.

        Args:
            images: Pixel values, best of mean 0 and variance 1.

        Raises:
            ShapeError: if the images are not of the size of the config.
            DTypeError: if they are of another dtype than the weights (pixels of 0 to 255 are floats first).
        """
        check_floats("ImageEncoder", "images", images, self.patches.weight)
        size = (self.config.num_channels, self.config.image_size, self.config.image_size)
        if images.dim() != 4 or tuple(images.shape[1:]) != size:
            expected = f"of shape [batch, {', '.join(str(side) for side in size)}]"
            problem = must_be("images", expected, f"of shape {tuple(images.shape)}")
            raise ShapeError(message("ImageEncoder", problem))
        x = self.patches(images).flatten(2).transpose(1, 2)
        states: Tensor = self.encoder(self.dropout(x + self.places))
        return states


class VisionClassifier(nn.Module):
    """A class of an image.

        image ──► ImageEncoder ──► mean of the patches ──► linear ──► logits of the classes

    Args:
        config: The settings; ``positions`` and ``window`` are for captions and stay as they are.

    Raises:
        ConfigError: if ``config`` is of another family, or asks for positions or a window that an image has not.

    Example:
        >>> import torch
        >>> from regard.models import VisionClassifier, VisionConfig
        >>> model = VisionClassifier(VisionConfig(embed_dim=32, num_layers=2, ff_dim=64))
        >>> model(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        need_config("VisionClassifier", config, VisionConfig)
        plain = VisionConfig()
        problems = [
            must_be(
                f"config.{name}", f"left at {default!r}, as places of an image have vectors of their own", repr(found)
            )
            for name in ("positions", "window")
            if (found := getattr(config, name)) != (default := getattr(plain, name))
        ]
        if problems:
            raise all_problems("VisionClassifier", problems)
        self.config = config
        self.image = ImageEncoder(config)
        self.classes = nn.Linear(config.embed_dim, config.num_classes, bias=config.bias)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch num_classes"]:
        """Classify; ``images`` as for ``ImageEncoder``."""
        logits: Tensor = self.classes(self.image(images).mean(dim=1))
        return logits


class CaptionModel(nn.Module):
    """Words about an image: a decoder that looks at the patches while it writes.

        image ──► ImageEncoder ──► patches ───────────────┐
                                                          ▼
        words so far ──► embedding ──► x + self, x + cross(patches), x + feed_forward ──► table ──► next word

    Args:
        config: The settings.

    Source:
        Xu et al. 2015, arXiv:1502.03044, with a Transformer in place of both networks.
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        need_config("CaptionModel", config, VisionConfig)
        self.config = config
        self.image = ImageEncoder(config)
        self.embedding = embedding(config, config.vocab_size)
        self.decoder = decoder_stack(config, num_layers=config.num_decoder_layers or config.num_layers, cross=True)

    def forward(
        self,
        images: Float[Tensor, "batch channels height width"],
        target: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Look at the image, and say at every position of the caption what comes next.

        Args:
            images: As for ``ImageEncoder``.
            target: Ids, beginning with ``config.bos_id``.
            keep: True for a real token; by default all that are not ``config.pad_id``.
        """
        return self.write(target, self.image(images), keep=keep)

    def write(
        self,
        target: Int[Tensor, "batch length"],
        memory: Float[Tensor, "batch patches embed_dim"] | None,
        *,
        keep: Bool[Tensor, "batch seen"] | None = None,
        kv_cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Say at every position of the caption what comes next.

        Args:
            target: Ids; with a cache only those it has not seen.
            memory: What ``image`` returned; with a cache needed once.
            keep: True for a real token, with a cache for those seen before, too; by default all that are not
                ``config.pad_id``, and of those seen before the ones that were real then.
            kv_cache: What the decoder has seen; it is filled.

        Raises:
            ShapeError, DTypeError, ConfigError: tokens, ``memory``, ``keep`` or the cache do not fit.
        """
        check_tokens("CaptionModel", "target", target, self.config.vocab_size)
        check_memory("CaptionModel.write", memory, target, self.embedding.table.weight, kv_cache)
        keep = real_tokens("CaptionModel", target, keep, self.config.pad_id, kv_cache=kv_cache)
        positions, mask, places = reading("CaptionModel", self.config, target, keep, kv_cache=kv_cache, writes=True)
        x = self.embedding(target, positions, check=False)
        x = self.decoder(x, memory, mask, kv_cache=kv_cache, places=places)
        if kv_cache is not None:
            kv_cache.keep = keep
        return nn.functional.linear(x, self.embedding.table.weight)
