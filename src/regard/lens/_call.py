"""One attention call as a model made it, in the vocabulary of ``regard.ops``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.ops import ALiBi, Mask
from regard.ops.biases import blocks

Kind = Literal["self", "cross"]
_CROSS = re.compile(r"cross|encoder_attn|encdec|multihead_attn", re.IGNORECASE)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall:
    """What a way in (an adapter, a function mode) hands to a session.

    Args:
        query: After rotary embedding and projection.
        key: After the cache update, not repeated for grouped heads.
        kind: Whether queries and keys come from the same sequence.
        mask: What is allowed, or None for everything.
        bias: What is added to the scores.
        scale: Multiplies the scores; None for head_dim^−½.
        logit_softcap: c of c·tanh(s/c), or None.
        sinks: Logits of the attention sinks, or None.
        q_start: Absolute position of query 0; None when only the calls around this one can tell (cross-attention
            during generation is not told where its queries sit).
        kv_start: Absolute position of key 0.
        notes: Remarks for the coverage, such as an assumption that had to be made.
    """

    query: Float[Tensor, "batch heads q head_dim"]
    key: Float[Tensor, "batch kv_heads kv head_dim"]
    kind: Kind
    mask: Mask | Tensor | None = None
    bias: ALiBi | Tensor | None = None
    scale: float | None = None
    logit_softcap: float | None = None
    sinks: Tensor | None = None
    q_start: int | None = 0
    kv_start: int = 0
    notes: tuple[str, ...] = ()

    @property
    def q_len(self) -> int:
        """Number of queries."""
        return self.query.shape[2]

    @property
    def kv_end(self) -> int:
        """One more than the absolute position of the last key."""
        return self.kv_start + self.key.shape[2]

    def options(self) -> dict[str, Any]:
        """The keyword arguments that ``attend``, ``measure`` and ``weights`` share."""
        return {
            "mask": self.mask,
            "bias": self.bias,
            "scale": self.scale,
            "logit_softcap": self.logit_softcap,
            "sinks": self.sinks,
            "q_start": "end" if self.q_start == self.kv_end - self.q_len else self.q_start or 0,
            "kv_start": self.kv_start,
        }


def what_blocks(bias: ALiBi | Tensor | None) -> Float[Tensor, "batch_or_1 heads_or_1 q_or_1 kv_or_1"] | None:
    """What a bias blocks, as −inf, without what it adds; None where it blocks nothing by its kind."""
    if not isinstance(bias, Tensor):
        return None
    nothing = torch.zeros_like(bias, dtype=torch.promote_types(bias.dtype, torch.float32))
    return nothing.masked_fill(blocks(bias), -torch.inf)


def layer_number(name: str) -> int | None:
    """The first number in a module's name, which models use to count their layers; None when there is none."""
    found = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(found.group(1)) if found else None


def stack_of(name: str) -> str:
    """The part of a module's name before its layer number."""
    return re.split(r"(?:^|\.)\d+(?:\.|$)", name)[0]


def kind_of(name: str, query: Tensor, key: Tensor, *, q_len: int, kv_len: int) -> Kind:
    """Self- or cross-attention, by the module's name, then by identity of the inputs, then by their lengths."""
    last = name.rpartition(".")[2]
    if _CROSS.search(last):
        return "cross"
    if "self" in last.lower() or query is key or q_len == kv_len:
        return "self"
    return "cross"
