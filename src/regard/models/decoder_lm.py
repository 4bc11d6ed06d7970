"""A decoder by itself: reads what is written so far and says what comes next (GPT)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.config import TransformerConfig, decoder_stack, embedding
from regard.models.configuration import need_config
from regard.models.padding import real_tokens
from regard.models.reading import reading
from regard.nn import KeyValueCache
from regard.nn.embedding import check_tokens


class DecoderLM(nn.Module):
    """A language model: at every position the logits of the next token.

        tokens ──► embedding ──► layer 1 ──► … ──► layer n ──► norm ──► table ──► logits of the next token
                   + position     │
                                  ├─ x + self(norm(x))           every token attends to itself and those before
                                  └─ x + feed_forward(norm(x))

    The last map is the embedding's table, used the other way round.

    Args:
        config: The settings.

    Source:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; tied tables: Press & Wolf 2017,
        arXiv:1608.05859.

    Example:
        >>> import torch
        >>> from regard.models import DecoderLM, TransformerConfig
        >>> model = DecoderLM(TransformerConfig(vocab_size=100, embed_dim=32, num_layers=2, ff_dim=64))
        >>> model(torch.randint(3, 100, (2, 7))).shape
        torch.Size([2, 7, 100])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        need_config("DecoderLM", config, TransformerConfig)
        self.config = config
        self.embedding = embedding(config, config.vocab_size)
        self.decoder = decoder_stack(config, num_layers=config.num_layers, cross=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        keep: Bool[Tensor, "batch seen"] | None = None,
        kv_cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """Read, and say at every position what comes next.

        Args:
            tokens: Ids; with a cache only those it has not seen.
            keep: True for a real token, with a cache for those seen before, too; by default all that are not
                ``config.pad_id``, and of those seen before the ones that were real then.
            kv_cache: What the model has seen; it is filled.

        Returns:
            Logits. Those at padding mean nothing.

        Raises:
            ShapeError, DTypeError, ConfigError: tokens, ``keep`` or the cache do not fit.
        """
        check_tokens("DecoderLM", "tokens", tokens, self.config.vocab_size)
        keep = real_tokens("DecoderLM", tokens, keep, self.config.pad_id, kv_cache=kv_cache)
        positions, mask, places = reading("DecoderLM", self.config, tokens, keep, kv_cache=kv_cache, writes=True)
        x = self.embedding(tokens, positions, check=False)
        x = self.decoder(x, mask=mask, kv_cache=kv_cache, places=places)
        if kv_cache is not None:
            kv_cache.keep = keep
        return nn.functional.linear(x, self.embedding.table.weight)
