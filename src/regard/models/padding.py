"""Which tokens are real."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be
from regard.nn import KeyValueCache
from regard.nn.inputs import check_floats, check_keep
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
        tokens: Ids of the call, checked.
        keep: What the person gave: True for a real token; with a cache of all tokens so far.
        pad_id: The id that is padding where ``keep`` is not given.
        name: Of the argument ``keep``, for messages.
        kv_cache: What the model has seen before, and which of it was real.

    Returns:
        The same for every token so far; None if all are known to be real.

    Raises:
        ShapeError, DTypeError: if ``keep`` does not fit the tokens, or tokens do not fit the cache.
        ConfigError: if ``keep`` is needed: the cache was filled by calls that did not say.
    """
    _check_cache(caller, kv_cache)
    past = 0 if kv_cache is None else kv_cache.length
    if keep is not None:
        hint = "with a cache it covers the tokens seen before, too" if past else None
        return check_keep(caller, name, keep, (tokens.shape[0], past + tokens.shape[1]), hint=hint)
    before = None if kv_cache is None or not past else kv_cache.keep
    if pad_id is None and before is None:
        return None
    real = torch.ones_like(tokens, dtype=torch.bool) if pad_id is None else tokens != pad_id
    if before is None:
        if is_all_real(real):
            return None
        return torch.cat([real.new_ones(tokens.shape[0], past), real], dim=1) if past else real
    if before.shape[0] != tokens.shape[0]:
        problem = f"a call with kv_cache must keep its batch size ({before.shape[0]}), but has {tokens.shape[0]}."
        raise ShapeError(message(caller, problem, hint="reorder(beam_indices) changes it"))
    if before.shape[1] != past:
        raise ConfigError(message(caller, must_be(name, "given, as other calls have filled the cache", None)))
    return torch.cat([before, real], dim=1)


def find_keep(
    caller: str, name: str, tokens: Int[Tensor, "batch length"], keep: Bool[Tensor, "batch length"] | None, pad_id: int
) -> Bool[Tensor, "batch length"]:
    """Which tokens are real: ``keep`` if it is given, else those that are not ``pad_id``.

    Raises:
        ShapeError, DTypeError: if ``keep`` is no bool tensor of the shape of the tokens.
    """
    return tokens != pad_id if keep is None else check_keep(caller, name, keep, tuple(tokens.shape))


def _check_cache(caller: str, kv_cache: object) -> None:
    if kv_cache is not None and not isinstance(kv_cache, KeyValueCache):
        raise DTypeError(message(caller, must_be("kv_cache", "a KeyValueCache", f"a {type(kv_cache).__name__}")))


def is_all_real(keep: Bool[Tensor, "batch seen"]) -> bool:
    """Whether it is known that all tokens are real: looked at only where that is free."""
    return is_free_to_look_at(keep) and bool(keep.all())


def check_memory(
    caller: str, memory: Tensor | None, target: Tensor, table: Tensor, kv_cache: KeyValueCache | None
) -> tuple[int, int]:
    """Refuse what is not what a reader returned for these rows; None is for a cache that holds it.

    Args:
        caller: For messages.
        memory: What was given.
        target: Ids of the call, checked.
        table: Vectors of the words: memory is as wide, and of their dtype.
        kv_cache: What the model has seen before.

    Returns:
        Batch and length of the source.

    Raises:
        ShapeError, DTypeError, ConfigError: as said.
    """
    _check_cache(caller, kv_cache)
    if memory is None:
        held = None if kv_cache is None else kv_cache.layer(0, "cross").source
        if held is None:
            problem = must_be("memory", "given, where no cache holds it", None)
            raise ConfigError(message(caller, problem))
        return held[0].shape[0], held[0].shape[2]
    check_floats(caller, "memory", memory, table)
    if memory.dim() != 3 or memory.shape[0] != target.shape[0] or memory.shape[2] != table.shape[1]:
        expected = f"of shape [{target.shape[0]}, source_len, {table.shape[1]}]"
        raise ShapeError(message(caller, must_be("memory", expected, f"of shape {tuple(memory.shape)}")))
    return memory.shape[0], memory.shape[1]
