"""transformers' mask functions as values: read by structure, so that a causal mask is ``Causal()`` and not a function.

transformers composes index-based closures. Their names and free variables say what they are; whatever is not recognised
stays a function and becomes ``Where``, which is right and only slower. The ``sliding_window`` argument that models pass
to attention functions is never read: families disagree by one about what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from transformers import masking_utils

from regard.ops import Causal, Documents, Mask, Padding, SlidingWindow, Where

MaskFunction = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class Everything:
    """No restriction: what ``None`` says to ``attend``."""


@dataclass(frozen=True)
class _OneSidedWindow:
    """Keys after query − size; only with ``Causal()`` is it a window that ``regard.ops`` has a name for."""

    size: int
    function: MaskFunction


@dataclass(frozen=True, eq=False)
class Place:
    """Which rows and columns of the index space a mask covers."""

    q_start: int
    q_len: int
    kv_start: int
    kv_len: int
    device: torch.device

    @property
    def rows(self) -> slice:
        """Absolute positions of the queries."""
        return slice(self.q_start, self.q_start + self.q_len)

    @property
    def keys(self) -> slice:
        """Absolute positions of the keys."""
        return slice(self.kv_start, self.kv_start + self.kv_len)


def is_causal(function: MaskFunction) -> bool:
    """Whether no key after the query is ever allowed."""
    if function is masking_utils.causal_mask_function:
        return True
    name, free = _shape_of(function)
    if name == "and_masks":
        return any(is_causal(part) for part in _conjuncts(free["mask_functions"]))
    return name == "or_masks" and all(is_causal(part) for part in free["mask_functions"])


def to_mask(function: MaskFunction, place: Place, *, use_vmap: bool = False) -> Mask | None:
    """Translate a mask function for the rows and columns of one call.

    Args:
        function: Of absolute batch, head, query and key indices.
        place: The rows and columns.
        use_vmap: Whether the function can only be called with scalars, as transformers says of functions that a
            person or a model mixed in.

    Returns:
        The mask; None where everything is allowed.
    """
    found = _translate(function, place, use_vmap)
    if isinstance(found, Everything):
        return None
    return _where(found.function, use_vmap) if isinstance(found, _OneSidedWindow) else found


def padding(keep: Tensor | None, place: Place) -> Mask | None:
    """The 2-D attention mask of a call, cut or padded to its keys; None where nothing is padded."""
    if keep is None:
        return None
    short = place.keys.stop - keep.shape[1]
    keep = torch.nn.functional.pad(keep, (0, short)) if short > 0 else keep
    keep = keep[:, place.keys].bool()
    return None if bool(keep.all()) else Padding(keep)


def _shape_of(function: MaskFunction) -> tuple[str | None, dict[str, Any]]:
    """The factory that made a closure of ``masking_utils``, and its free variables by name."""
    if getattr(function, "__module__", None) != masking_utils.__name__:
        return None, {}
    factory, _, inner = function.__qualname__.partition(".<locals>.")
    cells = function.__closure__ or ()
    free = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    return (factory if inner else None), free


def _translate(function: MaskFunction, place: Place, use_vmap: bool) -> Mask | Everything | _OneSidedWindow:
    if function is masking_utils.causal_mask_function:
        return Causal()
    if function is masking_utils.bidirectional_mask_function:
        return Everything()
    name, free = _shape_of(function)
    match name:
        case "and_masks":
            return _intersection(free["mask_functions"], place, use_vmap)
        case "or_masks":
            return _union(free["mask_functions"], place, use_vmap)
        case "sliding_window_overlay":
            size = int(free["sliding_window"])
            reaches_all = place.rows.stop - place.keys.start <= size
            return Everything() if reaches_all else _OneSidedWindow(size, function)
        case "sliding_window_bidirectional_overlay":
            size = int(free["sliding_window"]) + 1  # |i − j| ≤ size there, < size here
            extent = max(place.rows.stop, place.keys.stop) - min(place.rows.start, place.keys.start)
            return Everything() if extent <= size else SlidingWindow(size)
        case "chunked_overlay":
            return _chunks(int(free["chunk_size"]), free["left_padding"], place)
        case "blockwise_overlay":
            return _same_id(free["block_sequence_ids"], place) or _where(function, use_vmap)
        case "packed_sequence_mask_function":
            return _same_id(free["packed_sequence_mask"], place) or _where(function, use_vmap)
        case "padding_mask_function":
            return padding(free["padding_mask"], place) or Everything()
        case _:
            return _where(function, use_vmap)


def _intersection(
    functions: tuple[MaskFunction, ...], place: Place, use_vmap: bool
) -> Mask | Everything | _OneSidedWindow:
    parts = _conjuncts(functions)
    found = [_translate(part, place, use_vmap) for part in parts]
    if any(isinstance(part, Causal) for part in found):
        found = [SlidingWindow(part.size) if isinstance(part, _OneSidedWindow) else part for part in found]
    masks = [
        _where(part.function, use_vmap) if isinstance(part, _OneSidedWindow) else part
        for part in found
        if not isinstance(part, Everything)
    ]
    return reduce(lambda left, right: left & right, masks) if masks else Everything()


def _union(functions: tuple[MaskFunction, ...], place: Place, use_vmap: bool) -> Mask | Everything:
    found = [_translate(part, place, use_vmap) for part in functions]
    if any(isinstance(part, Everything) for part in found):
        return Everything()
    masks = [
        _where(part.function, use_vmap) if isinstance(part, _OneSidedWindow) else part
        for part in found
        if not isinstance(part, Everything)
    ]
    return reduce(lambda left, right: left | right, masks)


def _conjuncts(functions: tuple[MaskFunction, ...]) -> list[MaskFunction]:
    """Every condition that must hold.

    Beside a document mask, positions that start over in each document are replaced by plain indices: within a document
    positions grow by one, so rules about distance and order read the same.
    """
    parts = _flatten(functions)
    if "packed_sequence_mask_function" not in (_shape_of(part)[0] for part in parts):
        return parts
    return _flatten(tuple(_unpacked(part) for part in parts))


def _flatten(functions: tuple[MaskFunction, ...]) -> list[MaskFunction]:
    parts: list[MaskFunction] = []
    for function in functions:
        name, free = _shape_of(function)
        parts.extend(_flatten(free["mask_functions"]) if name == "and_masks" else [function])
    return parts


def _unpacked(function: MaskFunction) -> MaskFunction:
    """The function under a remapping of positions, when it only asks about distance and order; else as it is."""
    if _shape_of(function)[0] != "remap_positions_for_packed_sequence":
        return function
    inner: MaskFunction = _shape_of(function)[1]["mask_function"]
    known = (masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function)
    relative = ("sliding_window_overlay", "sliding_window_bidirectional_overlay")
    plain = all(part in known or _shape_of(part)[0] in relative for part in _flatten((inner,)))
    return inner if plain else function


def _chunks(size: int, left_padding: Tensor, place: Place) -> Mask | Everything:
    """Chunks counted from the first real token of each batch row; numbered from 0, as negative ids would be padding."""
    left = left_padding.to(place.device).long()[:, None]
    rows = torch.arange(place.rows.start, place.rows.stop, device=place.device)[None]
    keys = torch.arange(place.keys.start, place.keys.stop, device=place.device)[None]
    query_ids, key_ids = (torch.div(positions - left, size, rounding_mode="floor") for positions in (rows, keys))
    ids = torch.cat([query_ids, key_ids], dim=1)
    if ids.numel() == 0 or bool((ids == ids[:, :1]).all()):
        return Everything()
    lowest = int(ids.min())
    return Documents(key_ids - lowest, query_ids - lowest)


def _same_id(ids: Tensor, place: Place) -> Mask | None:
    """Ids by absolute index as documents; None when they do not reach over the whole call."""
    if ids.shape[1] < max(place.rows.stop, place.keys.stop):
        return None
    return Documents(ids[:, place.keys], ids[:, place.rows])


def _where(function: MaskFunction, use_vmap: bool) -> Mask:
    if use_vmap:
        return Where(lambda b, h, i, j: _mapped(function, b, h, i, j))
    # transformers' functions are asked about head 0 only, and need not use every index: positions are never negative.
    return Where(lambda b, h, i, j: function(b, h[:, :1], i, j) | ((i + j) < 0))


def _mapped(function: MaskFunction, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Call a function of scalars for every cell, as transformers does."""
    if i.shape[0] > 1:
        rows = [_mapped(function, b[row : row + 1], h, i[row : row + 1], j) for row in range(i.shape[0])]
        return torch.cat(rows)
    with TransformGetItemToIndex():
        expanded: Tensor = masking_utils._vmap_expansion_sdpa(function)(
            b.flatten(), h.flatten()[:1], i.flatten(), j.flatten()
        )
    return expanded
