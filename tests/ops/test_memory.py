"""Linear memory is a promise: at 16,384 keys nothing of the size of the weight matrix is ever held."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
import torch
from regard.ops import Causal, SlidingWindow, attend, measure
from regard.ops.probes import Entropy, HeatMap, KeyMass, TopK

torch.set_num_threads(1)
PROBES = [Entropy(), KeyMass(), TopK(8), HeatMap(64, 64)]

def inputs(length, **options):
    return [torch.randn(1, 1, length, 8, **options) for _ in range(3)]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

attend(*inputs(64), mask=Causal(), backend="tiled")
measure(*inputs(64)[:2], PROBES)
tensors, learned = inputs(16384), inputs(8192, requires_grad=True)
before = peak()
attend(*learned, mask=Causal(), backend="tiled").sum().backward()
backward = peak()
attend(*tensors, mask=Causal() & SlidingWindow(64))
attend(*tensors, mask=Causal(), backend="tiled")
forward = peak()
measure(*tensors[:2], PROBES, mask=Causal())
print(backward - before, forward - before, peak() - before)
"""


@pytest.fixture(scope="module")
def grown() -> dict[str, int]:
    """MiB by which the peak of a fresh process grew; it never falls, so each figure includes those before it."""
    import regard

    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(("backward", "attend", "measure"), map(int, done.stdout.split()[-3:]), strict=True))


@pytest.mark.parametrize(("name", "length"), [("backward", 8192), ("attend", 16384), ("measure", 16384)])
def test_peak_memory_is_far_below_the_weight_matrix(name: str, length: int, grown: dict[str, int]) -> None:
    dense = length * length * 4 >> 20
    assert grown[name] < dense / 4, f"{grown[name]} MiB beside a weight matrix of {dense} MiB"
