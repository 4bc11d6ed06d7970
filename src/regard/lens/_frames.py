"""Which module is running: a stack per thread, kept by forward hooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.lens.changes import Changed


@dataclass(eq=False)
class Frame:
    """One running forward of one module.

    Args:
        module: Which.
        name: Its name in the watched model.
        softmaxes: The logits of the softmaxes that it has computed itself.
        changed: The call that its own softmax stands for, where changes made another of it.
        changeable: Whether an attention call was met in it that changes can reach.
        handled: The exception that was being handled when it began, if there was one.
    """

    module: nn.Module
    name: str
    softmaxes: list[Tensor] = field(default_factory=list)
    changed: Changed | None = None
    changeable: bool = False
    handled: BaseException | None = None


class FrameStack(threading.local):
    """The running modules of the current thread, outermost first."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def push(self, frame: Frame) -> None:
        """A module starts."""
        self.frames.append(frame)

    def pop(self, module: nn.Module) -> Frame | None:
        """A module ends; frames above it that never ended (an exception) go with it."""
        for depth in range(len(self.frames) - 1, -1, -1):
            if self.frames[depth].module is module:
                frame = self.frames[depth]
                del self.frames[depth:]
                return frame
        return None

    def of(self, module: nn.Module) -> Frame | None:
        """The innermost running forward of a module."""
        return next((frame for frame in reversed(self.frames) if frame.module is module), None)

    def clear(self) -> None:
        """Nothing runs any more."""
        self.frames.clear()

    @property
    def top(self) -> Frame | None:
        """The innermost running module."""
        return self.frames[-1] if self.frames else None


class _Quiet(threading.local):
    depth = 0


_quiet = _Quiet()


@contextmanager
def quiet() -> Iterator[None]:
    """Within: functions that a model calls are not recorded, because the call around them already is."""
    _quiet.depth += 1
    try:
        yield
    finally:
        _quiet.depth -= 1


def is_quiet() -> bool:
    """Whether the current thread is inside ``quiet()``."""
    return _quiet.depth > 0


def in_backward() -> bool:
    """Whether autograd is executing a backward in this thread: what runs now was counted in the forward."""
    return int(torch._C._current_graph_task_id()) != -1


class _Hook:
    """A hook that stays behind when its module is copied or pickled: the copy is not watched and carries nothing."""

    def __init__(self, call: Callable[[nn.Module], None]) -> None:
        self._call = call

    def __call__(self, module: nn.Module, *_: Any) -> None:
        self._call(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _left_behind, ()


def _left_behind() -> Callable[..., None]:
    """What the copy of a watched module has for a hook."""
    return _do_nothing


def _do_nothing(*_: Any) -> None:
    """Nothing."""


def hook_every_module(model: nn.Module, begin: Any, end: Any) -> list[Any]:
    """Call ``begin(module)`` before and ``end(module)`` after each forward, exceptions included.

    Returns:
        The handles; ``remove()`` each to undo.
    """
    handles: list[Any] = []
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        handles.append(module.register_forward_pre_hook(_Hook(begin)))
        handles.append(module.register_forward_hook(_Hook(end), always_call=True))
    return handles
