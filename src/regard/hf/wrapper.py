"""What the wrappers of our models share: how they are built, and what of a checkpoint is drawn anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from regard.errors import ConfigError, message, must_be


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

    def init_weights(self) -> None:
        """Weights are drawn where modules are made, so there is nothing left to draw."""
        self.tie_weights(recompute_mapping=False)

    def _init_weights(self, module: nn.Module) -> None:
        """Draw what a checkpoint lacks, as it is drawn where it is made; transformers guards what has been loaded."""
        owners = (owner for owner in self.modules() if any(part is module for part in _parts(owner)))
        reset = getattr(next(owners, module), "reset_parameters", None)
        if callable(reset):
            reset()


def _parts(owner: nn.Module) -> Iterator[nn.Module]:
    """The parts of torch that a module of ours draws in its own ``reset_parameters``."""
    if not hasattr(owner, "reset_parameters") or not _is_ours(owner):
        return
    for child in owner.children():
        for part in child if isinstance(child, nn.ModuleList) else (child,):
            if not _is_ours(part):
                yield part


def _is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("regard.")
