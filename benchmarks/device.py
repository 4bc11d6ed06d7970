"""Contract suite and benchmark on a device; benchmarks/device.sh starts it where there is one.

Every backend that runs there passes ``check_backend``, then the rows of ``regard bench`` are measured through it until
the time is used up: first each row through ``torch``, then through ``tiled``, so that a short run has both.

    python benchmarks/device.py [--device cuda] [--seconds 280] [--only PATTERN] [--out FILE.json]

Exit code 1: a backend broke the contract, or computed something else than its peers.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from regard.bench import ROWS, Plan, Report, measure_rows, print_report, select, setting
from regard.ops.testing import check_backend

BACKENDS = ("torch", "tiled")
ON_DEVICE = ("forward", "decode", "train", "observed", "module")
_ROUND_SECONDS = 2.0


def contract(device: str) -> dict[str, Any]:
    """What ``check_backend`` says of each backend."""
    found: dict[str, Any] = {}
    for name in BACKENDS:
        began = time.monotonic()
        try:
            report = check_backend(name, device=device)
            found[name] = {"passed": len(report.passed), "refused": len(report.refused), "problems": []}
        except AssertionError as broken:
            found[name] = {"passed": 0, "refused": 0, "problems": str(broken).splitlines()}
        found[name]["seconds"] = time.monotonic() - began
        told = "; ".join(found[name]["problems"]) or f"{found[name]['passed']} passed, {found[name]['refused']} refused"
        print(f"contract {name}: {told} ({found[name]['seconds']:.0f} s)", flush=True)
    return found


def main() -> None:
    """Check, measure, print one table."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=280, help="for everything")
    parser.add_argument("--only", help="rows whose name has this in it")
    parser.add_argument("--out", type=Path, help="keep the figures as JSON in this file")
    options = parser.parse_args()
    checked = contract(options.device)
    results = []
    for row in select(ROWS, only=options.only):
        if row.work not in ON_DEVICE:
            continue
        for backend in BACKENDS:
            # A row through a slow backend takes several seconds: none is begun in the last twenty.
            left = options.seconds - 20 - (time.monotonic() - began)
            plan = Plan(backend=backend, device=options.device, seconds=_ROUND_SECONDS, last_begin=left)
            results += measure_rows([row], plan)
    name = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else options.device
    where = {**setting(), "device": name, "threads": torch.get_num_threads(), "backend": ",".join(BACKENDS), "seed": 0}
    report = Report({**where, "contract": checked}, tuple(results))
    print_report(report)
    if options.out is not None:
        options.out.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    if report.wrong or any(one["problems"] for one in checked.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
