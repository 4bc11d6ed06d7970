"""Where a figure was measured: machine, versions, commit. Every result file begins with it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def setting(**more: Any) -> dict[str, Any]:
    """The machine, the versions and the commit of this run, and what the benchmark adds (seeds, threads)."""
    packages = ("torch", "transformers", "numpy")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
        "commit": _COMMIT,
        **more,
    }


def write(name: str, figures: dict[str, Any], *, keep: bool = True) -> None:
    """Show the figures, and keep them in ``results/``."""
    text = json.dumps(figures, indent=2)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    """The commit that is measured, and whether there are changes to it."""
    root = str(Path(__file__).parents[1])
    try:
        called = {"capture_output": True, "text": True, "check": True}
        name = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], **called).stdout.strip()
        changed = ["git", "-C", root, "status", "--porcelain", "src", "benchmarks/*.py"]
        return name + ("+changes" if subprocess.run(changed, **called).stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


_COMMIT = _commit()  # when a benchmark begins: hours later there may be another
