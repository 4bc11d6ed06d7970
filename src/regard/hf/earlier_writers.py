"""The language models that the Transformer replaced, in transformers: with a state in place of keys and values.

``generate`` is transformers' own, with its beams, its sampling and all else: the state goes through it as a cache.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from regard.hf.earlier_config import RegardConvolutionalDecoderConfig, RegardRecurrentDecoderConfig
from regard.hf.earlier_wrapper import StateWriter
from regard.hf.keywords import called_by_transformers
from regard.hf.losses import labelled_loss
from regard.hf.state_cache import StateCache, check_cache
from regard.hf.writers import kept_logits
from regard.models import ConvolutionalLM, RecurrentLM
from regard.models.recurrent import select_rows


class _LanguageModel(StateWriter):
    """A wrapper of a language model with ``step``."""

    _tied_weights_keys = {"model.output.weight": "model.embedding.weight"}  # noqa: RUF012

    @called_by_transformers
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Int[Tensor, "kept"] = 0,
        num_items_in_batch: Any = None,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token, and with ``labels`` (the tokens themselves; −100 is left out) the loss.

        Args:
            input_ids: Tokens; with a cache those it has not read.
            attention_mask: 1 for a real token, over all tokens so far; by default all are (as in all of transformers).
            cache: The state after what was read, from ``new_cache``; it goes on.
            labels: What the loss compares; they are shifted here.
            use_cache: Whether to keep the state where no cache is given.
            logits_to_keep: How many of the last tokens' logits to return, or which; 0 for all. The loss is of all.
            num_items_in_batch: What the summed loss is divided by, as ``Trainer`` counts it; by default tokens here.

        Raises:
            ConfigError, ShapeError, DTypeError: an argument does not fit, or is none that can be honoured.
        """
        name = type(self).__name__
        check_cache(name, cache)
        kept: Any = self.new_cache() if cache is None and use_cache else cache
        length = input_ids.shape[1]
        if attention_mask is None:
            keep = torch.ones_like(input_ids, dtype=torch.bool)
        else:
            keep = attention_mask[:, attention_mask.shape[1] - length :] != 0
        logits, state = self.model.step(input_ids, None if kept is None else kept.state, keep=keep)
        if kept is not None:
            kept.put(state, tokens=length)
        loss = labelled_loss(name, logits, labels, num_items_in_batch, shift=True)
        return CausalLMOutputWithPast(loss=loss, logits=kept_logits(name, logits, logits_to_keep), cache=kept)


class RegardRecurrentForCausalLM(_LanguageModel):
    """``regard.models.RecurrentLM`` in transformers."""

    config_class = RegardRecurrentDecoderConfig
    inner = RecurrentLM

    def new_cache(self) -> StateCache:
        """An empty state, of [layers, batch, hidden_dim]."""
        return StateCache(select_rows)


class RegardConvolutionalForCausalLM(_LanguageModel):
    """``regard.models.ConvolutionalLM`` in transformers."""

    config_class = RegardConvolutionalDecoderConfig
    inner = ConvolutionalLM

    def new_cache(self) -> StateCache:
        """An empty state: the last inputs of every layer."""
        return StateCache(_select_inputs)


def _select_inputs(state: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.index_select(0, rows) for part in state)
