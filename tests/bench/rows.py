"""Rows small enough for tests."""

from __future__ import annotations

from regard.bench import Row
from regard.bench.rows import shape


def tiny(work="forward", case="plain", dtype="fp32", peers=("sdpa",), *, size=None, heat_map=8, **more):
    default = shape(1, 4, 1, 16, kv_len=64, kv_heads=2) if work == "decode" else shape(2, 2, 32, 16)
    return Row(work, case, size or default, dtype, peers, heat_map=heat_map, **more)
