"""One attention call, checked and in normal form: what every backend is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.ops._lower import Lowered, ends
from regard.ops._strip import Geometry, statistics_dtype
from regard.ops.biases import ALiBi, blocks

QStart = Literal["end", "start"] | int | Tensor
"""Where query 0 sits: "end" (queries are the last positions), "start", a number, or one number per batch row."""


@dataclass(frozen=True, eq=False)
class Call:
    """A checked attention call.

    Args:
        caller: Name of the public function, for messages.
        query: [batch, num_heads, q_len, head_dim].
        key: [batch, num_kv_heads, kv_len, head_dim].
        value: [batch, num_kv_heads, kv_len, value_dim]; None where only weights are asked for.
        geometry: Lengths and positions.
        mask: What is allowed; None when everything is.
        bias: What is added to the scores; four dimensions, each full or 1.
        scale: Multiplies q·k.
        logit_softcap: c of c·tanh(score / c), or None.
        sinks: One extra score per row, [batch | 1, heads | 1, q_len | 1], or None.
        dropout_p: Share of weights dropped from the output.
        seed: Of the dropout counter; a tensor of one int64.
        alibi: The rule of a bias that only ``native`` takes as it is; ``with_dense_bias`` writes it out for the others.
    """

    caller: str
    query: Float[Tensor, "batch heads q_len head_dim"]
    key: Float[Tensor, "batch kv_heads kv_len head_dim"]
    value: Float[Tensor, "batch kv_heads kv_len value_dim"] | None
    geometry: Geometry
    mask: Lowered | None
    bias: Float[Tensor, "batch_or_1 heads_or_1 q_len_or_1 kv_len_or_1"] | None
    scale: float
    logit_softcap: float | None
    sinks: Float[Tensor, "sink_batch sink_heads sink_q_len"] | None
    dropout_p: float
    seed: Tensor | None
    alibi: ALiBi | None = None

    def with_dense_bias(self) -> Call:
        """The same call with its bias as a tensor."""
        if self.alibi is None:
            return self
        return replace(self, bias=self.alibi.dense(self.geometry), alibi=None)

    @property
    def group(self) -> int:
        """Query heads per kv head; 1 where there are no heads."""
        return max(self.query.shape[1], 1) // max(self.key.shape[1], 1)

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """What a gradient can be asked for."""
        return self.query, self.key, self.value, self.bias, self.sinks

    @property
    def needs_grad(self) -> bool:
        """Whether autograd will ask for a gradient."""
        return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in self.inputs)

    @property
    def is_empty(self) -> bool:
        """Whether a length is 0, so that there is nothing to compute."""
        return self.query.numel() == 0 or self.key.numel() == 0 or (self.value is not None and self.value.numel() == 0)

    def allowed(self, rows: slice, keys: slice) -> Bool[Tensor, "batch_or_1 heads_or_1 r c"] | None:
        """Which keys of a tile each query may see, by mask and by bias; None when all of them."""
        allowed = None if self.mask is None else self.mask.allowed(self.geometry, rows, keys)
        if self.bias is None:
            return allowed
        unblocked = ~blocks(cut(self.bias, rows, keys))
        if allowed is not None:
            return allowed & unblocked
        ranges = ends(rows, self.geometry.q_len), ends(keys, self.geometry.kv_len)
        return unblocked.expand(-1, -1, *(stop - start for start, stop in ranges))


def cut(tensor: Tensor, rows: slice, keys: slice) -> Tensor:
    """Take a tile of a tensor of four dimensions, leaving axes of size 1 to broadcast."""
    tensor = tensor[:, :, rows] if tensor.shape[2] > 1 else tensor
    return tensor[..., keys] if tensor.shape[3] > 1 else tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether all values are finite: one linear pass, without a temporary of the tensor's size.

    A finite sum proves it. A sum that is not finite may be an overflow, so only then every value is looked at.
    """
    total = tensor.sum(dtype=statistics_dtype(tensor.dtype))
    return bool(total.isfinite()) or bool(tensor.isfinite().all())
