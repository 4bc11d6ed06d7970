"""Which modules look like attention: what a coverage report must account for."""

from __future__ import annotations

import re

from torch import nn

_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_WITHOUT_SOFTMAX = re.compile(
    r"DeltaNet|Mamba|LinearAttention|LightningAttention|RWKV|Retention|RecurrentBlock|GatedLinear|ShortConv|SSM"
)
_PART = re.compile(r"Norm|Embedding|Conv1d|Cache|Mask|Dropout")


def is_attention_like(module: nn.Module) -> bool:
    """Whether a module's class is named like attention."""
    name = type(module).__name__
    return _ATTENTION.search(name) is not None and _PART.search(name) is None


def has_no_softmax(module: nn.Module) -> bool:
    """Whether a module mixes tokens without softmax weights: linear attention, state spaces, recurrences."""
    name = type(module).__name__
    return _WITHOUT_SOFTMAX.search(name) is not None and _PART.search(name) is None


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The innermost modules that look like attention, by name, in the order of the model."""
    named = {
        name: module for name, module in model.named_modules() if is_attention_like(module) or has_no_softmax(module)
    }
    return {
        name: module
        for name, module in named.items()
        if not any(other.startswith(f"{name}." if name else "") for other in named if other != name)
    }
