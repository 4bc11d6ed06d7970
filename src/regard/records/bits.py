"""bfloat16 as bits: numpy has no such type, so recordings keep its sixteen bits in uint16."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, UInt16


def widen(bits: UInt16[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """The float32 numbers that bfloat16 bits stand for; exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: Float32[np.ndarray, "*shape"]) -> UInt16[np.ndarray, "*shape"]:
    """Bits of the nearest bfloat16, ties to even, as torch rounds; NaN stays NaN."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
