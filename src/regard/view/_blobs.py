"""Arrays as the page carries them: little-endian, deflated, base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from jaxtyping import Shaped

_LEVEL = 1  # weights are noise to a compressor: higher levels take six times as long for at most 4 % less
_DTYPES = {"f32": "<f4", "u8": "|u1", "i32": "<i4"}


class Blobs:
    """Gathers arrays under names that the payload refers to."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}

    def add(self, name: str, dtype: str, array: Shaped[np.ndarray, "..."] | None) -> str | None:
        """Take an array in; returns its name, or None for None."""
        if array is None:
            return None
        with np.errstate(over="ignore"):
            content = np.ascontiguousarray(array, dtype=_DTYPES[dtype]).tobytes()
        data = base64.b64encode(zlib.compress(content, _LEVEL)).decode("ascii")
        self.records[name] = {"dtype": dtype, "shape": list(array.shape), "data": data}
        return name

    @property
    def characters(self) -> int:
        """Length of everything so far, as it will stand in the page."""
        return sum(len(record["data"]) for record in self.records.values())
