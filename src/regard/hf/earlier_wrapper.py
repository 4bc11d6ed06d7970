"""What the wrappers of the models that the Transformer replaced have in common."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.errors import ConfigError, UnsupportedError, message, must_be
from regard.hf.state_cache import StateCache
from regard.hf.wrapper import Wrapper
from regard.hf.writers import RegardGenerationMixin


class EarlierWrapper(Wrapper):
    """A wrapper of a model in which a watch sees nothing, and whose vocabulary keeps its size."""

    _supports_sdpa = False

    @property
    def has_attention(self) -> bool:
        """Whether it looks back at anything."""
        return False

    @property
    def shows_attention(self) -> str:
        """Where attention is seen, if there is any."""
        return super().shows_attention if self.has_attention else "this model has no attention"

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Give back the table; another size than it has is refused.

        Raises:
            UnsupportedError: names the size.
        """
        table = self.get_input_embeddings()
        assert isinstance(table, nn.Embedding)
        if pad_to_multiple_of is not None or new_num_tokens not in (None, table.num_embeddings):
            problem = f"the vocabulary of this model is of {table.num_embeddings} tokens, and stays so."
            raise UnsupportedError(message(f"{type(self).__name__}.resize_token_embeddings", problem))
        return table


class StateWriter(EarlierWrapper, RegardGenerationMixin):
    """A wrapper of a model that goes on from a state."""

    _is_stateful = True  # what was written cannot be taken back: transformers refuses assistants

    def new_cache(self) -> StateCache:
        """An empty state."""
        raise NotImplementedError

    def _prepare_cache_for_generation(  # type: ignore[override]  # it says bool, and returns nothing
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        """An empty state where ``generate`` would make keys and values.

        Raises:
            ConfigError: a kind of cache is asked for.
        """
        if (kind := generation_config.cache_implementation) is not None:
            caller = f"{type(self).__name__}.generate"
            raise ConfigError(message(caller, must_be("cache_implementation", "None (a state is kept)", repr(kind))))
        if model_kwargs.get("cache") is None and generation_config.use_cache is not False:
            model_kwargs["cache"] = self.new_cache()
