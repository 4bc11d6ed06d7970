"""Whether products are computed in bfloat16."""

from __future__ import annotations

import torch

from regard.train.settings import Precision


def computes_in_bf16(precision: Precision) -> bool:
    """Whether to compute in bfloat16: as told, or where the device has instructions for it."""
    if precision != "auto":
        return precision == "bf16"
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.cpu._is_avx512_bf16_supported())
