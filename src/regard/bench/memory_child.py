"""One side of a row, run once in this process, and the memory it took.

    python -m regard.bench.memory_child ROW SIDE BACKEND THREADS DEVICE SEED

The peak is that of the process's own memory map (VmHWM, set back to the current size just before the call), not
``ru_maxrss``: Linux hands that maximum on from the process that started this one, so the difference would be 0 wherever
that one is larger.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.bench.agreement import judge
from regard.bench.inputs import Inputs, make_inputs
from regard.bench.rows import Row
from regard.bench.sides import Side, UnavailablePeerError, peer_side, regard_side

_WARM_UP = 256  # tokens: loads libraries and starts threads, and allocates little


def measure_here(row: Row, side: str, *, backend: str, device: str, seed: int) -> dict[str, Any]:
    """Run one side once: the bytes it took beyond its inputs, and what is wrong with regard's results."""

    def prepare(one: Row) -> tuple[Inputs, Side]:
        inputs = make_inputs(one, seed=seed, device=device)
        return inputs, regard_side(inputs, backend=backend) if side == "regard" else peer_side(side, inputs)

    short = min(_WARM_UP, row.shape.q_len)
    bins = min(row.heat_map, short)
    with torch.no_grad():
        prepare(replace(row, shape=replace(row.shape, q_len=short, kv_len=short), heat_map=bins))[1]()
        inputs, call = prepare(row)
        before = _begin(device)
        result = call()
        taken = _peak(device) - before
        # Peers are judged where both sides are compared.
        problem = judge(inputs, {"regard": result}).get("regard") if side == "regard" else None
    return {"bytes": taken, "problem": problem}


def _begin(device: str) -> int:
    """Set the peak back to what is in use now, and tell that."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    _give_back_what_is_free()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError as error:
        raise UnavailablePeerError("only Linux can set the peak of a process back") from error
    return _status("VmRSS")


def _give_back_what_is_free() -> None:
    """Return freed memory to the system: what the call takes from it would not show in the peak."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _peak(device: str) -> int:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (kilobytes,) = re.findall(rf"^{name}:\s*(\d+) kB", text, flags=re.MULTILINE)
    return int(kilobytes) * 1024


def main(words: Sequence[str]) -> None:
    """Measure what the arguments ask for and print it as JSON."""
    row, side, backend, threads, device, seed = words
    torch.set_num_threads(int(threads))
    told = measure_here(Row.from_json(row), side, backend=backend, device=device, seed=int(seed))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
