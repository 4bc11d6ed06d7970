"""Linear memory is a promise: at 16,384 keys nothing of the size of the weight matrix is ever held."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import resource, sys, torch
torch.set_num_threads(1)
from regard.ops import Causal, SlidingWindow, attend, measure, observe
from regard.ops.probes import Entropy, KeyMass, TopK, HeatMap
def inputs(length, heads=1):
    return [torch.randn(1, heads, length, 8, requires_grad=grad) for _ in range(3)]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
grad = False
attend(*inputs(64), mask=Causal(), backend="tiled"); measure(*inputs(64)[:2], [Entropy(), KeyMass(), TopK(4)])
"""
BODIES = {
    # name: (code, length); the dense matrix is length² · 4 bytes
    "attend": ('attend(*tensors, mask=Causal(), backend="tiled")', 16384),
    "attend auto": ("attend(*tensors, mask=Causal() & SlidingWindow(64))", 16384),
    "measure": ("measure(*tensors[:2], [Entropy(), KeyMass(), TopK(8), HeatMap(64, 64)], mask=Causal())", 16384),
    "backward": ('attend(*tensors, mask=Causal(), backend="tiled").sum().backward()', 8192),
}


@pytest.mark.parametrize("name", BODIES)
def test_peak_memory_is_far_below_the_weight_matrix(name: str) -> None:
    import regard

    code, length = BODIES[name]
    script = PREAMBLE + textwrap.dedent(f"""
        grad = {name == "backward"}
        tensors = inputs({length})
        before = peak()
        {code}
        print(peak() - before)
    """)
    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    grown, dense = int(done.stdout.split()[-1]), length * length * 4 >> 20
    assert grown < dense / 4, f"{grown} MiB beside a weight matrix of {dense} MiB"
