"""An encoder by itself: reads a text both ways, for classes, spans, or words that were hidden (BERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.models.config import TransformerConfig, embedding, encoder_stack
from regard.models.configuration import need_config
from regard.models.padding import real_tokens
from regard.models.reading import reading
from regard.nn import make_norm
from regard.nn.embedding import check_tokens
from regard.nn.inputs import check_keep
from regard.nn.options import share_problems

Pooling = Literal["mean", "max", "first"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """Settings of an encoder.

    Args:
        num_segments: Parts a text may have (2 for question and passage); 0 for none to tell apart.
        num_classes: What ``EncoderClassifier`` and ``EncoderTagger`` tell apart.
        pooling: What stands for the whole text: the "mean" of its real tokens, the highest of each feature among them
            ("max"), or its "first" token.
        mask_id: What ``hide_words`` puts in place of a hidden word; None without masked-word training.
    """

    num_segments: int = 0
    num_classes: int = 2
    pooling: Pooling = "mean"
    mask_id: int | None = None

    def more_sizes(self) -> tuple[str, ...]:
        """Other fields that must be at least 1."""
        return (*super().more_sizes(), "num_classes")

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Other fields that are one of some words."""
        return {**super().choices(), "pooling": get_args(Pooling)}

    def problems(self) -> list[str]:
        """What cannot work, one sentence each."""
        found = super().problems()
        if self.window is not None:
            found.append(must_be("window", "None for an encoder", self.window))
        if self.num_segments < 0:
            found.append(must_be("num_segments", "at least 0", self.num_segments))
        if self.mask_id is None:
            return found
        if not 0 <= self.mask_id < self.vocab_size:
            found.append(must_be("mask_id", f"an id of the vocabulary (0 to {self.vocab_size - 1})", self.mask_id))
        return found + [
            must_be("mask_id", f"another id than `{name}`", self.mask_id)
            for name in ("pad_id", "bos_id", "eos_id")
            if self.mask_id == getattr(self, name)
        ]


class TextEncoder(nn.Module):
    """States of a text, each with all of the text in view.

        tokens ──► embedding ──► layer 1 ──► … ──► layer n ──► norm ──► states
                   + position     ├─ x + self(norm(x))           all of the text
                   + segment      └─ x + feed_forward(norm(x))

    Args:
        config: The settings.

    Source:
        Devlin et al. 2019, arXiv:1810.04805.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        need_config("TextEncoder", config, EncoderConfig)
        self.config = config
        self.embedding = embedding(config, config.vocab_size)
        self.segments = nn.Embedding(config.num_segments, config.embed_dim) if config.num_segments else None
        self.encoder = encoder_stack(config)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors of the segments anew."""
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=0.02)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length embed_dim"]:
        """Read.

        Args:
            tokens: Ids.
            keep: True for a real token; by default all that are not ``config.pad_id``.
            segments: The part each token belongs to, for a config with ``num_segments``.

        Raises:
            ShapeError, DTypeError, ConfigError: tokens, ``keep`` or ``segments`` do not fit.
        """
        check_tokens("TextEncoder", "tokens", tokens, self.config.vocab_size)
        keep = real_tokens("TextEncoder", tokens, keep, self.config.pad_id)
        positions, mask, places = reading("TextEncoder", self.config, tokens, keep)
        x = self.embedding(tokens, positions, check=False)
        if segments is not None:
            x = x + self._segments(tokens, segments)
        states: Tensor = self.encoder(x, mask, places=places)
        return states

    def _segments(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """The vectors of the parts that tokens belong to."""
        if self.segments is None:
            problem = must_be("segments", "None, as config.num_segments is 0", "given")
            raise ConfigError(message("TextEncoder", problem))
        check_tokens("TextEncoder", "segments", segments, self.config.num_segments)
        if segments.shape != tokens.shape:
            problem = must_be("segments", f"of shape {tuple(tokens.shape)}", f"of shape {tuple(segments.shape)}")
            raise ShapeError(message("TextEncoder", problem))
        vectors: Tensor = self.segments(segments)
        return vectors


class EncoderClassifier(nn.Module):
    """A class of a text: sentiment, topic, whether one sentence follows from another.

        tokens ──► TextEncoder ──► mean of the real tokens, or the first ──► linear ──► logits of the classes

    Args:
        config: The settings.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        need_config("EncoderClassifier", config, EncoderConfig)
        self.config = config
        self.text = TextEncoder(config)
        self.classes = nn.Linear(config.embed_dim, config.num_classes, bias=config.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch num_classes"]:
        """Classify; arguments as for ``TextEncoder``. An empty text has the bias for logits, or zeros without one."""
        check_tokens("EncoderClassifier", "tokens", tokens, self.config.vocab_size)
        keep = real_tokens("EncoderClassifier", tokens, keep, self.config.pad_id)
        states = self.text(tokens, keep=keep, segments=segments)
        logits: Tensor = self.classes(pool(states, keep, self.config.pooling))
        return logits


class Spans(NamedTuple):
    """Where an answer may begin and end.

    Args:
        start: Logits of the first token; −inf at padding.
        end: Logits of the last token; −inf at padding.
    """

    start: Float[Tensor, "batch length"]
    end: Float[Tensor, "batch length"]


class EncoderForSpans(nn.Module):
    """Where in a text an answer stands: extractive question answering.

        question, passage ──► TextEncoder ──► linear ──► logits of every token to be the first, and the last

    Args:
        config: The settings; ``num_segments=2`` tells question and passage apart.

    Source:
        Devlin et al. 2019, section 4.2.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        need_config("EncoderForSpans", config, EncoderConfig)
        self.config = config
        self.text = TextEncoder(config)
        self.ends = nn.Linear(config.embed_dim, 2, bias=config.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Spans:
        """Find; arguments as for ``TextEncoder``."""
        check_tokens("EncoderForSpans", "tokens", tokens, self.config.vocab_size)
        keep = real_tokens("EncoderForSpans", tokens, keep, self.config.pad_id)
        ends = self.ends(self.text(tokens, keep=keep, segments=segments))
        if keep is not None:
            ends = ends.masked_fill(~keep[..., None], -torch.inf)
        return Spans(ends[..., 0], ends[..., 1])


class EncoderTagger(nn.Module):
    """A class of every token of a text: names, parts of speech, sentences that matter.

        tokens ──► TextEncoder ──► linear ──► logits of the classes of every token

    Args:
        config: The settings.

    Source:
        Devlin et al. 2019, section 5.3.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        need_config("EncoderTagger", config, EncoderConfig)
        self.config = config
        self.text = TextEncoder(config)
        self.classes = nn.Linear(config.embed_dim, config.num_classes, bias=config.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length num_classes"]:
        """Classify; arguments as for ``TextEncoder``. What is said of padding means nothing."""
        check_tokens("EncoderTagger", "tokens", tokens, self.config.vocab_size)
        logits: Tensor = self.classes(self.text(tokens, keep=keep, segments=segments))
        return logits


class MaskedLM(nn.Module):
    """Hidden words from the words around them: how an encoder learns from text without labels.

        tokens, some hidden ──► TextEncoder ──► linear, activation, norm ──► table ──► logits of the word at every place

    Args:
        config: The settings; ``mask_id`` stands for a hidden word.

    Source:
        Devlin et al. 2019, section 3.1.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        need_config("MaskedLM", config, EncoderConfig)
        self.config = config
        self.text = TextEncoder(config)
        self.transform = nn.Sequential(
            nn.Linear(config.embed_dim, config.embed_dim, bias=config.bias),
            _ACTIVATIONS[config.activation](),
            make_norm(config.norm, config.embed_dim, bias=config.bias),
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.bias else None

    def reset_parameters(self) -> None:
        """Set the bias of the vocabulary back to zero."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Say what stands at every place; arguments as for ``TextEncoder``."""
        check_tokens("MaskedLM", "tokens", tokens, self.config.vocab_size)
        states = self.transform(self.text(tokens, keep=keep, segments=segments))
        return nn.functional.linear(states, self.text.embedding.table.weight, self.bias)


class Hidden(NamedTuple):
    """A text with some words hidden.

    Args:
        tokens: The text that the model reads.
        labels: The word where one is to be found, −100 elsewhere (what ``cross_entropy`` ignores).
    """

    tokens: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch length"]


def hide_words(
    tokens: Int[Tensor, "batch length"],
    config: EncoderConfig,
    *,
    share: float = 0.15,
    may_hide: Bool[Tensor, "batch length"] | None = None,
    generator: torch.Generator | None = None,
) -> Hidden:
    """Choose words for a ``MaskedLM`` to find.

    Of the chosen, 80 % become ``config.mask_id``, 10 % a random token and 10 % stay: at reading, no token is masked,
    and the model must not learn that what it sees is always right or always wrong.

    Args:
        tokens: The text.
        config: Of the model.
        share: Of the tokens to choose.
        may_hide: Which tokens may be chosen; by default all but the special tokens of the config.
        generator: Draws; torch's own by default.

    Raises:
        ConfigError: if ``config.mask_id`` is None, ``share`` is not between 0 and 1, or an id is not in the vocabulary.
        ShapeError, DTypeError: if ``tokens`` are no [batch, length] of ids, or ``may_hide`` does not fit them.

    Source:
        Devlin et al. 2019, section 3.1.
    """
    need_config("hide_words", config, EncoderConfig)
    if config.mask_id is None:
        raise ConfigError(message("hide_words", must_be("config.mask_id", "the id of the mask token", None)))
    if wrong := share_problems({"share": share}):
        raise ConfigError(message("hide_words", wrong[0]))
    check_tokens("hide_words", "tokens", tokens, config.vocab_size)
    if may_hide is not None:
        check_keep("hide_words", "may_hide", may_hide, tuple(tokens.shape))
    else:
        may_hide = torch.ones_like(tokens, dtype=torch.bool)
        for special in (config.pad_id, config.bos_id, config.eos_id, config.mask_id):
            may_hide = may_hide if special is None else may_hide & (tokens != special)
    draws = torch.rand(2, *tokens.shape, generator=generator, device=tokens.device)
    chosen = may_hide & (draws[0] < share)
    anything = torch.randint(config.vocab_size, tokens.shape, generator=generator, device=tokens.device)
    shown = torch.where(chosen & (draws[1] < 0.8), config.mask_id, tokens)
    shown = torch.where(chosen & (draws[1] >= 0.9), anything, shown)
    return Hidden(shown, torch.where(chosen, tokens, -100))


def pool(
    states: Float[Tensor, "batch length embed_dim"],
    keep: Bool[Tensor, "batch length"] | None,
    pooling: Pooling,
) -> Float[Tensor, "batch embed_dim"]:
    """One vector for a text: the mean or the highest of its real tokens, or its first real token; zeros without any."""
    if pooling == "max":
        if states.shape[1] == 0:
            return states.sum(dim=1)
        if keep is None:
            return states.amax(dim=1)
        highest = states.masked_fill(~keep[..., None], -torch.inf).amax(dim=1)
        return highest.masked_fill(~keep.any(dim=1, keepdim=True), 0)
    if keep is None:
        return states.mean(dim=1) if pooling == "mean" else states[:, 0]
    real = keep[..., None].to(states.dtype)
    if pooling == "first":
        real = real * (keep.cumsum(dim=1) == 1)[..., None]
    return (states.masked_fill(~keep[..., None], 0) * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
