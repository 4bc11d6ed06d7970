"""The wheel is built with the native library where there is a compiler, and without harm where there is none."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from regard import ops
from regard.cli import _checks
from regard.errors import BackendUnavailableError
from regard.ops._backends import native_library

ROOT = Path(__file__).parent.parent
LIBRARY = f"regard/ops/_backends/{native_library.FILE_NAME}"

needs_compiler = pytest.mark.skipif(
    not (shutil.which(os.environ.get("CXX", "c++")) and shutil.which("cmake")), reason="needs a C++ compiler and cmake"
)
needs_linux = pytest.mark.skipif(
    not (sys.platform == "linux" and platform.machine() == "x86_64"), reason="the native part is for Linux on x86-64"
)
needs_sources = pytest.mark.skipif(find_spec("scikit_build_core") is None, reason="needs scikit-build-core")


def _wheel(folder: Path, **environment: str) -> zipfile.ZipFile:
    """Build the wheel of this checkout, offline, with these changes to the environment."""
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), *offline, "--quiet", "--wheel-dir", str(folder)],
        check=True,
        env={**os.environ, **environment},
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture
def library() -> Path:
    path = native_library.find()
    if path is None:
        pytest.skip("regard is installed without its native library")
    return path


@needs_sources
@needs_compiler
@needs_linux
def test_with_a_compiler_the_wheel_holds_the_library(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path)
    kernels = [f"regard/ops/_backends/libregard_{isa}.so" for isa in native_library.ISAS]
    assert {LIBRARY, *kernels} <= set(wheel.namelist())
    assert (wheel.filename or "").endswith("-py3-none-linux_x86_64.whl")


@needs_sources
def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-such-compiler")
    wheel = _wheel(tmp_path, CC=missing, CXX=missing)
    names = wheel.namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert (wheel.filename or "").endswith("-py3-none-any.whl")
    assert {"regard/py.typed", "regard/view/static/viewer.html"} <= set(names)
    assert not [name for name in names if not name.startswith(("regard/", "regard-"))]


def test_the_library_reports_what_the_cpu_has(library: Path) -> None:
    features = native_library.features()
    assert features is not None
    listed = Path("/proc/cpuinfo").read_text()
    assert features == {name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {name} " in listed}


def test_doctor_says_what_the_library_finds(library: Path) -> None:
    features = native_library.features()
    assert features is not None
    assert _checks._native() == f"finds {', '.join(sorted(features))}; kernels: {native_library.isa()}"


def test_doctor_says_when_no_kernels_serve(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "native_isa", lambda: None)
    assert _checks._native().endswith("; kernels: none, attention runs on PyTorch")


def test_doctor_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "native_features", lambda: None)
    assert _checks._native().startswith("not installed (a wheel without it, or no C++ compiler)")


def test_no_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "find", lambda file_name: None)
    assert native_library.load.__wrapped__() is None


def test_a_library_of_another_version_is_refused(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "ABI_VERSION", 1000)
    with pytest.raises(BackendUnavailableError, match=r"must have ABI version 1000, but has \d+: reinstall regard\.$"):
        native_library.load.__wrapped__()


def test_a_file_that_is_no_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / native_library.FILE_NAME
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(native_library, "find", lambda file_name: broken)
    with pytest.raises(BackendUnavailableError, match="cannot be loaded"):
        native_library.load.__wrapped__()
