"""How a Transformer reads a padded batch: where every token stands, and what each may see."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import ConfigError, message, must_be
from regard.models.config import TransformerConfig
from regard.models.padding import is_all_real
from regard.nn import KeyValueCache, Places
from regard.ops import Allowed, Causal, Mask, Padding, SlidingWindow
from regard.ops.transforms import in_transform

# built here, as a compiler cannot trace the building
_GAPS = must_be("keep", "without padding between real tokens in compiled code", "True after False")


class Reading(NamedTuple):
    """What the parts of a model are told about a call.

    Args:
        positions: Of each new token among the real ones, for the embedding: padding shifts nothing.
        mask: For the attention within the text; None where every token may see every other.
        places: The same positions, of all keys, for attentions that know positions; None where it makes no difference
            whether they count real tokens or places in the tensor.
    """

    positions: Int[Tensor, "..."]
    mask: Mask | None
    places: Places | None


def reading(
    caller: str,
    config: TransformerConfig,
    tokens: Int[Tensor, "batch length"],
    keep: Bool[Tensor, "batch seen"] | None,
    *,
    kv_cache: KeyValueCache | None = None,
    writes: bool = False,
) -> Reading:
    """Find out how a text is read, as if padding were not there.

    Args:
        caller: The model, for messages.
        config: Its settings.
        tokens: Ids of the call.
        keep: From ``real_tokens``.
        kv_cache: What the model has seen before.
        writes: Whether a token sees only itself and those before.

    Raises:
        ConfigError: if a sliding cache keeps, or has kept, less than the tokens may see.

    Numerics:
        Equal to the text without padding, to rounding, wherever padding stands. In compiled code, where it cannot be
        looked at, padding between real tokens ends in a RuntimeError if biases or a window count distances (ONNX has
        no such check).
    """
    past = 0 if kv_cache is None else kv_cache.length
    if kv_cache is not None:
        _check_window(caller, config, kv_cache)
    mask = causal(config) if writes else None
    if keep is None or is_all_real(keep):
        return Reading(torch.arange(past, past + tokens.shape[1], device=tokens.device), mask, None)
    count = keep.long().cumsum(dim=1)
    positions = (count - 1).clamp(min=0)
    start = 0 if kv_cache is None else kv_cache.start
    keys, places, padding = positions[:, start:], None, Padding(keep[:, start:])
    if config.positions == "rotary":  # cached keys were turned by their positions, so those of padding count too
        places = Places(keys, tokens.shape[1])
    if (config.window is not None or config.positions in ("alibi", "relative")) and _has_gaps(caller, keep, count):
        places = Places(keys, tokens.shape[1])
        if config.window is not None:
            _check_kept(caller, config.window, keep, count, kv_cache)
            near = places.queries[:, :, None] - keys[:, None] < config.window
            mask = Causal() & Allowed(near)
    return Reading(positions[:, past:], padding if mask is None else mask & padding, places)


def causal(config: TransformerConfig) -> Mask:
    """What a writer may see of itself: what it has written, or its last ``window`` tokens."""
    return Causal() if config.window is None else Causal() & SlidingWindow(config.window)


def _has_gaps(caller: str, keep: Bool[Tensor, "batch seen"], count: Int[Tensor, "batch seen"]) -> bool:
    """Whether padding stands between real tokens, so that a distance in the tensor is not one among real tokens.

    Looked at on any device: a wait costs less than a bias written out. Transforms forbid looking, and write it out.
    """
    compiling = torch.compiler.is_compiling()
    if not compiling and in_transform():
        return True
    gaps = (~keep & (count > 0) & (count < keep.sum(dim=1, keepdim=True))).any()
    if compiling:
        torch._assert_async(~gaps, f"{caller}(): {_GAPS}")
        return False
    return bool(gaps)


def _check_window(caller: str, config: TransformerConfig, kv_cache: KeyValueCache) -> None:
    """A sliding cache holds at least what a token may see."""
    if kv_cache.window is None or (config.window is not None and kv_cache.window >= config.window):
        return
    sees = "no sliding cache, as config.window is None" if config.window is None else f"at least {config.window}"
    found = f"KeyValueCache(window={kv_cache.window})" if config.window is None else kv_cache.window
    name = "kv_cache" if config.window is None else "kv_cache.window"
    raise ConfigError(message(caller, must_be(name, sees, found)))


def _check_kept(caller: str, window: int, keep: Tensor, count: Tensor, kv_cache: KeyValueCache | None) -> None:
    """A sliding cache counts padding, a window does not: the last window − 1 real tokens must still be there."""
    if kv_cache is None or kv_cache.window is None or kv_cache.start == 0 or in_transform():
        return
    seen, dropped = count[:, kv_cache.length - 1], count[:, kv_cache.start - 1]
    short = (seen - dropped < seen.clamp(max=window - 1)) & keep[:, kv_cache.length :].any(dim=1)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        expected = f"without padding among the last {window} tokens of a sliding cache"
        problem = must_be("keep", expected, f"with some in row {row}")
        raise ConfigError(message(caller, problem, hint="KeyValueCache() and KeyValueCache(max_len=…) keep all tokens"))
