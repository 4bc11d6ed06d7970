"""What explanations are computed from: the queries, keys and values of every attention call of a watched model.

    with regard.watch(model, keep=True) as seen:
        output = model(**inputs)
    regard.lens.rollout(seen, rows=[0])

Linear memory: no weight is kept. They are computed again where an explanation needs them, some rows at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError, message, must_be
from regard.lens._call import AttentionCall, Kind, stack_of
from regard.ops import Rows, Strip, measure, weight_strips

if TYPE_CHECKING:
    from regard.lens.seen import Seen


@dataclass(frozen=True, eq=False)
class Output:
    """What an attention function returned.

    Args:
        tensor: As the model goes on with it, in its graph.
        head_axis: Axis of the heads; the values are the last.
    """

    tensor: Tensor
    head_axis: int

    def by_head(self, like: Tensor | None = None) -> Float[Tensor, "batch heads q value_dim"]:
        """The output, or another tensor of its shape, with the axes in the order of ``attend``."""
        tensor = self.tensor if like is None else like
        return tensor.movedim(self.head_axis, -3).reshape(-1, *tensor.movedim(self.head_axis, -3).shape[-3:])

    def is_read_by(self, values: Tensor) -> bool:
        """Whether a tensor holds just this output, the heads of a query one after another."""
        heads, width = self.tensor.shape[self.head_axis], self.tensor.shape[-1]
        if values.numel() != self.tensor.numel() or values.shape[-1] != heads * width:
            return False
        merged = self.by_head().detach().transpose(1, 2)
        return bool(torch.equal(values.detach().reshape(-1), merged.reshape(-1)))


@dataclass(eq=False)
class KeptCall:
    """One attention call.

    Args:
        name: Dotted name of the module in the watched model.
        index: How many earlier runs over a sequence the same module has.
        call: Queries, keys, mask and what else makes its scores; detached.
        value: [batch, num_kv_heads, kv_len, value_dim]; None for a module that computes its own softmax.
        output: What the attention function returned; None where the module computed it by itself.
        silenced: Heads that a change has set to zero.
        projection: Weights [embed_dim, num_heads · value_dim] that the heads are projected with next; None where no
            such product was met.
    """

    name: str
    index: int
    call: AttentionCall
    value: Float[Tensor, "batch kv_heads kv value_dim"] | None
    output: Output | None
    silenced: tuple[int, ...] = ()
    projection: Float[Tensor, "embed heads_and_values"] | None = field(default=None, repr=False)

    @property
    def kind(self) -> Kind:
        """Self- or cross-attention."""
        return self.call.kind

    @property
    def q_start(self) -> int:
        """Absolute position of query 0."""
        return self.call.q_start or 0

    @property
    def q_end(self) -> int:
        """One more than the absolute position of the last query."""
        return self.q_start + self.call.q_len

    def strips(self) -> Iterator[Strip]:
        """The weights, some whole rows at a time, each over the keys that any of them sees."""
        call = self.call
        yield from weight_strips(call.query, call.key, **call.options())

    def places(self, strip: Strip) -> tuple[slice, slice]:
        """The absolute positions of the queries and of the keys of a strip."""
        q_start, kv_start = self.q_start, self.call.kv_start
        queries = slice(q_start + strip.rows.start, q_start + strip.rows.stop)
        return queries, slice(kv_start + strip.keys.start, kv_start + strip.keys.stop)

    def rows(self, positions: Sequence[int]) -> Float[Tensor, "batch heads rows kv"]:
        """The weights of queries at these absolute positions, which the call must have."""
        found: Tensor = measure(self.call.query, self.call.key, [Rows(positions)], **self.call.options()).rows
        return found


@dataclass(frozen=True, eq=False)
class KeptLayer:
    """The calls of one run of a module over a sequence: one for a text, one for each step of a generation.

    Args:
        name: Dotted name of the module.
        calls: In order of time.
    """

    name: str
    calls: tuple[KeptCall, ...]

    @property
    def kind(self) -> Kind:
        """Self- or cross-attention."""
        return self.calls[0].kind

    @property
    def batch(self) -> int:
        """Number of batch rows."""
        return self.calls[0].call.query.shape[0]

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.calls[0].call.query.shape[1]

    @property
    def q_start(self) -> int:
        """Absolute position of the first query."""
        return self.calls[0].q_start

    @property
    def q_end(self) -> int:
        """One more than the absolute position of the last query."""
        return self.calls[-1].q_end

    @property
    def kv_end(self) -> int:
        """One more than the absolute position of the last key."""
        return max(call.call.kv_end for call in self.calls)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.calls[0].call.query.device


def kept_layers(seen: Seen, *, caller: str, kind: Kind | None = None, modules: str | None = None) -> list[KeptLayer]:
    """The kept layers of a kind whose modules' names contain a match, in the order of their first calls.

    Raises:
        ConfigError: Nothing was kept, a beam search was followed, or there is no such layer.
    """
    if not seen.keeps:
        hint = "regard.watch(model, keep=True)"
        raise ConfigError(message(caller, must_be("seen", "of a watch that keeps its calls", "not"), hint=hint))
    if seen.followed_beams:
        problem = must_be("seen", "without a beam search", "of one, whose rows are slots and not hypotheses")
        hint = "watch one pass over the text that the search returned"
        raise ConfigError(message(caller, problem, hint=hint))
    groups: dict[tuple[str, int], list[KeptCall]] = {}
    for call in seen.calls:
        if kind in (None, call.kind) and (modules is None or re.search(modules, call.name)):
            groups.setdefault((call.name, call.index), []).append(call)
    if not groups:
        names = ", ".join(dict.fromkeys(call.name for call in seen.calls)) or "none"
        wanted = " ".join(filter(None, [kind and f"{kind}-attention", modules and f"matching {modules!r}"]))
        raise ConfigError(
            message(caller, f"there is no {wanted or 'attention'} among the calls that were kept: {names}.")
        )
    return [KeptLayer(name, tuple(calls)) for (name, _), calls in groups.items()]


def kept_stack(seen: Seen, *, caller: str, modules: str | None = None) -> list[KeptLayer]:
    """The self-attention layers that a text goes through one after another, the first one first.

    Raises:
        ConfigError: As ``kept_layers``; they are of several stacks, or do not read the same positions from the first.
    """
    layers = kept_layers(seen, caller=caller, kind="self", modules=modules)
    shapes = dict.fromkeys(
        (stack_of(layer.name), layer.batch, layer.q_start, layer.q_end, layer.kv_end) for layer in layers
    )
    if len(shapes) > 1:
        stacks = ", ".join(f"{name or 'the model'} ({batch} × {end - start})" for name, batch, start, end, _ in shapes)
        hint = "modules= says which"
        problem = f"the layers must be of one stack over one text, but are of {len(shapes)}: {stacks}."
        raise ConfigError(message(caller, problem, hint=hint))
    if layers[0].q_start != 0:
        problem = f"the text must be seen from its beginning, but the first query sits at {layers[0].q_start}."
        raise ConfigError(message(caller, problem))
    return layers


def one_layer(seen: Seen, name: str, *, caller: str) -> KeptLayer:
    """The kept layer of a module, whose name may be given by its end.

    Raises:
        ConfigError: As ``kept_layers``; there is none, or there are several.
    """
    layers = kept_layers(seen, caller=caller)
    found = [layer for layer in layers if layer.name == name]
    found = found or [layer for layer in layers if layer.name.endswith(f".{name}")]
    if len(found) != 1:
        names = ", ".join(layer.name for layer in layers)
        problem = must_be(
            "name", "the name, or the end of the name, of one layer", f"{name!r}, which is of {len(found)}"
        )
        raise ConfigError(message(caller, problem, hint=f"there are: {names}"))
    return found[0]


def places_of(rows: Sequence[int], start: int, end: int, *, caller: str, argument: str = "rows") -> list[int]:
    """Absolute positions of queries, the last ones counted back from −1.

    Raises:
        ConfigError: A position that was not seen.
    """
    given = [*rows] if isinstance(rows, Iterable) else []
    wrong = [
        row
        for row in given
        if isinstance(row, bool) or not isinstance(row, int) or not start <= row + (row < 0) * end < end
    ]
    if wrong or not given:
        expected = f"one or more positions from {start} to {end - 1}, or from −1 back"
        raise ConfigError(message(caller, must_be(argument, expected, repr(wrong[0] if wrong else rows))))
    return [row + (row < 0) * end for row in given]
