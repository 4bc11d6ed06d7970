"""A mask that is not there: the shape of transformers' 4-D mask, and the rule by which it would be filled.

transformers hands whatever its mask function returns through its modelling code, which looks at shapes and cuts rows
and columns. ``LazyMask`` is a tensor for all of that and holds no cells; attention reads the rule. An operation it does
not know gets the dense mask instead, which is right and costs what transformers' own masks cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from transformers import masking_utils

from regard.hf.mask_functions import MaskFunction, Place, is_causal, padding, to_mask
from regard.ops import Mask


@dataclass(frozen=True, eq=False)
class MaskRule:
    """What transformers says of a mask, and its translation.

    Args:
        batch: Number of batch rows.
        place: Rows and columns it covers.
        function: Of absolute batch, head, query and key indices.
        keep: 2-D attention mask over absolute positions, or None.
        use_vmap: Whether the function takes scalars only.
        cache: Translations by rows and columns, shared by everything cut from this rule; layers share masks.
    """

    batch: int
    place: Place
    function: MaskFunction
    keep: Tensor | None
    use_vmap: bool
    cache: dict[tuple[int, int], Mask | None] = field(default_factory=dict)

    @classmethod
    def of_call(
        cls,
        *,
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: int | Tensor = 0,
        kv_offset: int = 0,
        mask_function: MaskFunction = masking_utils.causal_mask_function,
        attention_mask: Tensor | None = None,
        use_vmap: bool = False,
        device: torch.device | str = "cpu",
        **_: Any,
    ) -> MaskRule:
        """Read the arguments of a mask function of ``AttentionMaskInterface``.

        A static cache's offset is a tensor that the cache changes in place before attention runs: it is read now.
        """
        place = Place(int(q_offset), q_length, int(kv_offset), kv_length, torch.device(device))
        return cls(batch_size, place, mask_function, attention_mask, use_vmap)

    @property
    def is_causal(self) -> bool:
        """Whether no query sees a key after itself."""
        return is_causal(self.function)

    @property
    def q_start(self) -> int:
        """Absolute position of the first query."""
        return self.place.q_start

    @property
    def kv_start(self) -> int:
        """Absolute position of the first key."""
        return self.place.kv_start

    @property
    def kv_len(self) -> int:
        """How many keys matter: a static cache's unused end is masked for every query of a causal model."""
        if not self.is_causal:
            return self.place.kv_len
        return max(0, min(self.place.kv_len, self.place.q_start + self.place.q_len - self.place.kv_start))

    @property
    def mask(self) -> Mask | None:
        """The mask over the keys that matter; None when everything is allowed."""
        known = (self.place.q_start, self.place.q_len)
        if known not in self.cache:
            place = replace(self.place, kv_len=self.kv_len)
            rule = to_mask(self.function, place, use_vmap=self.use_vmap)
            pads = padding(self.keep, place)
            self.cache[known] = pads if rule is None else rule if pads is None else rule & pads
        return self.cache[known]

    def rows(self, start: int, length: int) -> MaskRule:
        """The same rule for some of its queries."""
        if (start, length) == (0, self.place.q_len):
            return self
        return replace(self, place=replace(self.place, q_start=self.place.q_start + start, q_len=length))

    def first_keys(self, length: int) -> MaskRule:
        """The same rule for its first keys."""
        if length >= self.place.kv_len:
            return self
        return replace(self, place=replace(self.place, kv_len=length), cache={})

    def dense(self) -> Tensor:
        """The mask as transformers' sdpa would get it: bool, True = may attend, [batch, 1, q, kv]."""
        filled = masking_utils.sdpa_mask(
            batch_size=self.batch,
            q_length=self.place.q_len,
            kv_length=self.place.kv_len,
            q_offset=self.place.q_start,
            kv_offset=self.place.kv_start,
            mask_function=self.function,
            attention_mask=self.keep,
            allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False,
            use_vmap=self.use_vmap,
            device=self.place.device,
        )
        assert filled is not None, "sdpa_mask left out a mask although it was told not to"
        return filled


class LazyMask(Tensor):
    """A tensor [batch, 1, q, kv] without storage; see the module.

    Args:
        rule: What the mask says.
        dtype: What modelling code finds when it looks: bool, or the dtype of an additive mask.
        original: Makes the mask that the model's own implementation would have got (which may be None).
    """

    rule: MaskRule
    original: Callable[[], Tensor | None]

    @staticmethod
    def __new__(
        cls: type[LazyMask],
        rule: MaskRule,
        *,
        dtype: torch.dtype = torch.bool,
        original: Callable[[], Tensor | None] | None = None,
    ) -> LazyMask:
        """Make a tensor without storage."""
        shape = (rule.batch, 1, rule.place.q_len, rule.place.kv_len)
        mask: LazyMask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=rule.place.device)
        mask.rule = rule
        mask.original = original if original is not None else rule.dense
        return mask

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def filled(self) -> Tensor:
        """The mask with its cells, in the form its dtype promises."""
        made = self.original()
        if made is not None:
            return made
        allowed = self.rule.dense()
        if self.dtype == torch.bool:
            return allowed
        return torch.zeros(allowed.shape, dtype=self.dtype, device=self.device).masked_fill(
            ~allowed, torch.finfo(self.dtype).min
        )

    def __getitem__(self, index: Any) -> Tensor:
        rule = _cut(self.rule, index)
        if rule is None:
            return self.filled()[index]
        return LazyMask(rule, dtype=self.dtype, original=functools.partial(_cut_original, self.original, index))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SAME:
            return args[0]
        if func is torch.ops.aten._to_copy.default:
            mask = args[0]
            if kwargs.get("dtype") in (None, mask.dtype) and kwargs.get("device") in (None, mask.device):
                return mask
        args, kwargs = pytree.tree_map_only(LazyMask, LazyMask.filled, (args, kwargs))
        return func(*args, **kwargs)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"LazyMask({tuple(self.shape)})"


_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
_ALL = slice(None)


def lazy_mask(**call: Any) -> LazyMask:
    """The mask function that ``AttentionMaskInterface`` knows as "regard"."""
    return LazyMask(MaskRule.of_call(**call))


def _cut_original(original: Callable[[], Tensor | None], index: Any) -> Tensor | None:
    made = original()
    return None if made is None else made[index]


def _cut(rule: MaskRule, index: Any) -> MaskRule | None:
    """The rule for ``mask[:, :, rows, keys]``; None when the index asks for anything else."""
    if not (isinstance(index, tuple) and len(index) <= 4 and all(isinstance(part, slice) for part in index)):
        return None
    batch, heads, rows, keys = [*index, _ALL, _ALL, _ALL][:4] if index else [_ALL] * 4
    if batch != _ALL or heads != _ALL or rows.step not in (None, 1) or keys.step not in (None, 1):
        return None
    first, last, _ = rows.indices(rule.place.q_len)
    start, stop, _ = keys.indices(rule.place.kv_len)
    if start != 0 or last < first:
        return None
    return rule.rows(first, last - first).first_keys(stop)
