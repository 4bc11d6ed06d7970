"""Recordings of attention that a model returns itself, where a watch sees none of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import regard
from regard.lens._recording import arrays_of, description_of
from regard.lens.usual import usual_probes
from regard.ops import Geometry, Strip
from regard.ops.probes import HeatMap
from regard.records import Call, Coverage, Model, Recording
from regard.records import Sequence as TokenSequence


def recording_from_weights(
    weights: Float[Tensor, "batch heads q kv"],
    *,
    name: str,
    kind: Literal["self", "cross"],
    sequences: Sequence[Sequence[TokenSequence]],
    model_name: str,
    architecture: str | None = None,
    notes: Sequence[str] = (),
) -> Recording:
    """The usual probes of weights that are there already, each by its definition.

    Args:
        weights: Every row sums to one, or to zero.
        name: Of the attention, as the page shows it, such as ``decoder.cross``.
        kind: Whether queries and keys are of one text ("self"), or of two ("cross").
        sequences: Per batch item the tokens of the keys, and for "cross" those of the queries after them.
        model_name: Shown on the page.
        architecture: The class of the model.
        notes: What a person should know.

    Returns:
        A recording with one call.

    Cost:
        Quadratic, as the weights are.
    """
    weights = weights.detach().cpu().to(torch.promote_types(weights.dtype, torch.float32))
    probes = usual_probes(max(weights.shape[2:]))
    strip = _whole(weights)
    pooled = tuple(probe.attribute for probe in probes if isinstance(probe, HeatMap))
    values: dict[str, np.ndarray] = {}
    for probe in probes:
        values |= arrays_of(probe, probe.define(strip))
    call = Call(
        name=name,
        kind=kind,
        sequence_q=sequences[0][-1].name,
        sequence_k=sequences[0][0].name,
        q_positions=strip.geometry.q_positions.numpy(),
        kv_start=0,
        kv_len=weights.shape[3],
        num_heads=weights.shape[1],
        num_kv_heads=weights.shape[1],
        scale=1.0,
        logit_softcap=None,
        has_sinks=False,
        mask=None,
        mask_stored=True,
        values=values,
        probes={probe.attribute: description_of(probe) for probe in probes},
        exact=tuple(probe.attribute for probe in probes if probe.attribute not in pooled),
        pooled=pooled,
        layer=None,
    )
    return Recording(
        model=Model(model_name, architecture=architecture),
        sequences=tuple(tuple(item) for item in sequences),
        calls=(call,),
        coverage=(Coverage(name, "seen", "from the weights that the model returns"),),
        notes=tuple(notes),
        regard_version=regard.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _whole(weights: Tensor) -> Strip:
    """The weights as scores would have made them: log(weight) is such a score, and 0 the log of their sum."""
    batch, heads, q_len, kv_len = weights.shape
    geometry = Geometry(batch, heads, q_len, kv_len, torch.arange(q_len)[None], 0, weights.dtype, weights.device)
    row = weights.new_zeros(batch, heads, q_len)
    return Strip(geometry, 0, 0, logits=weights.log(), weights=weights, lse=row, sink_share=row)
