"""Which tokens are real, and where they stand."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.nn import KeyValueCache
from regard.ops import Mask, Padding
from regard.ops.transforms import is_free_to_look_at


def real_tokens(
    caller: str,
    tokens: Int[Tensor, "batch length"],
    keep: Bool[Tensor, "batch seen"] | None,
    pad_id: int | None,
    *,
    name: str = "keep",
    kv_cache: KeyValueCache | None = None,
) -> Bool[Tensor, "batch seen"] | None:
    """Which tokens seen so far are real.

    Args:
        caller: The model, for messages.
        tokens: Ids of the call.
        keep: What the person gave: True for a real token; with a cache of all tokens so far.
        pad_id: The id that is padding where ``keep`` is not given.
        name: Of the argument ``keep``, for messages.
        kv_cache: What the model has seen before.

    Returns:
        The same for every token so far; None if nothing can be padding.

    Raises:
        ShapeError, DTypeError: if ``keep`` does not fit the tokens.
        ConfigError: if padding comes with a cache and without ``keep``: what came before is not known.
    """
    past = 0 if kv_cache is None else kv_cache.length
    if keep is not None:
        return _checked(caller, name, keep, (tokens.shape[0], past + tokens.shape[1]), past)
    if pad_id is None:
        return None
    real = tokens != pad_id
    if not past:
        return real
    if is_free_to_look_at(real) and not bool(real.all()):
        raise ConfigError(message(caller, must_be(name, "given, where tokens after a cache hold padding", None)))
    return None


def find_keep(
    caller: str, name: str, tokens: Int[Tensor, "batch length"], keep: Bool[Tensor, "batch length"] | None, pad_id: int
) -> Bool[Tensor, "batch length"]:
    """Which tokens are real: ``keep`` if it is given, else those that are not ``pad_id``.

    Raises:
        ShapeError, DTypeError: if ``keep`` is no bool tensor of the shape of the tokens.
    """
    return tokens != pad_id if keep is None else _checked(caller, name, keep, tuple(tokens.shape), 0)


def _checked(caller: str, name: str, keep: Tensor, shape: tuple[int, ...], past: int) -> Tensor:
    if keep.dtype != torch.bool:
        problem = must_be(name, "bool (True = a real token)", keep.dtype)
        raise DTypeError(message(caller, problem, hint=f"{name} != 0 makes it bool"))
    if tuple(keep.shape) != shape:
        hint = "with a cache it covers the tokens seen before, too" if past else None
        raise ShapeError(
            message(caller, must_be(name, f"of shape {shape}", f"of shape {tuple(keep.shape)}"), hint=hint)
        )
    return keep


def positions_of(
    keep: Bool[Tensor, "batch seen"] | None, tokens: Int[Tensor, "batch length"], kv_cache: KeyValueCache | None = None
) -> Int[Tensor, "..."]:
    """The position of each token of the call among the real ones, so that padding in front shifts nothing."""
    past = 0 if kv_cache is None else kv_cache.length
    if _all(keep):
        return torch.arange(past, past + tokens.shape[1], device=tokens.device)
    assert keep is not None
    return (keep.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]


def padding_mask(keep: Bool[Tensor, "batch seen"] | None, kv_cache: KeyValueCache | None = None) -> Mask | None:
    """The mask that hides padding among the keys that a cache still has; None where there is none to hide."""
    if _all(keep):
        return None
    assert keep is not None
    return Padding(keep if kv_cache is None else keep[:, kv_cache.start :])


def _all(keep: Tensor | None) -> bool:
    """Whether it is known that all tokens are real: looked at only where that is free."""
    return keep is None or (is_free_to_look_at(keep) and bool(keep.all()))


def both(left: Mask, right: Mask | None) -> Mask:
    """Both masks, or the one there is."""
    return left if right is None else left & right
