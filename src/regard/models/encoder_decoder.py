"""The Transformer: reads a source, and writes a target with the source in view."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import must_be
from regard.models.config import TransformerConfig, decoder_stack, embedding, encoder_stack
from regard.models.configuration import need_config
from regard.models.padding import check_memory, is_all_real, real_tokens
from regard.models.reading import reading
from regard.nn import KeyValueCache
from regard.nn.embedding import check_tokens
from regard.nn.inputs import check_keep
from regard.ops import Padding


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """Settings of an encoder–decoder; ``vocab_size`` is that of the target.

    Args:
        source_vocab_size: Number of source tokens; None if source and target share one vocabulary and one table.
        num_decoder_layers: Layers of the decoder; ``num_layers`` by default.
    """

    source_vocab_size: int | None = None
    num_decoder_layers: int | None = None

    def more_sizes(self) -> tuple[str, ...]:
        """Other fields that must be at least 1, where they are not None."""
        return (*super().more_sizes(), "source_vocab_size", "num_decoder_layers")

    def problems(self) -> list[str]:
        """What cannot work, one sentence each."""
        found = super().problems()
        if self.pad_id is not None and self.source_vocab_size is not None and self.pad_id >= self.source_vocab_size:
            found.append(must_be("pad_id", f"an id of the source too (below {self.source_vocab_size})", self.pad_id))
        return found


class Seq2Seq(nn.Module):
    """The Transformer as it was introduced: translation, summarisation, any text to any text.

        source ──► embedding ──► encoder layers ──► norm ──► memory
                   + position     ├─ x + self(norm(x))            all of the source
                                  └─ x + feed_forward(norm(x))      │
                                                                    ▼
        target ──► embedding ──► decoder layers ──► norm ──► table ──► logits of the next token
                   + position     ├─ x + self(norm(x))            the target so far
                                  ├─ x + cross(norm(x), memory)   all of the source
                                  └─ x + feed_forward(norm(x))

    Args:
        config: The settings.

    Source:
        Vaswani et al. 2017, "Attention Is All You Need", figure 1; pre-norm: Xiong et al. 2020, arXiv:2002.04745.

    Example:
        >>> import torch
        >>> from regard.models import EncoderDecoderConfig, Seq2Seq
        >>> model = Seq2Seq(EncoderDecoderConfig(vocab_size=90, source_vocab_size=80, embed_dim=32, num_layers=2))
        >>> model(torch.randint(3, 80, (2, 9)), torch.randint(3, 90, (2, 7))).shape
        torch.Size([2, 7, 90])
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        need_config("Seq2Seq", config, EncoderDecoderConfig)
        self.config = config
        self.embedding = embedding(config, config.vocab_size)
        shared = config.source_vocab_size is None
        self.source_embedding = None if shared else embedding(config, config.source_vocab_size or 0)
        self.encoder = encoder_stack(config)
        self.decoder = decoder_stack(config, num_layers=config.num_decoder_layers or config.num_layers, cross=True)

    def forward(
        self,
        source: Int[Tensor, "batch source_len"],
        target: Int[Tensor, "batch target_len"],
        *,
        source_keep: Bool[Tensor, "batch source_len"] | None = None,
        keep: Bool[Tensor, "batch target_len"] | None = None,
    ) -> Float[Tensor, "batch target_len vocab_size"]:
        """Read the source, and say at every position of the target what comes next.

        Args:
            source: Ids.
            target: Ids, beginning with ``config.bos_id``.
            source_keep: True for a real source token; by default all that are not ``config.pad_id``.
            keep: The same for the target.

        Returns:
            Logits. Those at padding mean nothing.

        Raises:
            ShapeError, DTypeError, ConfigError: tokens or masks do not fit.
        """
        self._check("source", source)
        self._check("target", target)
        source_keep = real_tokens("Seq2Seq", source, source_keep, self.config.pad_id, name="source_keep")
        return self.write(target, self.read(source, keep=source_keep), source_keep=source_keep, keep=keep)

    def _check(self, name: str, tokens: Tensor) -> None:
        embedding = self.source_embedding if name == "source" and self.source_embedding is not None else self.embedding
        check_tokens("Seq2Seq", name, tokens, embedding.table.num_embeddings)

    def read(
        self, source: Int[Tensor, "batch source_len"], *, keep: Bool[Tensor, "batch source_len"] | None = None
    ) -> Float[Tensor, "batch source_len embed_dim"]:
        """Encode a source.

        Args:
            source: Ids.
            keep: True for a real token; by default all that are not ``config.pad_id``. The states of others mean
                nothing: ``write`` takes the same as ``source_keep``.

        Raises:
            ShapeError, DTypeError, ConfigError: ``source`` or ``keep`` do not fit.
        """
        self._check("source", source)
        keep = real_tokens("Seq2Seq", source, keep, self.config.pad_id)
        embed = self.embedding if self.source_embedding is None else self.source_embedding
        positions, mask, places = reading("Seq2Seq", self.config, source, keep)
        memory: Tensor = self.encoder(embed(source, positions, check=False), mask, places=places)
        return memory

    def write(
        self,
        target: Int[Tensor, "batch target_len"],
        memory: Float[Tensor, "batch source_len embed_dim"] | None,
        *,
        source_keep: Bool[Tensor, "batch source_len"] | None = None,
        keep: Bool[Tensor, "batch seen"] | None = None,
        kv_cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch target_len vocab_size"]:
        """Say at every position of the target what comes next.

        Args:
            target: Ids; with a cache only those it has not seen.
            memory: What ``read`` returned; with a cache needed once.
            source_keep: True for a real source token; None if all are. The states do not tell, so unlike ``read``
                this finds no padding by itself: ``source != config.pad_id`` is what ``forward`` passes on.
            keep: True for a real target token, with a cache for those seen before, too; by default all that are not
                ``config.pad_id``, and of those seen before the ones that were real then.
            kv_cache: What the decoder has seen; it is filled.

        Raises:
            ShapeError, DTypeError, ConfigError: tokens, ``memory``, masks or the cache do not fit.
        """
        self._check("target", target)
        read = check_memory("Seq2Seq.write", memory, target, self.embedding.table.weight, kv_cache)
        if source_keep is not None:
            check_keep("Seq2Seq.write", "source_keep", source_keep, read)
        keep = real_tokens("Seq2Seq", target, keep, self.config.pad_id, kv_cache=kv_cache)
        positions, mask, places = reading("Seq2Seq", self.config, target, keep, kv_cache=kv_cache, writes=True)
        x = self.embedding(target, positions, check=False)
        source_mask = None if source_keep is None or is_all_real(source_keep) else Padding(source_keep)
        x = self.decoder(x, memory, mask, source_mask, kv_cache=kv_cache, places=places)
        if kv_cache is not None:
            kv_cache.keep = keep
        return nn.functional.linear(x, self.embedding.table.weight)
