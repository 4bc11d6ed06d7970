"""Normalisation of features, by name."""

from __future__ import annotations

from typing import Literal

from torch import nn

from regard.errors import ConfigError, message, must_be

NormKind = Literal["layer", "rms"]


def make_norm(kind: NormKind, dim: int, *, eps: float = 1e-5, bias: bool = True) -> nn.Module:
    """Make a norm over the last axis.

        layer   y = (x − mean) / √(variance + eps) · weight + bias
        rms     y = x / √(mean of x² + eps) · weight

    Args:
        kind: "layer" or "rms".
        dim: Width of the features.
        eps: Keeps the root away from zero.
        bias: Whether a layer norm adds a bias.

    Raises:
        ConfigError: if the kind is not known.

    Source:
        Ba et al. 2016, arXiv:1607.06450; Zhang & Sennrich 2019, arXiv:1910.07467.
    """
    if kind == "layer":
        return nn.LayerNorm(dim, eps=eps, bias=bias)
    if kind == "rms":
        return nn.RMSNorm(dim, eps=eps)
    raise ConfigError(message("make_norm", must_be("kind", '"layer" or "rms"', repr(kind))))
