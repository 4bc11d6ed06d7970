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
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain", "src") else ""),
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


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
