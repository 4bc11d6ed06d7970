"""Which rule stands behind a mask that transformers made."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.hf.lazy_mask import LazyMask, MaskRule

_REMEMBERED = 64


@dataclass(frozen=True, eq=False)
class _Made:
    """A mask tensor as it was when it was made, without keeping it alive."""

    rule: MaskRule
    row_stride: int
    key_stride: int
    offset: int
    version: int


class MaskBook:
    """Remembers masks and the rules they were made from.

    A tensor is found again by its storage, so that cutting rows or columns does not lose it. A mask that transformers
    left out because the attention function does without (``None``) is found by its lengths.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Any = WeakIdKeyDictionary()
        self._left_out: deque[tuple[int, MaskRule]] = deque(maxlen=_REMEMBERED)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._made.clear()
            self._left_out.clear()

    def note(self, made: Any, rule: MaskRule, config: Any) -> None:
        """Remember the rule of what a mask function just returned."""
        with self._lock:
            if made is None:
                self._left_out.append((id(config), rule))
            elif isinstance(made, Tensor) and made.dim() == 4 and not isinstance(made, LazyMask):
                self._made[made.untyped_storage()] = _Made(
                    rule, made.stride(2), made.stride(3), int(made.storage_offset()), _version(made)
                )
            elif not isinstance(made, Tensor):
                self._made[made] = rule

    def find(self, mask: Any) -> MaskRule | None:
        """The rule of a mask, or of the rows and first keys that were cut from it; None for any other tensor."""
        if isinstance(mask, LazyMask):
            return mask.rule
        with self._lock:
            if not isinstance(mask, Tensor):
                known = self._made.get(mask)
                return known if isinstance(known, MaskRule) else None
            made = self._made.get(mask.untyped_storage())
        return _cut_from(made, mask) if isinstance(made, _Made) else None

    def find_left_out(self, config: Any, batch: int, q_len: int, kv_len: int, *, causal: bool) -> MaskRule | None:
        """The latest rule of these lengths for which transformers made no tensor; the same configuration's first."""
        with self._lock:
            fitting = [
                (owner, rule)
                for owner, rule in reversed(self._left_out)
                if (rule.place.q_len, rule.place.kv_len) == (q_len, kv_len)
                and rule.batch == batch
                and rule.is_causal == causal
            ]
        own = [rule for owner, rule in fitting if owner == id(config)]
        return own[0] if own else fitting[0][1] if fitting else None


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _cut_from(made: _Made, mask: Tensor) -> MaskRule | None:
    """The rule for a view of a remembered mask, if it is some of its rows and its first keys, unchanged."""
    rule, place = made.rule, made.rule.place
    if mask.dim() != 4 or mask.shape[0] != rule.batch or mask.shape[1] != 1 or _version(mask) != made.version:
        return None
    q_len, kv_len = mask.shape[2:]
    if (q_len > 1 and mask.stride(2) != made.row_stride) or (kv_len > 1 and mask.stride(3) != made.key_stride):
        return None
    if q_len == place.q_len and mask.storage_offset() == made.offset:
        return rule.first_keys(kv_len)
    row, odd = divmod(int(mask.storage_offset()) - made.offset, made.row_stride) if made.row_stride else (0, 1)
    if odd or row < 0 or row + q_len > place.q_len or kv_len > place.kv_len:
        return None
    return rule.rows(row, q_len).first_keys(kv_len)
