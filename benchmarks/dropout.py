"""How fast dropout is beside torch's, forward and backward, and that both drop the same share.

python benchmarks/dropout.py [--threads N] [--rounds 41]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from setting import setting, write
from torch import Tensor

from regard.bench import BUSY, OtherProcesses, Spread, interleave
from regard.nn import dropout

SEED, P, SHAPE = 0, 0.1, (1200, 1024)
Drop = Callable[[Tensor, float], Tensor]
SIDES: dict[str, Drop] = {"torch": torch.nn.functional.dropout, "regard": dropout}


def step(drop: Drop, x: Tensor, grad: Tensor | None) -> None:
    """Forward, and backward if there is a gradient to start from."""
    output = drop(x, P)
    if grad is not None:
        torch.autograd.grad(output, x, grad)


def share(drop: Drop, x: Tensor) -> float:
    """What is dropped, over enough calls to tell 0.1 from 26/256."""
    return sum(float((drop(torch.ones_like(x), P) == 0).double().mean()) for _ in range(20)) / 20


def measure(dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    """Check the shares, then time both in turn."""
    x = torch.randn(SHAPE).to(dtype).requires_grad_()
    shares = {name: share(drop, x) for name, drop in SIDES.items()}
    if any(abs(found - P) > 4.5 * (P * (1 - P) / (20 * x.numel())) ** 0.5 for found in shares.values()):
        return {"status": "disagrees", "shares": shares}
    result: dict[str, Any] = {"status": "measured", "shares": shares}
    others = OtherProcesses()
    for name, grad in (("forward", None), ("forward_and_backward", torch.randn(SHAPE).to(dtype))):
        times = interleave(
            {side: lambda drop=drop, grad=grad: step(drop, x, grad) for side, drop in SIDES.items()}, rounds=rounds
        )
        ratios = [a / b for a, b in zip(times["torch"], times["regard"], strict=True)]
        result[name] = {
            "seconds": {side: asdict(Spread.of(found)) for side, found in times.items()},
            "speedup": asdict(Spread.of(ratios)),
        }
    busy = others.share()
    return {**result, "other_cpu": busy, "doubtful": busy is not None and busy > BUSY}


def main() -> None:
    """Measure float32 and bfloat16 and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    found = {
        str(dtype).removeprefix("torch."): measure(dtype, options.rounds) for dtype in (torch.float32, torch.bfloat16)
    }
    where = setting(seed=SEED, threads=options.threads, rounds=options.rounds)
    write("dropout", {**where, "p": P, "shape": SHAPE, "dtypes": found})
    if any(one["status"] != "measured" for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
