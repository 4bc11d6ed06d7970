"""The four backends, as tests see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import BackendUnavailableError, UnsupportedError
from regard.ops import attend

ALL = ("reference", "torch", "tiled", "native")
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
