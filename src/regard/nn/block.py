"""Layers of a Transformer: attention and a feed-forward part, each added to what came in."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, message, must_be
from regard.nn.attention import MultiHeadAttention
from regard.nn.cache import LayerCache
from regard.nn.dropout import Dropout
from regard.nn.feed_forward import FeedForward
from regard.nn.inputs import check_sequence
from regard.nn.norm import NormKind, make_norm
from regard.nn.options import check_options
from regard.nn.places import Places
from regard.ops import Mask


class _Layer(nn.Module):
    """What both kinds of layer share: norms around parts that are added to their input.

    pre-norm    x + dropout(part(norm(x)))
    post-norm   norm(x + dropout(part(x)))
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        norm: NormKind,
        norm_eps: float,
        norm_first: bool,
        dropout_p: float,
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        known = [] if norm in get_args(NormKind) else [must_be("norm", '"layer" or "rms"', repr(norm))]
        check_options(caller, {}, shares={"dropout_p": dropout_p}, more=known)
        d_model, bias = attention.query.in_features, attention.query.bias is not None
        if feed_forward.wide.in_features != d_model:
            expected = f"of the width of the attention ({d_model})"
            raise ConfigError(message(caller, must_be("feed_forward", expected, feed_forward.wide.in_features)))
        self.norm_first = norm_first
        self.self = attention
        self.self_norm = make_norm(norm, d_model, eps=norm_eps, bias=bias)
        self.feed_forward = feed_forward
        self.feed_forward_norm = make_norm(norm, d_model, eps=norm_eps, bias=bias)
        self.dropout = Dropout(dropout_p)

    def _check(self, x: Tensor) -> None:
        query = self.self.query
        check_sequence(type(self).__name__, "x", x, query.in_features, query.weight)

    def _add(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            output: Tensor = x + self.dropout(part(norm(x)))
        else:
            output = norm(x + self.dropout(part(x)))
        return output


class EncoderLayer(_Layer):
    """A layer that reads a sequence: every position attends to all that its mask allows.

        x = x + self(norm(x)),   x = x + feed_forward(norm(x))              (post-norm: norm(x + self(x)), …)

    Args:
        attention: Attends within the sequence.
        feed_forward: Of the same width.
        norm: "layer" or "rms".
        norm_eps: Keeps its root away from zero.
        norm_first: Pre-norm (True) or post-norm, as the paper had it.
        dropout_p: Share of each part's output dropped in training.

    Raises:
        ConfigError: if the widths differ, or an option is not known.

    Source:
        Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020, arXiv:2002.04745.

    Example:
        >>> import torch
        >>> from regard.nn import EncoderLayer, FeedForward, MultiHeadAttention
        >>> layer = EncoderLayer(MultiHeadAttention(64, 4), FeedForward(64, 256))
        >>> layer(torch.randn(2, 7, 64)).shape
        torch.Size([2, 7, 64])
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        norm: NormKind = "layer",
        norm_eps: float = 1e-5,
        norm_first: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(
            attention, feed_forward, norm=norm, norm_eps=norm_eps, norm_first=norm_first, dropout_p=dropout_p
        )

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | Tensor | None = None,
        *,
        places: Places | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Read.

        Args:
            x: The sequence.
            mask: As for ``MultiHeadAttention``.
            places: As for ``MultiHeadAttention``.

        Raises:
            ShapeError: if the width is not that of the layer.
        """
        self._check(x)
        x = self._add(x, self.self_norm, lambda h: self.self(h, mask=mask, places=places))
        return self._add(x, self.feed_forward_norm, self.feed_forward)


class DecoderLayer(_Layer):
    """A layer that writes a sequence: it attends to what is written so far and, where there is one, to a source.

        x = x + self(norm(x)),   x = x + cross(norm(x), memory),   x = x + feed_forward(norm(x))

    What is written later is hidden by ``mask=Causal()``, which is not added by itself.

    Args:
        attention: Attends within the sequence.
        feed_forward: Of the same width.
        cross: Attends to the source; None for a decoder by itself (GPT).
        norm: "layer" or "rms".
        norm_eps: Keeps its root away from zero.
        norm_first: Pre-norm (True) or post-norm.
        dropout_p: Share of each part's output dropped in training.

    Raises:
        ConfigError: if the widths differ, or an option is not known.

    Source:
        Vaswani et al. 2017, section 3.1.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        cross: MultiHeadAttention | None = None,
        norm: NormKind = "layer",
        norm_eps: float = 1e-5,
        norm_first: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__(
            attention, feed_forward, norm=norm, norm_eps=norm_eps, norm_first=norm_first, dropout_p=dropout_p
        )
        self.cross = cross
        self.cross_norm: nn.Module | None = None
        if cross is not None:
            d_model = attention.query.in_features
            if cross.positions is not None:
                found = f"with {type(cross.positions).__name__}"
                raise ConfigError(message("DecoderLayer", must_be("cross", "an attention without positions", found)))
            if cross.query.in_features != d_model:
                expected = f"of the width of the attention ({d_model})"
                raise ConfigError(message("DecoderLayer", must_be("cross", expected, cross.query.in_features)))
            self.cross_norm = make_norm(norm, d_model, eps=norm_eps, bias=attention.query.bias is not None)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        memory: Float[Tensor, "batch source_len kv_dim"] | None = None,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        *,
        kv_cache: LayerCache | None = None,
        memory_cache: LayerCache | None = None,
        places: Places | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Write.

        Args:
            x: The sequence, or with a cache its new part.
            memory: The source as its encoder left it; None without ``cross``, or when ``memory_cache`` holds it.
            mask: For the attention within the sequence, as for ``MultiHeadAttention``: usually ``Causal()``.
            memory_mask: For the attention to the source: usually ``Padding(keep)`` of the source.
            kv_cache: What the attention within the sequence has kept.
            memory_cache: What the attention to the source has kept.
            places: Where the tokens stand, as for ``MultiHeadAttention``.

        Raises:
            ShapeError: if the width is not that of the layer.
            ConfigError: if there is a ``memory`` and no ``cross``, or the reverse.
        """
        self._check(x)
        cross, cross_norm = self.cross, self.cross_norm
        # before anything is appended to a cache
        if cross is not None and memory is None and (memory_cache is None or memory_cache.source is None):
            raise ConfigError(message("DecoderLayer", must_be("memory", "given, as the layer has `cross`", None)))
        if cross is None and memory is not None:
            problem = must_be("memory", "None, as the layer has no `cross`", f"of shape {tuple(memory.shape)}")
            raise ConfigError(message("DecoderLayer", problem))
        x = self._add(x, self.self_norm, lambda h: self.self(h, mask=mask, kv_cache=kv_cache, places=places))
        if cross is not None and cross_norm is not None:
            x = self._add(x, cross_norm, lambda h: cross(h, memory, mask=memory_mask, kv_cache=memory_cache))
        return self._add(x, self.feed_forward_norm, self.feed_forward)
