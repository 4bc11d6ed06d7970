"""The native libraries: where they lie, which one fits this CPU, and their C structures.

One small library says what the CPU can run; the kernels are built once per instruction set, each build a library of
its own. All are optional. A wheel built without a compiler holds none; then ``features`` and ``kernels`` return None
and every other part of regard works without them.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from regard.errors import BackendUnavailableError, ConfigError, message, must_be

ABI_VERSION = 2  # REGARD_ABI_VERSION in native/include/regard.h
FILE_NAME = "libregard_native.so"
_FEATURE_BITS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # REGARD_CPU_* in the same header, lowest bit first

ISAS = {
    "amx_bf16": frozenset({"avx512f", "avx512_bf16", "amx_bf16"}),
    "avx512_bf16": frozenset({"avx512f", "avx512_bf16"}),
    "avx512": frozenset({"avx512f"}),
    "avx2": frozenset({"avx2"}),
}
"""Builds of the kernels, fastest first, and the features each needs. ``REGARD_ISA`` forces one, or "none"."""

_int32, _int64, _float, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class CTensor(ctypes.Structure):
    """``regard_tensor``."""

    _fields_ = (("data", _pointer), ("batch", _int64), ("head", _int64), ("row", _int64))


class CMask(ctypes.Structure):
    """``regard_mask``."""

    _fields_ = (
        ("low", _pointer),
        ("high", _pointer),
        ("range_batch", _int64),
        ("range_head", _int64),
        ("tiles", _pointer),
        ("tiles_batch", _int64),
        ("tiles_head", _int64),
        ("bits", _pointer),
    )


class CBias(ctypes.Structure):
    """``regard_bias``."""

    _fields_ = (
        ("data", _pointer),
        ("batch", _int64),
        ("head", _int64),
        ("row", _int64),
        ("column", _int64),
        ("dtype", _int32),
        ("blocked", _float),
        ("slopes", _pointer),
    )


class CProbe(ctypes.Structure):
    """``regard_probe``."""

    _fields_ = (
        ("kind", _int32),
        ("size", _int64),
        ("size2", _int64),
        ("length", _int64),
        ("list", _pointer),
        ("out", _pointer),
        ("keys", _pointer),
        ("rest", _pointer),
    )


class CCall(ctypes.Structure):
    """``regard_call``."""

    _fields_ = (
        ("dtype", _int32),
        ("threads", _int32),
        ("batch", _int64),
        ("num_heads", _int64),
        ("num_kv_heads", _int64),
        ("q_len", _int64),
        ("kv_len", _int64),
        ("head_dim", _int64),
        ("value_dim", _int64),
        ("scale", _float),
        ("softcap", _float),
        ("query", CTensor),
        ("key", CTensor),
        ("value", CTensor),
        ("q_positions", _pointer),
        ("q_positions_batch", _int64),
        ("kv_start", _int64),
        ("mask", CMask),
        ("bias", CBias),
        ("sinks", _pointer),
        ("sinks_batch", _int64),
        ("sinks_head", _int64),
        ("sinks_row", _int64),
        ("output", CTensor),
        ("lse", _pointer),
        ("probes", _pointer),
        ("num_probes", _int64),
    )


class CGradients(ctypes.Structure):
    """``regard_gradients``."""

    _fields_ = (
        ("grad", CTensor),
        ("output", CTensor),
        ("lse", _pointer),
        ("query", _pointer),
        ("key", _pointer),
        ("value", _pointer),
        ("bias", _pointer),
    )


def wanted_isa() -> str:
    """Tell what REGARD_ISA says: a build, "none", or nothing."""
    return os.environ.get("REGARD_ISA", "").strip().lower()


def find(file_name: str = FILE_NAME) -> Path | None:
    """Find a library: beside this module, or where an editable install puts it.

    Returns:
        Its path, or None when regard was installed without it.
    """
    folders = [Path(__file__).parent]
    with suppress(PackageNotFoundError):  # run from a checkout that is not installed
        folders.append(Path(str(distribution("regard").locate_file("regard/ops/_backends"))))
    return next((path for folder in folders if (path := folder / file_name).is_file()), None)


@cache
def load(file_name: str = FILE_NAME) -> ctypes.CDLL | None:
    """Load a library once per process and check that it fits.

    Returns:
        The library, or None when regard was installed without it.

    Raises:
        BackendUnavailableError: The file is there but cannot be loaded, or was built for another version of regard.
    """
    path = find(file_name)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
        library.regard_abi_version.restype = ctypes.c_uint32
    except (OSError, AttributeError) as error:
        raise BackendUnavailableError(f"the native library {path} cannot be loaded: {error}") from error
    version = library.regard_abi_version()
    if version != ABI_VERSION:
        raise BackendUnavailableError(
            f"the native library {path} must have ABI version {ABI_VERSION}, but has {version}: reinstall regard."
        )
    return library


def features() -> frozenset[str] | None:
    """Tell which instruction sets with kernels in mind this machine can run.

    Returns:
        A subset of {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}, or None without a library that can be used.
    """
    library = load() if problem_of(FILE_NAME) is None else None
    if library is None:
        return None
    library.regard_cpu_features.restype = ctypes.c_uint64
    bits = library.regard_cpu_features()
    return frozenset(name for bit, name in enumerate(_FEATURE_BITS) if bits >> bit & 1)


@cache
def problem_of(file_name: str) -> str | None:
    """Tell why a library that is there cannot be used; None if it can, or is not there."""
    try:
        load(file_name)
    except BackendUnavailableError as error:
        return str(error)
    return None


def problems() -> tuple[str, ...]:
    """Tell of every library that is there and cannot be used. Attention goes on without it; ``doctor`` says so."""
    found = (problem_of(name) for name in (FILE_NAME, *map(_kernel_file, ISAS)))
    return tuple(problem for problem in found if problem is not None)


@cache
def isa() -> str | None:
    """Tell which build of the kernels serves this process: the fastest this CPU can run, or what REGARD_ISA names.

    Returns:
        A key of ``ISAS``; None without kernels for this CPU, or with REGARD_ISA=none.

    Raises:
        ConfigError: REGARD_ISA names no build, or one that this CPU cannot run or that was not built.
    """
    wanted = wanted_isa()
    if wanted == "none":
        return None
    present = features() or frozenset()
    built = [name for name, needs in ISAS.items() if needs <= present and find(_kernel_file(name))]
    if not wanted:
        return next((name for name in built if problem_of(_kernel_file(name)) is None), None)
    if wanted not in built:
        expected = "one of " + ", ".join([*built, "none"]) + " on this machine"
        raise ConfigError(message("native", must_be("REGARD_ISA", expected, repr(wanted))))
    return wanted


@cache
def kernels() -> ctypes.CDLL | None:
    """Load the kernels that fit, once per process.

    Torch must have been imported before: then the OpenMP threads are torch's own, and no core serves two pools.

    Returns:
        The library, or None where there is none for this CPU.
    """
    name = isa()
    library = None if name is None else load(_kernel_file(name))
    if library is None:
        return None
    library.regard_forward.argtypes = (ctypes.POINTER(CCall),)
    library.regard_forward.restype = _int32
    library.regard_backward.argtypes = (ctypes.POINTER(CCall), ctypes.POINTER(CGradients))
    library.regard_backward.restype = _int32
    sizes = (_pointer, _int64, _int64, _int64, _int64, ctypes.POINTER(_int64), _pointer, _pointer)
    library.regard_mask_ranges.argtypes = library.regard_mask_tiles.argtypes = sizes
    library.regard_mask_ranges.restype = library.regard_mask_tiles.restype = _int64
    return library


def _kernel_file(name: str) -> str:
    return f"libregard_{name}.so"
