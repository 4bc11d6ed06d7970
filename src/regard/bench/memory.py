"""Extra peak memory of one call, measured in a process of its own (``regard.bench.memory_child``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import regard
from regard.bench.rows import Row
from regard.bench.sides import UnavailablePeerError


def extra_peak(row: Row, side: str, *, backend: str, threads: int, device: str, seed: int) -> tuple[int, str | None]:
    """Bytes that one side of a row needs beyond its inputs, its output included.

    Args:
        row: The row.
        side: "regard" or a peer.
        backend: For regard.
        threads: Of torch, there.
        device: Where the tensors lie.
        seed: Of the tensors.

    Returns:
        The bytes, and what is wrong with regard's results there (None for nothing, and for peers).

    Raises:
        UnavailablePeerError: The system does not tell, or the call failed there.
    """
    words = [row.to_json(), side, backend, str(threads), device, str(seed)]
    source = str(Path(regard.__file__ or "").parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "regard.bench.memory_child", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UnavailablePeerError(f"its own process failed: {last}")
    told = json.loads(done.stdout)
    return told["bytes"], told["problem"]
