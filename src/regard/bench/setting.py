"""Where and with what a figure was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from regard import __version__, ops

_SOURCE = Path(__file__).resolve().parents[1]


def setting() -> dict[str, Any]:
    """The machine, the kernels, the versions and the commit; None where the system does not tell."""
    features = ops.native_features()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "isa": isa(),
        "cpu_features": None if features is None else sorted(features),
        "regard": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "commit": commit(),
    }


def isa() -> str | None:
    """Which build of the native kernels serves this process; None without kernels."""
    return ops.native_isa()


def processor() -> str | None:
    """The CPU's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def commit() -> str | None:
    """The commit of the checkout this package lies in, with a mark if the package was changed since; None elsewhere."""
    # A virtual environment may lie inside somebody's own checkout: this package must be part of it.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head, changes = _git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain", ".")
    return None if head is None else head + ("+changes" if changes else "")


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(_SOURCE), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
