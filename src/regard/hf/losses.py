"""The losses that our models return where ``labels`` are given, counted as ``Trainer`` counts them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # a label that no loss counts, as everywhere in transformers


def token_loss(
    logits: Float[Tensor, "batch length vocab_size"], labels: Int[Tensor, "batch length"], num_items: Any = None
) -> Float[Tensor, ""]:
    """Cross-entropy per counted token, in nats.

    Args:
        logits: Of every token.
        labels: What each should be; −100 is not counted.
        num_items: What the sum is divided by, so that accumulated steps weigh every token alike; by default the tokens
            counted here.
    """
    total = functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    if num_items is None:
        num_items = (labels != IGNORED).sum().clamp(min=1)
    loss: Tensor = total / num_items
    return loss


def shifted_right(
    labels: Int[Tensor, "batch length"], *, start: int, pad_id: int | None
) -> Int[Tensor, "batch length"]:
    """What a decoder reads while it learns to write ``labels``: the start token, then all but the last of them."""
    shifted = torch.cat([labels.new_full((labels.shape[0], 1), start), labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, start if pad_id is None else pad_id)
