"""The backends, as tests see them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from regard.errors import BackendUnavailableError, UnsupportedError
from regard.ops import attend
from regard.ops._backends import tiled
from regard.ops._dispatch import Backend
from regard.ops._tiles import plan

measure = sys.modules["regard.ops.measure"]  # the module: the package's attribute of this name is its function

ALL = tuple(name for name in get_args(Backend) if name != "auto")
COMPLETE = ("reference", "tiled")  # the two that may refuse nothing but a transform
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@cache
def why_unavailable(backend: str) -> str | None:
    """Why a backend cannot run on this machine, or None."""
    try:
        attend(*(torch.zeros(1, 1, 1, 4),) * 3, backend=backend)
    except BackendUnavailableError as reason:
        return str(reason)
    return None


def skip_unavailable(backend: str) -> None:
    reason = why_unavailable(backend)
    if reason is not None:
        pytest.skip(reason)


each_backend = pytest.mark.parametrize("backend", ALL)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Cut the weight matrix into blocks of 2 x 3, so that short inputs cross many edges and skip many blocks."""

    def blocks_of(call: Any) -> Any:
        return plan(call, 2, 3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "blocks_of", blocks_of)
        patch.setattr(measure, "K_BLOCK", 3)
        patch.setattr(measure, "STRIP_CELLS", 24)
        yield


WAYS = (*ALL, "tiled in small blocks")
each_way = pytest.mark.parametrize("way", WAYS)


@contextmanager
def play(way: str) -> Iterator[str]:
    """Enter a way of computing and get the backend to name."""
    if way == "tiled in small blocks":
        with small_blocks():
            yield "tiled"
    else:
        yield way


def or_refused(backend: str, function: Callable[[], Any]) -> Any:
    """Call the function; a backend that may refuse gives None instead. A refusal must carry reasons."""
    try:
        return function()
    except UnsupportedError as refusal:
        text = str(refusal)
    assert backend not in COMPLETE, f"{backend} may not refuse: {text}"
    assert backend in text, f"a refusal names the backend: {text}"
    assert len(text) > 40, f"a refusal gives its reasons: {text}"
    return None


def serve(backend: str, *args: Any, **kwargs: Any) -> Tensor | None:
    """attend() on a named backend, or None where it refuses."""
    skip_unavailable(backend)
    result: Tensor | None = or_refused(backend, lambda: attend(*args, **kwargs, backend=backend))
    return result
