"""Weights as transformers returns them, put together: one matrix for each layer, with absolute positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.errors import ConfigError, DTypeError, ShapeError, message, must_be

CALLER = "from_attentions"
_NO_WEIGHTS = 'fused attention (sdpa, flash) returns no weights: load the model with attn_implementation="eager"'
_WHAT = "weights for each layer, [batch, heads, queries, keys]"
_NOT_ONE = (
    "model.eval() turns dropout off; has_sinks=True is for a learned sink that takes the rest; half types are taken as "
    "they are, before float()"
)
_ROUNDED = 1e-3  # what a sum may be off by when weights were written with few digits
_ROUNDINGS = 4  # and in units of the dtype's own rounding


@dataclass(frozen=True, eq=False)
class Stitched:
    """The weights of one layer.

    Args:
        name: What errors call it, such as ``attentions[3]``.
        key: Its name in a mapping; None where it has none.
        weights: [batch, heads, q, kv], float32 or float64; column j is position j.
        q_start: Position of the first row.
        generated: Whether it comes from a generation.
    """

    name: str
    key: str | None
    weights: Tensor
    q_start: int
    generated: bool

    @property
    def q_end(self) -> int:
        """One more than the position of the last row."""
        return self.q_start + self.weights.shape[2]


def stitched(
    argument: str, given: Any, *, kind: Literal["self", "cross"], beam_indices: Tensor | None, has_sinks: bool
) -> list[Stitched]:
    """The layers of one argument of ``from_attentions``.

    Args:
        argument: Its name, for errors.
        given: One entry for each layer, or for each step of a generation one for each layer.
        kind: Of the attention.
        beam_indices: As a beam search returned them.
        has_sinks: Whether rows may sum to less than one.

    Raises:
        ConfigError, DTypeError, ShapeError: something that is no weights, with its place.
    """
    if given is None or (isinstance(given, Sequence) and not len(given)):
        found = "None" if given is None else "empty"
        raise ConfigError(message(CALLER, must_be(argument, _WHAT, found), hint=_NO_WEIGHTS))
    if isinstance(given, str) or not isinstance(given, Sequence | Mapping):
        hint = None
        if isinstance(given, Tensor | np.ndarray):
            hint = f"one layer alone goes in a list: [{argument}]"
        raise ConfigError(message(CALLER, must_be(argument, _WHAT, f"a {type(given).__name__}"), hint=hint))
    if isinstance(given, Mapping):
        named = [(f"{argument}[{key!r}]", key, [layer]) for key, layer in given.items()]
    elif _is_steps(given):
        counts = sorted({len(step) for step in given})
        if len(counts) > 1:
            problem = f"`{argument}` must hold as many layers in each step, but holds {counts[0]} to {counts[-1]}."
            raise ConfigError(message(CALLER, problem))
        named = [(f"{argument}[…][{place}]", None, [step[place] for step in given]) for place in range(counts[0])]
        if not named:
            raise ConfigError(message(CALLER, must_be(argument, _WHAT, "steps without layers"), hint=_NO_WEIGHTS))
    else:
        named = [(f"{argument}[{place}]", None, [layer]) for place, layer in enumerate(given)]
    generated = not isinstance(given, Mapping) and _is_steps(given)
    if beam_indices is not None and not generated:
        problem = f"`beam_indices` is for what generate() returned, but `{argument}` has no steps."
        raise ConfigError(message(CALLER, problem))
    return [
        _layer(name, key, parts, kind=kind, generated=generated, beam_indices=beam_indices, has_sinks=has_sinks)
        for name, key, parts in named
    ]


def _is_steps(given: Sequence[Any]) -> bool:
    """Whether the first entry is itself one for each layer, as in each step of a generation."""
    first = given[0]
    if not isinstance(first, tuple | list):
        return False
    return not first or first[0] is None or getattr(first[0], "ndim", 0) == 4


def _layer(
    name: str,
    key: str | None,
    parts: Sequence[Any],
    *,
    kind: Literal["self", "cross"],
    generated: bool,
    beam_indices: Tensor | None,
    has_sinks: bool,
) -> Stitched:
    """One matrix out of the steps of one layer."""
    steps = [_weights(name.replace("…", str(number)), part, has_sinks) for number, part in enumerate(parts)]
    if beam_indices is not None:
        steps = _followed(steps, beam_indices, name)
    shapes = {(step.shape[0], step.shape[1]) for step in steps}
    if len(shapes) > 1:
        raise ShapeError(
            message(CALLER, f"`{name}` must have the same batch and heads in every step, but has {sorted(shapes)}.")
        )
    if kind == "cross":
        if len({step.shape[3] for step in steps}) > 1:
            raise ShapeError(message(CALLER, f"`{name}` must have the same keys in every step: those of the source."))
        return Stitched(name, key, torch.cat(steps, dim=2), 0, generated)
    q_start = _start(steps[0], name)
    end, placed = q_start, []
    for step in steps:
        end += step.shape[2]
        placed.append(_placed(step, end, name))
    widened = [torch.nn.functional.pad(step, (0, end - step.shape[3])) for step in placed]
    return Stitched(name, key, torch.cat(widened, dim=2), q_start, generated)


def _start(first: Tensor, name: str) -> int:
    """Where the first query sits: keys behind it that have no weight are the rest of a static cache."""
    q_len, kv_len = first.shape[2:]
    if q_len > kv_len:
        problem = f"`{name}` must have at least as many keys as queries, but has {kv_len} and {q_len}."
        hint = "weights between two texts are cross_attentions"
        raise ShapeError(message(CALLER, problem, hint=hint))
    return 0 if not bool(first[..., q_len:].any()) else kv_len - q_len


def _placed(step: Tensor, end: int, name: str) -> Tensor:
    """A step's columns at their positions: a static cache has too many, a sliding one only the last."""
    kv_len = step.shape[3]
    if kv_len < end:
        return torch.nn.functional.pad(step, (end - kv_len, 0))
    if bool(step[..., end:].any()):
        raise ConfigError(
            message(CALLER, f"`{name}` has weight on position {end} or later, which no query has reached.")
        )
    return step[..., :end]


def _followed(steps: list[Tensor], beam_indices: Tensor, name: str) -> list[Tensor]:
    """The rows of the returned texts: those of the slot each was in at each step, and none when it had ended."""
    slots = steps[0].shape[0]
    if beam_indices.dim() != 2 or beam_indices.dtype not in (torch.int64, torch.int32):
        found = f"{beam_indices.dtype} {tuple(beam_indices.shape)}"
        raise ShapeError(message(CALLER, must_be("beam_indices", "integers of the shape [texts, steps]", found)))
    if beam_indices.numel() and int(beam_indices.max()) >= slots:
        problem = f"`beam_indices` names slot {int(beam_indices.max())}, but `{name}` has only {slots} rows."
        raise ConfigError(message(CALLER, problem))
    followed = []
    for step, slot in zip(steps, beam_indices.long().cpu().unbind(1), strict=False):
        followed.append(step[slot.clamp(min=0)] * (slot >= 0).to(step.dtype)[:, None, None, None])
    return followed


def _weights(name: str, given: Any, has_sinks: bool) -> Tensor:
    """One entry as a tensor of four axes, checked."""
    if given is None:
        raise ConfigError(
            message(CALLER, must_be(name, "weights [batch, heads, queries, keys]", "None"), hint=_NO_WEIGHTS)
        )
    try:
        tensor = given.detach().cpu() if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError) as error:
        expected = "numbers in rows of one length"
        raise ShapeError(message(CALLER, must_be(name, expected, "something else (are all rows as long?)"))) from error
    if not tensor.is_floating_point():
        raise DTypeError(message(CALLER, must_be(name, "of a floating dtype", str(tensor.dtype))))
    if not 2 <= tensor.dim() <= 4:
        expected = "of the shape [batch, heads, queries, keys], [heads, queries, keys] or [queries, keys]"
        raise ShapeError(message(CALLER, must_be(name, expected, str(tuple(tensor.shape)))))
    slack = max(_ROUNDED, _ROUNDINGS * torch.finfo(tensor.dtype).eps)
    tensor = tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))
    tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    _check_values(name, tensor, slack, has_sinks)
    return tensor


def _check_values(name: str, weights: Tensor, slack: float, has_sinks: bool) -> None:
    """Refuse what softmax cannot have returned; names the first such row."""
    sums = weights.sum(-1)
    if bool((wrong := ~weights.isfinite().all(-1)).any()):
        raise ConfigError(message(CALLER, f"`{name}` must be finite, but has NaN or infinity {_place(wrong)}."))
    if bool((wrong := (weights < -slack).any(-1)).any()):
        hint = "these look like scores before the softmax"
        raise ConfigError(message(CALLER, f"`{name}` must not be negative, but is {_place(wrong)}.", hint=hint))
    wrong = sums > 1 + slack if has_sinks else ((sums - 1).abs() > slack) & (sums.abs() > slack)
    if bool(wrong.any()):
        row = tuple(int(number) for number in wrong.nonzero()[0])
        expected = "at most one" if has_sinks else "one, or to zero where nothing was allowed"
        problem = f"rows of `{name}` must sum to {expected}, but one sums to {float(sums[row]):.4g} {_place(wrong)}."
        raise ConfigError(message(CALLER, problem, hint=None if has_sinks else _NOT_ONE))


def _place(wrong: Tensor) -> str:
    item, head, row = (int(number) for number in wrong.nonzero()[0])
    return f"(item {item}, head {head}, row {row})"
