"""The scenes of ``check_backend``: small attention calls, each with its mask written out densely as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.ops.masks import Allowed, Blocked, Causal, Documents, Padding, Prefix, SlidingWindow, Where

_NAN, _INF = float("nan"), float("inf")


@dataclass(frozen=True, eq=False)
class Scene:
    """One attention call and, in ``allowed``, what its mask must mean.

    Args:
        name: Of the rule it shows.
        query: As for attend().
        key: As for attend().
        value: As for attend().
        mask: A mask value or bool tensor.
        allowed: The same mask, dense.
        bias: As for attend().
        sinks: As for attend().
        scalars: scale and logit_softcap.
        positions: q_start and kv_start.
        hidden: Keys (batch, position) that nobody may see; they are overwritten with NaN and Inf.
        zero_stride: Whether the gradient of the output is an expanded scalar, as that of ``output.sum()``.
    """

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any = None
    allowed: Tensor | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)
    hidden: tuple[tuple[int, int], ...] = ()
    zero_stride: bool = False

    def leaves(self, gradients: bool) -> dict[str, Tensor]:
        """Return the tensors a gradient can flow to; where nobody looks they hold NaN and Inf."""
        key, value = _overwrite(self.key, self.hidden, _NAN), _overwrite(self.value, self.hidden, _INF)
        given = {"query": self.query, "key": key, "value": value, "bias": self.bias, "sinks": self.sinks}
        return {name: tensor.detach().requires_grad_(gradients) for name, tensor in given.items() if tensor is not None}

    def options(self) -> dict[str, Any]:
        """Return the rest of the call."""
        return {"mask": self.mask, **self.scalars, **self.positions}

    def yardstick(self) -> dict[str, Any]:
        """Return what error_budget() is given: the same numbers, the mask dense, and nothing hidden behind it."""
        tensors = {"query": self.query, "key": self.key, "value": self.value, "bias": self.bias, "sinks": self.sinks}
        return {**tensors, "allowed": self.allowed, **self.scalars}

    def grad_output(self, output: Tensor) -> Tensor:
        """Return the gradient that arrives from above."""
        if self.zero_stride:
            return torch.ones((), dtype=output.dtype, device=output.device).expand(output.shape)
        made = torch.randn(output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        return made.to(output)


def scenes(dtype: torch.dtype, device: torch.device) -> Iterator[Scene]:
    """Build every scene in a dtype on a device."""
    for build in (_plain_scenes, _mask_scenes, _number_scenes, _layout_scenes, _empty_scenes, _hidden_scenes):
        yield from build(_Maker(dtype, device))


class _Maker:
    """Draws the tensors of scenes: seeded, so that every run sees the same ones."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._generator = torch.Generator().manual_seed(20261129)

    def tensor(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64).to(self._device, self._dtype)

    def to(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device)

    def heads(
        self,
        q_len: int,
        kv_len: int,
        *,
        batch: int = 2,
        heads: int = 2,
        kv_heads: int = 2,
        dims: tuple[int, int] = (8, 8),
    ) -> tuple[Tensor, Tensor, Tensor]:
        query = self.tensor(batch, heads, q_len, dims[0])
        return query, self.tensor(batch, kv_heads, kv_len, dims[0]), self.tensor(batch, kv_heads, kv_len, dims[1])

    def grid(self, q_len: int, kv_len: int) -> tuple[Tensor, Tensor]:
        """Positions of queries (at the end) and keys, ready to be compared."""
        q = torch.arange(kv_len - q_len, kv_len, device=self._device)
        return q[:, None], torch.arange(kv_len, device=self._device)[None, :]


def _plain_scenes(make: _Maker) -> Iterator[Scene]:
    yield Scene("plain", *make.heads(5, 7))
    yield Scene("plain square", *make.heads(6, 6), zero_stride=True)
    yield Scene("long", *make.heads(67, 133, batch=1))
    yield Scene("one query", *make.heads(1, 70))
    yield Scene("one key", *make.heads(3, 1))
    yield Scene("grouped heads", *make.heads(5, 9, heads=6, kv_heads=2))
    yield Scene("one kv head", *make.heads(5, 9, heads=3, kv_heads=1))
    yield Scene("wide values", *make.heads(5, 7, dims=(4, 12)))
    yield Scene("narrow values", *make.heads(5, 7, dims=(16, 3)))
    yield Scene("odd head_dim", *make.heads(5, 7, dims=(5, 7)))


def _mask_scenes(make: _Maker) -> Iterator[Scene]:
    for q_len, kv_len in ((6, 6), (3, 8), (8, 3), (1, 9), (70, 70), (33, 97)):
        q, k = make.grid(q_len, kv_len)
        size = f"{q_len}x{kv_len}"
        yield Scene(f"causal {size}", *make.heads(q_len, kv_len), mask=Causal(), allowed=k <= q)
        window = Causal() & SlidingWindow(3)
        yield Scene(f"window {size}", *make.heads(q_len, kv_len), mask=window, allowed=(k <= q) & (q - k < 3))
    q, k = make.grid(7, 9)
    keep = make.to(torch.tensor([[True] * 4 + [False] * 5, [False] * 3 + [True] * 6]))
    seen = keep[:, None, None, :]
    prefix = (Causal() | Prefix(4)) & Padding(keep)
    yield Scene("band", *make.heads(7, 9), mask=SlidingWindow(2), allowed=(q - k).abs() < 2)
    yield Scene("padding", *make.heads(7, 9), mask=Padding(keep), allowed=seen)
    yield Scene("causal and padding", *make.heads(7, 9), mask=Causal() & Padding(keep), allowed=seen & (k <= q))
    yield Scene("prefix and padding", *make.heads(7, 9), mask=prefix, allowed=seen & ((k <= q) | (k < 4)))
    yield Scene("not causal", *make.heads(7, 9), mask=~Causal(), allowed=k > q)
    ids = make.to(torch.tensor([[0, 0, 1, 1, 1, -1, 2, 2, -1], [3, 3, 3, 3, 3, 3, 3, 3, 3]]))
    same = (ids[:, :, None] == ids[:, None, :]) & (ids[:, None, :] >= 0)
    documents = Documents(ids)
    yield Scene("documents", *make.heads(9, 9), mask=documents, allowed=same[:, None])
    where = Where(lambda b, h, i, j: (i + j + h + b) % 3 != 0)
    b, h = (make.to(torch.arange(2)).view(shape) for shape in ((2, 1, 1, 1), (1, 2, 1, 1)))
    yield Scene("where", *make.heads(7, 9), mask=where, allowed=(q + k + h + b) % 3 != 0)
    dense = make.tensor(2, 2, 7, 9) > -0.3
    dense[0, 1, 2] = False
    yield Scene("allowed", *make.heads(7, 9), mask=Allowed(dense), allowed=dense)
    yield Scene("blocked", *make.heads(7, 9), mask=Blocked(~dense[:, :1]), allowed=dense[:, :1])
    yield Scene("bool tensor", *make.heads(7, 9), mask=dense[:1, :1], allowed=dense[:1, :1])
    for start in (0, 3):
        at = torch.arange(start, start + 2, device=k.device)[:, None]
        positions = {"q_start": start}
        yield Scene(f"q_start {start}", *make.heads(2, 9), mask=Causal(), allowed=k <= at, positions=positions)
    starts = make.to(torch.tensor([1, 6]))
    at = (starts[:, None] + torch.arange(2, device=k.device))[:, None, :, None]
    yield Scene("q_start rows", *make.heads(2, 9), mask=Causal(), allowed=k <= at, positions={"q_start": starts})


def _number_scenes(make: _Maker) -> Iterator[Scene]:
    q, k = make.grid(6, 6)
    yield Scene("scale", *make.heads(6, 6), scalars={"scale": 0.3})
    yield Scene("soft cap", *make.heads(6, 6), scalars={"scale": 1.0, "logit_softcap": 1.5})
    for shape in ((2, 2, 6, 6), (1, 2, 6, 6), (1, 1, 6, 6), (2, 1, 1, 6), (6, 6)):
        yield Scene(f"bias {shape}", *make.heads(6, 6), bias=make.tensor(*shape))
    blocked = make.tensor(1, 2, 6, 6)
    blocked[..., 2:4] = -_INF
    blocked[0, 0, 1] = torch.finfo(blocked.dtype).min
    yield Scene("blocking bias", *make.heads(6, 6), bias=blocked)
    everything: dict[str, Any] = {"bias": make.tensor(2, 1, 6, 6), "scalars": {"logit_softcap": 2.0}}
    yield Scene("bias, cap and mask", *make.heads(6, 6), mask=Causal(), allowed=k <= q, **everything)
    yield Scene("sinks", *make.heads(6, 6), sinks=make.tensor(2))
    yield Scene("sinks 4-D", *make.heads(6, 6), sinks=make.tensor(2, 2, 1, 1))
    nothing = (k <= q) & (q != 2)
    yield Scene("sink of an empty row", *make.heads(6, 6), mask=nothing, allowed=nothing, sinks=make.tensor(2))


def _layout_scenes(make: _Maker) -> Iterator[Scene]:
    q, k = make.grid(6, 6)
    layouts: dict[str, Callable[[int], Tensor]] = {
        "tokens before heads": lambda d: make.tensor(2, 6, 2, d).transpose(1, 2),
        "transposed": lambda d: make.tensor(2, 2, d, 6).mT,
        "every second": lambda d: make.tensor(2, 2, 12, 2 * d)[:, :, ::2, ::2],
        "expanded": lambda d: make.tensor(2, 1, 6, d).expand(2, 2, 6, d),
        "one row": lambda d: make.tensor(1, 1, 1, d).expand(2, 2, 6, d),
    }
    for name, layout in layouts.items():
        yield Scene(name, layout(8), layout(8), layout(8), mask=Causal(), allowed=k <= q)
    qkv = make.tensor(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
    yield Scene("packed", qkv[0], qkv[1], qkv[2])
    strided = (make.tensor(1, 1, 12, 12) > -0.5)[:, :, ::2, ::2].mT
    yield Scene("strided mask", *make.heads(6, 6), mask=strided, allowed=strided)
    yield Scene("strided bias", *make.heads(6, 6), bias=make.tensor(2, 1, 12, 6)[:, :, ::2].mT.expand(2, 2, 6, 6))


def _empty_scenes(make: _Maker) -> Iterator[Scene]:
    yield Scene("no keys", *make.heads(3, 0))
    yield Scene("no queries", *make.heads(0, 3))
    yield Scene("no batch", *make.heads(3, 3, batch=0))
    yield Scene("no head_dim", *make.heads(3, 4, dims=(0, 5)))
    yield Scene("no value_dim", *make.heads(3, 4, dims=(5, 0)))
    nothing = make.to(torch.zeros(6, 6, dtype=torch.bool))
    yield Scene("nothing allowed", *make.heads(6, 6), mask=nothing, allowed=nothing)
    yield Scene(
        "more queries than keys", *make.heads(9, 2), mask=Causal(), allowed=make.grid(9, 2)[1] <= make.grid(9, 2)[0]
    )


def _hidden_scenes(make: _Maker) -> Iterator[Scene]:
    """Keys that nobody may see hold NaN and Inf: the answer and every gradient are as if they were not there."""
    q, k = make.grid(6, 6)
    keep = make.to(torch.tensor([[True, True, False, True, False, True], [True] * 5 + [False]]))
    hidden = ((0, 2), (0, 4), (1, 5))
    seen = keep[:, None, None, :]
    yield Scene("NaN behind padding", *make.heads(6, 6), mask=Padding(keep), allowed=seen, hidden=hidden)
    both = Causal() & Padding(keep)
    yield Scene("NaN behind both", *make.heads(6, 6), mask=both, allowed=seen & (k <= q), hidden=hidden)
    bias = make.tensor(2, 1, 1, 6).masked_fill(~seen, -_INF)
    yield Scene("NaN behind bias", *make.heads(6, 6), bias=bias, hidden=hidden)
    late: dict[str, Any] = {
        "mask": Causal(),
        "allowed": k <= torch.arange(2, device=k.device)[:, None],
        "positions": {"q_start": 0},
    }
    beyond = tuple((b, j) for b in range(2) for j in range(2, 6))
    yield Scene("NaN in an unused cache", *make.heads(2, 6), hidden=beyond, **late)


def _overwrite(tensor: Tensor, hidden: tuple[tuple[int, int], ...], value: float) -> Tensor:
    if not hidden:
        return tensor
    changed = tensor.clone()
    for b, j in hidden:
        changed[b, :, j] = value
    return changed
