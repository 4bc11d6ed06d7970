"""What the wrappers of our models share: how they are built, and what of a checkpoint is drawn anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from regard.errors import ConfigError, UnsupportedError, message, must_be
from regard.models import TransformerConfig
from regard.nn import TokenEmbedding


class Wrapper(PreTrainedModel):
    """What all wrappers share: the inner model, built from the settings of the config.

    Args:
        config: Of the class ``config_class``.

    Raises:
        ConfigError: the config is of another class, or holds settings that cannot work.
    """

    base_model_prefix = "model"
    supports_gradient_checkpointing = False
    accepts_loss_kwargs = True  # Trainer: every forward divides its loss by ``num_items_in_batch``
    _supports_sdpa = True
    config_class: type[Any]
    inner: type[nn.Module]

    def __init__(self, config: Any) -> None:
        if not isinstance(config, self.config_class):
            problem = must_be("config", f"a {self.config_class.__name__}", f"a {type(config).__name__}")
            raise ConfigError(message(type(self).__name__, problem))
        settings = config.settings  # checked before transformers reads any of them
        super().__init__(config)
        self.model = self.inner(settings)
        self.post_init()

    @property
    def shows_attention(self) -> str:
        """Where attention is seen, for the message to who asks for ``output_attentions``."""
        return "`with regard.watch(model, probes=[regard.Rows()]) as seen` shows attention"

    def init_weights(self) -> None:
        """Weights are drawn where modules are made, so there is nothing left to draw."""
        self.tie_weights(recompute_mapping=False)

    def get_input_embeddings(self) -> nn.Module:
        """The table of the tokens that are read; for a model of images, the map of the patches."""
        return _table(self.model)

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Put another table in its place."""
        owner, name = _owner_of_table(self.model)
        setattr(owner, name, value)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Make room for more tokens, or leave the last out; the settings follow.

        Args:
            new_num_tokens: Size of the vocabulary; as it is, unless given.
            pad_to_multiple_of: Rounded up to one of these.
            mean_resizing: Whether new vectors are drawn about the mean of the others, or as where the table is made.

        Returns:
            The table.

        Raises:
            UnsupportedError: the model reads and writes two vocabularies, or none.
            ConfigError: a special token would be outside.
        """
        table: Any = self.get_input_embeddings()
        if not isinstance(table, nn.Embedding) or getattr(self.config, "source_vocab_size", None) is not None:
            has = "two vocabularies" if isinstance(table, nn.Embedding) else "no vocabulary"
            problem = f"a model must have one vocabulary for its size to change, but has {has}."
            raise UnsupportedError(message(f"{type(self).__name__}.resize_token_embeddings", problem))
        before, step = table.num_embeddings, pad_to_multiple_of or 1  # the same table is resized
        size = before if new_num_tokens is None else new_num_tokens
        settings = replace(self.config.settings, vocab_size=-(-size // step) * step)  # refused before a change is made
        resized: nn.Embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if not mean_resizing:
            owner: Any = _owner_of_table(self.model)[0]
            new = TokenEmbedding(settings.vocab_size, settings.embed_dim, scaled=owner.scale != 1).table.weight
            with torch.no_grad():
                resized.weight[before:] = new[before:].to(resized.weight)
        for module in self.model.modules():
            if isinstance(getattr(module, "config", None), TransformerConfig):
                module.config = settings
        return resized

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw what a checkpoint lacks, as it is drawn where it is made, and leave what was loaded."""
        drawn = None
        for name, parameter in [*self.model.named_parameters(remove_duplicate=False)]:
            if getattr(parameter, "_is_hf_initialized", False) and not parameter.is_meta:
                continue
            drawn = self.inner(self.config.settings) if drawn is None else drawn
            new = drawn.get_parameter(name).detach()
            if parameter.is_meta:  # shared with one that is loaded, or that is drawn here
                owner, _, last = name.rpartition(".")
                setattr(self.model.get_submodule(owner), last, nn.Parameter(new.clone()))
            else:
                parameter.copy_(new)


def _owner_of_table(model: nn.Module) -> tuple[nn.Module, str]:
    """The module that holds what a model reads with, and by which name."""
    found: Any = model
    for name in ("text", "source_embedding", "embedding"):
        if isinstance(inner := getattr(found, name, None), nn.Embedding):
            return found, name
        found = found if inner is None else inner
    if hasattr(found, "table"):
        return found, "table"
    return found.image, "patches"


def _table(model: nn.Module) -> nn.Module:
    owner, name = _owner_of_table(model)
    table: nn.Module = getattr(owner, name)
    return table
