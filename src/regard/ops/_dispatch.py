"""Chooses who computes a call, and says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.errors import BackendUnavailableError, ConfigError, UnsupportedError, message, must_be
from regard.ops._autograd import RUNNERS
from regard.ops._backends import native, reference, tiled
from regard.ops._backends import torch as sdpa
from regard.ops._call import Call
from regard.ops._validate import describe
from regard.ops.transforms import in_transform

Backend = Literal["auto", "native", "torch", "tiled", "reference"]

_REASONS: dict[str, Callable[[Call], list[str]]] = {
    "native": native.reasons_against,
    "torch": sdpa.reasons_against,
    "tiled": tiled.reasons_against,
    "reference": reference.reasons_against,
}


@dataclass(frozen=True)
class Explanation:
    """Which backend takes a call and why.

    Args:
        backend: The one that takes it.
        because: Why this one, in one sentence.
        against: For every other backend that cannot take the call, its reasons.
    """

    backend: str
    because: str
    against: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.backend}: {self.because}"]
        lines += [f"not {name}: {'; '.join(reasons)}" for name, reasons in self.against.items()]
        return "\n".join(lines)


def available_backends() -> tuple[str, ...]:
    """Names of the backends that can run on this machine, fastest first."""
    return tuple(name for name in RUNNERS if name != "native" or native.installed())


def run(call: Call, backend: Backend) -> Tensor:
    """The output by the backend that ``choose`` names."""
    with torch.autocast(call.query.device.type, enabled=False):
        name = choose(call, backend).backend
        return RUNNERS[name](call if name == "native" else call.with_dense_bias())


def choose(call: Call, backend: Backend) -> Explanation:
    """Pick a backend.

    Raises:
        ConfigError: if the name is not one.
        UnsupportedError: if a backend was named and cannot take the call; named backends never fall back.
        BackendUnavailableError: if "native" was named and there are no kernels for this machine.
    """
    if backend not in get_args(Backend):
        expected = "one of " + ", ".join(repr(name) for name in get_args(Backend))
        raise ConfigError(message(call.caller, must_be("backend", expected, repr(backend))))
    if backend == "auto":
        return _auto(call)
    if backend == "native" and not native.installed():
        raise BackendUnavailableError(message(call.caller, f"backend 'native' cannot run here: {native.no_kernels()}."))
    transform = _transform_reason()
    call = call if backend == "native" else call.with_dense_bias()
    reasons = [transform] if transform and backend != "reference" else _REASONS[backend](call)
    if reasons:
        problem = f"backend {backend!r} cannot take this call: {'; '.join(reasons)}."
        described = describe(call.query, call.key, call.value)
        hint = "backend='auto' picks one that can"
        raise UnsupportedError(message(call.caller, problem, arguments=described, hint=hint))
    return Explanation(backend, "asked for by name")


def _transform_reason() -> str | None:
    """Why only ``reference`` is right here, if a transform is active."""
    if torch.compiler.is_compiling():
        to_onnx = torch.onnx.is_in_onnx_export()
        return "an export to ONNX is under way, which knows ordinary operations only" if to_onnx else None
    if in_transform():
        return "a functorch transform (vmap, grad, jvp, …) is active"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is active"
    return None


def _auto(call: Call) -> Explanation:
    transform = _transform_reason()
    if transform is not None:
        others = {name: [transform] for name in RUNNERS if name != "reference"}
        return Explanation("reference", "every step is an ordinary differentiable operation", others)
    if call.is_empty:
        return Explanation("reference", "a length is 0: there is nothing to compute")
    against_native = native.reasons_against(call)
    if not against_native:
        return Explanation("native", "its kernels are the fastest here for what this call asks")
    against = {"native": against_native}
    call = call.with_dense_bias()
    reasons = sdpa.reasons_against(call)
    if not reasons:
        return Explanation("torch", "its kernel is the fastest of the others for what this call asks", against)
    return Explanation("tiled", "the fastest exact one that takes this call", {**against, "torch": reasons})
