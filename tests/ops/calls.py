"""Hypothesis strategies that build whole attention calls, each with an independent statement of what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from regard.ops import Allowed, Blocked, Causal, Documents, Padding, Prefix, SlidingWindow, Where
from tests.ops import oracle
from tests.ops.oracle import Rule

INF = float("inf")


@dataclass(frozen=True)
class Call:
    """One call of attend(), and its mask as a Python predicate."""

    query: Tensor
    key: Tensor
    value: Tensor
    rule: Rule | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    scale: float | None = None
    logit_softcap: float | None = None
    q_start: Any = "end"
    kv_start: int = 0
    label: str = field(default="", repr=True)

    def __repr__(self) -> str:
        shapes = {name: tuple(t.shape) for name, t in self.tensors.items()}
        rest = f"q_start={self.q_start} kv_start={self.kv_start} scale={self.scale} softcap={self.logit_softcap}"
        return f"Call({shapes} mask={self.rule.value if self.rule else None} {rest} {self.label})"

    @property
    def tensors(self) -> dict[str, Tensor]:
        given = {"query": self.query, "key": self.key, "value": self.value, "bias": self.bias, "sinks": self.sinks}
        return {name: tensor for name, tensor in given.items() if tensor is not None}

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of attend() and weights() beside query, key and value."""
        return {
            "mask": self.rule.value if self.rule else None,
            "bias": self.bias,
            "sinks": self.sinks,
            "scale": self.scale,
            "logit_softcap": self.logit_softcap,
            "q_start": self.q_start,
            "kv_start": self.kv_start,
        }

    @property
    def numbers(self) -> dict[str, Any]:
        """Keywords of error_budget() beside query, key and value."""
        return {
            "allowed": self.allowed,
            "bias": self.bias,
            "sinks": self.sinks,
            "scale": self.scale,
            "logit_softcap": self.logit_softcap,
        }

    @property
    def allowed(self) -> Tensor:
        batch, heads, q_len, _ = self.query.shape
        sees = self.rule.sees if self.rule else None
        return oracle.sees_matrix(sees, batch, heads, q_len, self.key.shape[2], self.q_start, self.kv_start)

    def to(self, dtype: torch.dtype) -> Call:
        """The call in another dtype, layouts kept."""
        cast = {name: tensor.to(dtype) for name, tensor in self.tensors.items()}
        return replace(self, **cast)

    def answer(self) -> oracle.Answer:
        return oracle.answer(
            self.query,
            self.key,
            self.value,
            sees=self.rule.sees if self.rule else None,
            bias=self.bias,
            sinks=self.sinks,
            scale=self.scale,
            logit_softcap=self.logit_softcap,
            q_start=self.q_start,
            kv_start=self.kv_start,
        )


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    # each returns the same numbers in other strides
    "contiguous": lambda t: t,
    "tokens first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "features transposed": lambda t: t.mT.contiguous().mT,
    "every second": lambda t: _every_second(t),
    "sliced": lambda t: torch.cat([t.new_full((*t.shape[:2], 2, t.shape[3]), 9.0), t], 2)[:, :, 2:],
}


def _every_second(tensor: Tensor) -> Tensor:
    wide = tensor.new_full((*tensor.shape[:2], 2 * tensor.shape[2], 2 * tensor.shape[3]), 9.0)
    view = wide[:, :, ::2, ::2]
    view.copy_(tensor)
    return view


@st.composite
def calls(draw: st.DrawFn, *, dtype: torch.dtype = torch.float64, infinite_bias: bool = False) -> Call:
    """A whole call: shapes, layouts, mask, bias, sinks, soft cap, positions.

    Args:
        draw: Of hypothesis.
        dtype: Of every tensor.
        infinite_bias: Whether the bias may hold +inf (rows of NaN).
    """
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32), label="seed"))
    batch = draw(st.sampled_from([1, 2, 2, 3]), label="batch")
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2)]), label="heads")
    q_len = draw(st.sampled_from([1, 2, 3, 5, 0]), label="q_len")
    kv_len = draw(st.sampled_from([1, 3, 4, 7, 0]), label="kv_len")
    head_dim, value_dim = draw(st.sampled_from([(4, 4), (3, 5), (8, 1)]), label="dims")
    loud = draw(st.sampled_from([1.0, 1.0, 4.0]), label="loudness")

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def laid_out(*shape: int) -> Tensor:
        return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)), label="layout")](tensor(*shape))

    heads = kv_heads * group
    key, value = laid_out(batch, kv_heads, kv_len, head_dim), laid_out(batch, kv_heads, kv_len, value_dim)
    if draw(st.booleans(), label="expanded kv"):
        key, value = (t[:, :1].expand(-1, kv_heads, -1, -1) for t in (key, value))
    shape = (batch, heads, q_len, kv_len)
    kv_start = draw(st.sampled_from([0, 0, 3]), label="kv_start")
    return Call(
        query=laid_out(batch, heads, q_len, head_dim) * loud,
        key=key,
        value=value,
        rule=draw(st.none() | rules(shape, generator)),
        bias=draw(st.none() | biases(shape, generator, dtype, infinite_bias)),
        sinks=draw(st.sampled_from([None, tensor(heads), tensor(batch, heads, 1, 1), tensor(1, heads, q_len, 1)])),
        scale=draw(st.sampled_from([None, None, 0.7])),
        logit_softcap=draw(st.sampled_from([None, None, 1.5])),
        q_start=draw(q_starts(shape, kv_start)),
        kv_start=kv_start,
    )


def q_starts(shape: tuple[int, int, int, int], kv_start: int) -> st.SearchStrategy[Any]:
    """Every way of saying where the queries sit; "start" only where keys start at 0 too."""
    last = max(shape[3] - shape[2], 0) + kv_start
    per_row = st.lists(st.integers(0, last + 1), min_size=shape[0], max_size=shape[0]).map(torch.tensor)
    named = ["end"] if kv_start else ["end", "start"]
    return st.sampled_from(named) | st.integers(0, last + 1) | per_row


def biases(
    shape: tuple[int, int, int, int], generator: torch.Generator, dtype: torch.dtype, infinite: bool = False
) -> st.SearchStrategy[Tensor]:
    """Biases that broadcast in every way, some cells blocking in every way."""

    @st.composite
    def build(draw: st.DrawFn) -> Tensor:
        batch, heads, q_len, kv_len = shape
        options = [shape, (1, heads, q_len, kv_len), (batch, 1, 1, kv_len), (1, 1, q_len, kv_len), (q_len, kv_len)]
        size = draw(st.sampled_from(options), label="bias shape")
        made = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
        special = [-INF, torch.finfo(dtype).min] + ([INF] if infinite else [])
        for special_value in draw(st.lists(st.sampled_from(special), max_size=2), label="special bias"):
            cells = torch.rand(size, generator=generator) < 0.2
            made = made.masked_fill(cells, special_value)
        return made

    return build()


def rules(shape: tuple[int, int, int, int], generator: torch.Generator) -> st.SearchStrategy[Rule]:
    """Masks: every value there is, composed at random by &, | and ~."""

    def leaf(number: int) -> Rule:
        with pytest.MonkeyPatch.context() as patch:  # the shape checker draws random numbers: not while drawing
            patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
            return _LEAVES[number](shape, generator)

    leaves = st.sampled_from(range(len(_LEAVES))).map(leaf)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            inner.map(lambda one: ~one),
        ),
        max_leaves=4,
    )


Leaf = Callable[[tuple[int, int, int, int], torch.Generator], Rule]


def _coin(generator: torch.Generator, *size: int, heads_up: float = 0.6) -> Tensor:
    return torch.rand(*size, generator=generator) < heads_up


def _integer(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=generator))


def causal(_shape: Any = None, _generator: Any = None) -> Rule:
    return Rule(Causal(), lambda b, h, i, j, qp, kp: kp <= qp)


def _window(shape: Any, generator: torch.Generator) -> Rule:
    size = _integer(generator, 1, 5)
    return Rule(SlidingWindow(size), lambda b, h, i, j, qp, kp: abs(qp - kp) < size)


def _padding(shape: Any, generator: torch.Generator) -> Rule:
    keep = _coin(generator, shape[0], shape[3])
    return Rule(Padding(keep), lambda b, h, i, j, qp, kp: bool(keep[b, j]))


def _documents(shape: Any, generator: torch.Generator) -> Rule:
    key_ids = torch.randint(-1, 2, (shape[0], shape[3]), generator=generator)
    query_ids = torch.randint(-1, 2, (shape[0], shape[2]), generator=generator)
    return Rule(
        Documents(key_ids, query_ids),
        lambda b, h, i, j, qp, kp: bool(key_ids[b, j] == query_ids[b, i] and key_ids[b, j] >= 0),
    )


def _prefix(shape: Any, generator: torch.Generator) -> Rule:
    length = _integer(generator, 0, 5)
    return Rule(Prefix(length), lambda b, h, i, j, qp, kp: kp < length)


def _prefixes(shape: Any, generator: torch.Generator) -> Rule:
    lengths = torch.randint(0, 5, (shape[0],), generator=generator)
    return Rule(Prefix(lengths), lambda b, h, i, j, qp, kp: kp < int(lengths[b]))


def _allowed(shape: Any, generator: torch.Generator) -> Rule:
    cells = _coin(generator, *shape)
    return Rule(Allowed(cells), lambda b, h, i, j, qp, kp: bool(cells[b, h, i, j]))


def _allowed_per_head(shape: Any, generator: torch.Generator) -> Rule:
    cells = _coin(generator, 1, shape[1], 1, shape[3])
    return Rule(Allowed(cells), lambda b, h, i, j, qp, kp: bool(cells[0, h, 0, j]))


def _blocked(shape: Any, generator: torch.Generator) -> Rule:
    cells = _coin(generator, shape[0], 1, shape[2], shape[3], heads_up=0.3)
    return Rule(Blocked(cells), lambda b, h, i, j, qp, kp: not bool(cells[b, 0, i, j]))


def _where(shape: Any, generator: torch.Generator) -> Rule:
    divisor = _integer(generator, 2, 4)
    return Rule(
        Where(lambda b, h, i, j: (i + 2 * j + h + b) % divisor != 0),
        lambda b, h, i, j, qp, kp: (qp + 2 * kp + h + b) % divisor != 0,
    )


_LEAVES: tuple[Leaf, ...] = (
    causal,
    causal,
    _window,
    _padding,
    _documents,
    _prefix,
    _prefixes,
    _allowed,
    _allowed_per_head,
    _blocked,
    _where,
)
