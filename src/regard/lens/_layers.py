"""A layer: every call of one attention module that belongs to the same run over a sequence."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.lens._call import AttentionCall, Kind, layer_number
from regard.ops import Observation


class Layer:
    """What one attention module did: where it sits, and the value of every probe.

    The values are attributes named after their probes: ``layer.entropy``, ``layer.top_k.indices``. A module that is
    called again for later positions (a generation step) adds rows to its layer; a call that starts over, such as a
    second forward or a shared layer's next turn, is a layer of its own with the next ``index``.

    Args:
        name: Dotted name of the module in the watched model.
        index: How many earlier layers the same module has.
        via: The way in: "interface", "functional" or "softmax".
        call: The first call.
        observation: What its probes gathered.
    """

    def __init__(self, *, name: str, index: int, via: str, call: AttentionCall, observation: Observation) -> None:
        self.name = name
        self.index = index
        self.via = via
        self.kind: Kind = call.kind
        self.observation = observation
        self.num_heads = call.query.shape[1]
        self.num_kv_heads = call.key.shape[1]
        self.scale = call.scale if call.scale is not None else call.query.shape[-1] ** -0.5
        self.logit_softcap = call.logit_softcap
        self.has_sinks = call.sinks is not None
        self.kv_start = call.kv_start
        self.kv_end = call.kv_end
        self.batch = call.query.shape[0]
        self.kept = 0
        self.calls: list[AttentionStep] = []

    @property
    def number(self) -> int | None:
        """The first number in the name, which models use to count their layers; None when there is none."""
        return layer_number(self.name)

    @property
    def q_positions(self) -> Int[Tensor, "1 q"]:
        """Absolute position of every query seen so far."""
        return torch.cat([torch.arange(step.q_start, step.q_end) for step in self.calls])[None]

    @property
    def q_end(self) -> int:
        """One more than the absolute position of the last query."""
        return self.calls[-1].q_end

    @property
    def kv_len(self) -> int:
        """Number of key positions from the first ever seen to the last."""
        return self.kv_end - self.kv_start

    def continues(self, call: AttentionCall, q_start: int) -> bool:
        """Whether a call whose query 0 sits at ``q_start`` takes up where this layer stopped."""
        if q_start == 0 or q_start != self.q_end:
            return False
        shape = call.query.shape
        if (call.kind, shape[0], shape[1]) != (self.kind, self.batch, self.num_heads):
            return False
        if call.kind == "cross":
            return call.kv_end == self.kv_end
        return call.kv_start >= self.calls[-1].kv_start and call.kv_end >= self.kv_end

    def note(self, step: AttentionStep) -> None:
        """Count a call whose probes the observation has taken in."""
        self.calls.append(step)
        self.kv_end = max(self.kv_end, step.kv_end)

    def select(self, index: Int[Tensor, "new_batch"], kept: Int[Tensor, "kept"] | None = None) -> None:
        """Keep these batch rows, in this order (a beam search moved its hypotheses).

        Args:
            index: Rows that go on.
            kept: Rows that are finished; they are carried behind the others and gain empty rows from now on.
        """
        self.observation.select(index if kept is None else torch.cat([index, kept]))
        self.batch = index.numel()
        self.kept = 0 if kept is None else kept.numel()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or attribute == "observation":
            raise AttributeError(attribute)
        return getattr(self.observation, attribute)

    def __repr__(self) -> str:
        turn = f"[{self.index}]" if self.index else ""
        return (
            f"Layer({self.name}{turn}: {self.kind}, {self.num_heads} heads, {self.q_positions.shape[1]}×{self.kv_len})"
        )


_LARGEST_KEPT_MASK = 2**22


class AttentionStep:
    """The place of one call, and its mask until a recording is made; holds no query or key."""

    def __init__(self, call: AttentionCall, q_start: int) -> None:
        self.q_start = q_start
        self.q_end = q_start + call.q_len
        self.kv_start = call.kv_start
        self.kv_end = call.kv_end
        self.batch = call.query.shape[0]
        self.device = call.query.device
        self.has_bias = call.bias is not None
        self.mask = call.mask
        self.mask_kept = not (isinstance(call.mask, Tensor) and call.mask.numel() > _LARGEST_KEPT_MASK)
        if not self.mask_kept:
            self.mask = None
