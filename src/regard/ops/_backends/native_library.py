"""The native library: where it lies, whether it fits, and what the CPU can run.

The library is optional. A wheel built without a C++ compiler does not hold it; then ``features`` returns None and every
other part of regard works without it.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from regard.errors import BackendUnavailableError

ABI_VERSION = 1  # REGARD_ABI_VERSION in native/include/regard.h
FILE_NAME = "libregard_native.so"
_FEATURE_BITS = ("avx2", "avx512f", "avx512_bf16")  # REGARD_CPU_* in the same header, lowest bit first


def find() -> Path | None:
    """Find the library: beside this module, or where an editable install puts it.

    Returns:
        Its path, or None when regard was installed without it.
    """
    folders = [Path(__file__).parent]
    with suppress(PackageNotFoundError):  # run from a checkout that is not installed
        folders.append(Path(str(distribution("regard").locate_file("regard/ops/_backends"))))
    return next((path for folder in folders if (path := folder / FILE_NAME).is_file()), None)


@cache
def load() -> ctypes.CDLL | None:
    """Load the library once per process and declare its functions.

    Returns:
        The library, or None when regard was installed without it.

    Raises:
        BackendUnavailableError: The file is there but cannot be loaded, or was built for another version of regard.
    """
    path = find()
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
        library.regard_abi_version.restype = ctypes.c_uint32
        library.regard_cpu_features.restype = ctypes.c_uint64
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
        A subset of {"avx2", "avx512f", "avx512_bf16"}, or None without the library.
    """
    library = load()
    if library is None:
        return None
    bits = library.regard_cpu_features()
    return frozenset(name for bit, name in enumerate(_FEATURE_BITS) if bits >> bit & 1)
