"""Every custom op registered under `regard::` passes torch's own checks, on the arguments our functions give it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from regard.ops import Causal, Padding, attend
from regard.ops._backends import native

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def ours() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted({name.split(".")[0] for name in names if name.startswith("regard::")})


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[Arguments]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "regard":
            name = function._schema.name
            self.seen.setdefault(name, []).append(tree_map(_plain, (args, kwargs or {})))
        return function(*args, **(kwargs or {}))


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


@contextmanager
def _as_when_compiling() -> Iterator[None]:
    """Ops are used inside graphs only; outside, the functions behind them are called directly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        yield


def recorded() -> dict[str, list[Arguments]]:
    keep = torch.tensor([[True, True, True, False, True], [True, True, True, True, True]])
    variants: list[dict[str, Any]] = [
        {},
        {"mask": Causal() & Padding(keep)},
        {
            "mask": Causal(),
            "bias": torch.randn(1, 2, 5, 5, requires_grad=True),
            "sinks": torch.randn(2, requires_grad=True),
        },
        {"logit_softcap": 2.0},
    ]
    dropout = {"logit_softcap": 2.0, "dropout_p": 0.5}
    chosen = [("tiled", options) for options in [*variants, dropout]]
    chosen += [("native", options) for options in variants if native.installed()]
    with _Recorder() as recorder, _as_when_compiling():
        for backend, options in chosen:
            query = torch.randn(2, 2, 5, 4, requires_grad=True)
            key, value = (torch.randn(2, 1, 5, 4, requires_grad=True) for _ in range(2))
            output = attend(query, key, value, **options, backend=backend)
            output.sum().backward()
    return recorder.seen


def test_every_op_of_ours_is_reached_and_passes_opcheck() -> None:
    seen = recorded()
    assert ours(), "there are custom ops"
    assert sorted(seen) == [name for name in ours() if native.installed() or "native" not in name]
    for name, calls in seen.items():
        namespace, short = name.split("::")
        op = getattr(getattr(torch.ops, namespace), short).default
        for args, kwargs in calls:
            torch.library.opcheck(op, args, kwargs, test_utils=("test_schema", "test_faketensor"))
        if short in ("tiled", "native"):
            for args, kwargs in calls[1:3]:
                differentiable = tuple(
                    value.requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                    for value in args
                )
                torch.library.opcheck(op, differentiable, kwargs)
