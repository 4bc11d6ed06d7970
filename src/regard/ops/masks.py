"""Masks: values that say which keys a query may see, composed with ``&``, ``|`` and ``~``.

    (Causal() | Prefix(n)) & Padding(keep)

Python's ``&`` binds tighter than ``|``: without the parentheses the line above would read
``Causal() | (Prefix(n) & Padding(keep))`` and the causal part would see padding.

Every mask says what is *allowed*. A mask is a frozen value, registered with pytree; it is never added to scores as a
large negative number. Query i sits at position ``q_start + i`` and key j at ``kv_start + j``; ``Causal``,
``SlidingWindow``, ``Prefix`` and ``Where`` read positions, the others index the keys and queries of the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Mask:
    """What a query may see. Compose masks with ``&``, ``|`` and ``~``; ``&`` binds tighter than ``|``."""

    def __and__(self, other: Mask) -> Mask:
        return And(self, _as_mask(other, "&"))

    def __or__(self, other: Mask) -> Mask:
        return Or(self, _as_mask(other, "|"))

    def __invert__(self) -> Mask:
        return Not(self)


def _as_mask(value: object, operator: str) -> Mask:
    if isinstance(value, Mask):
        return value
    hint = "Allowed(tensor) or Blocked(tensor) makes a mask of a tensor" if isinstance(value, Tensor) else None
    kind = type(value).__name__
    raise DTypeError(message(operator, f"both sides must be masks, but the right side is a {kind}.", hint=hint))


@dataclass(frozen=True)
class Causal(Mask):
    """A query sees keys at its own position and before: key position ≤ query position."""


@dataclass(frozen=True)
class SlidingWindow(Mask):
    """A query sees keys nearer than ``size``: |query position − key position| < size.

    With ``Causal()`` that is ``size`` keys, the query's own included (the convention of Hugging Face; FlashAttention's
    ``window_size=(size, 0)`` would be one key more).

    Raises:
        ConfigError: if ``size`` is less than 1.
    """

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int | torch.SymInt):
            raise DTypeError(message("SlidingWindow", must_be("size", "an int", f"a {type(self.size).__name__}")))
        if self.size < 1:
            raise ConfigError(message("SlidingWindow", must_be("size", "at least 1", self.size)))


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Every query sees the keys that are kept: ``keep[b, j]``.

    Args:
        keep: True for a real key, False for padding.
    """

    keep: Bool[Tensor, "batch_or_1 kv_len"]

    def __post_init__(self) -> None:
        _need_bool("Padding", "keep", self.keep)
        _need_dims("Padding", "keep", self.keep, (2,), "[batch, kv_len]")


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query sees the keys of its own document; a negative id is padding, sees nothing and is seen by nothing.

    Args:
        key_ids: Document of each key.
        query_ids: Document of each query; by default the document of the key at the query's position.
    """

    key_ids: Int[Tensor, "batch_or_1 kv_len"]
    query_ids: Int[Tensor, "batch_or_1 q_len"] | None = None

    def __post_init__(self) -> None:
        for name, ids in (("key_ids", self.key_ids), ("query_ids", self.query_ids)):
            if ids is None and name == "query_ids":
                continue
            _need_tensor("Documents", name, ids)
            assert ids is not None
            if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
                raise DTypeError(message("Documents", must_be(name, "integers", ids.dtype)))
            _need_dims("Documents", name, ids, (2,), "[batch, length]")


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Every query sees the keys before ``length``: key position < length (the prompt of a prefix language model).

    Args:
        length: One number, or one per batch row.
    """

    length: int | Int[Tensor, "batch"]

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int | torch.SymInt | Tensor):
            raise DTypeError(
                message("Prefix", must_be("length", "an int or a tensor", f"a {type(self.length).__name__}"))
            )
        if isinstance(self.length, Tensor):
            if self.length.dtype.is_floating_point or self.length.dtype == torch.bool:
                raise DTypeError(message("Prefix", must_be("length", "integers", self.length.dtype)))
            _need_dims("Prefix", "length", self.length, (1,), "[batch]")


@dataclass(frozen=True, eq=False)
class Allowed(Mask):
    """A query sees a key where the tensor is True (or not 0, for integers).

    Args:
        tensor: Bool or integer, of shape [kv_len], [q_len, kv_len], [batch, q_len, kv_len] or broadcastable to
            [batch, heads, q_len, kv_len].
    """

    tensor: Shaped[Tensor, "..."]

    def __post_init__(self) -> None:
        _need_truth("Allowed", self.tensor)


@dataclass(frozen=True, eq=False)
class Blocked(Mask):
    """A query does not see a key where the tensor is True (``torch.nn.MultiheadAttention`` writes masks this way).

    Args:
        tensor: As for ``Allowed``.
    """

    tensor: Shaped[Tensor, "..."]

    def __post_init__(self) -> None:
        _need_truth("Blocked", self.tensor)


@dataclass(frozen=True)
class Where(Mask):
    """A query sees a key where a function of their places says so.

    Args:
        fn: ``fn(b, h, i, j)``: batch row, head, query position and key position as int64 tensors that broadcast to
            [batch, heads, queries, keys]; returns bool. It is called once per tile, so it must be pure.
    """

    fn: Predicate

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise DTypeError(
                message("Where", must_be("fn", "a function of (b, h, i, j)", f"a {type(self.fn).__name__}"))
            )
        if not torch.compiler.is_compiling():  # which cannot trace the question
            _need_four_arguments(self.fn)


@dataclass(frozen=True)
class And(Mask):
    """Both sides allow it. Written ``left & right``."""

    left: Mask
    right: Mask


@dataclass(frozen=True)
class Or(Mask):
    """One side allows it. Written ``left | right``."""

    left: Mask
    right: Mask


@dataclass(frozen=True)
class Not(Mask):
    """The other does not allow it. Written ``~mask``."""

    mask: Mask


def _need_four_arguments(fn: Predicate) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # written in C: only calling it will tell
        return
    try:
        signature.bind(*"bhij")
    except TypeError:
        problem = must_be("fn", "a function of four arguments (b, h, i, j)", f"one of {signature}")
        raise DTypeError(message("Where", problem)) from None


def _need_bool(caller: str, name: str, tensor: Tensor) -> None:
    _need_tensor(caller, name, tensor)
    if tensor.dtype != torch.bool:
        raise DTypeError(message(caller, must_be(name, "bool", tensor.dtype), hint=f"{name} != 0 makes it bool"))


def _need_tensor(caller: str, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise DTypeError(message(caller, must_be(name, "a tensor", f"a {type(value).__name__}")))


def _need_truth(caller: str, tensor: Tensor) -> None:
    _need_tensor(caller, "tensor", tensor)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        hint = "scores that are added are a bias: bias=tensor"
        raise DTypeError(message(caller, must_be("tensor", "bool or integer", tensor.dtype), hint=hint))
    _need_dims(caller, "tensor", tensor, (1, 2, 3, 4), "[kv_len] up to [batch, heads, q_len, kv_len]")


def _need_dims(caller: str, name: str, tensor: Tensor, dims: tuple[int, ...], expected: str) -> None:
    if tensor.dim() not in dims:
        raise ShapeError(message(caller, must_be(name, f"of shape {expected}", f"of shape {tuple(tensor.shape)}")))


for _leaf in (Causal, SlidingWindow, Padding, Documents, Prefix, Allowed, Blocked, Where, And, Or, Not):
    # Masks validate themselves when built; rebuilding from leaves (fake tensors, placeholders) must not.
    def _flatten(mask: Mask) -> tuple[list[object], tuple[str, ...]]:
        names = tuple(field.name for field in fields(mask))  # type: ignore[arg-type]
        return [getattr(mask, name) for name in names], names

    def _unflatten(values: object, names: tuple[str, ...], cls: type[Mask] = _leaf) -> Mask:
        mask = object.__new__(cls)
        for name, value in zip(names, values, strict=True):  # type: ignore[call-overload]
            object.__setattr__(mask, name, value)
        return mask

    pytree.register_pytree_node(_leaf, _flatten, _unflatten, serialized_type_name=f"regard.{_leaf.__name__}")
