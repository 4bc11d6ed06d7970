"""watch(): probes of every attention call of a model somebody already has."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from regard.errors import ConfigError, all_problems, message, must_be
from regard.lens._attention_like import attention_modules
from regard.lens._call import layer_number
from regard.lens._frames import Frame, hook_every_module
from regard.lens._functional import listen, unlisten
from regard.lens._own_softmax import finish_softmax
from regard.lens._session import Serve, Session
from regard.lens.adapters import adapters_for
from regard.lens.changes import Change
from regard.lens.seen import Seen
from regard.ops import Probe

_NAMES_SHOWN = 3


def watch(
    model: nn.Module,
    probes: Sequence[Probe] = (),
    *,
    serve: Serve = "model",
    modules: str | None = None,
    eager_limit: int = 2048,
    changes: Sequence[Change] = (),
    keep: bool = False,
) -> AbstractContextManager[Seen]:
    """Look into every attention call a model makes inside the ``with``; it computes what it computes, or what you say.

    Args:
        model: Any module: transformers, timm, ``nn.Transformer``, your own.
        probes: What to gather per layer; see ``regard.ops``.
        serve: "model": the model's own attention computes its output, bit-equal to unwatched, and probes are computed
            beside it. "regard": regard computes the output too, so that fused kernels and dense masks are not needed.
        modules: Regular expression; only modules whose name contains a match are probed.
        eager_limit: Longest row, in keys, that is read from a module that computes its own softmax.
        changes: What attention is made to do instead, such as ``SilenceHeads``, ``BlockSpans`` and ``ForceWeights``:
            the one way in which watching changes what a model computes. Calls without a change are as ever.
        keep: Keep the queries, keys and values of every call, for explanations (``seen.calls``); with gradients the
            model's graph lives as long as what was seen.

    Returns:
        A context for one ``with``. It yields what is seen, which fills while the model runs and stays afterwards.

    Raises:
        ConfigError: An option that cannot work, all of them at once; ``modules`` or a change that match no module; a
            context that is entered again.
        UnsupportedError: While the model runs: a module that is to be changed attends in a way that cannot be reached.

    Numerics:
        Values are float32 (float64 for float64 models) and detached. torch's fused fast path for
        ``nn.TransformerEncoder`` and ``nn.MultiheadAttention`` shows nothing and runs its ordinary path while watched:
        outputs agree to about 1e-6; the coverage names the modules.

    Cost:
        Linear memory beside the model; about one more q·k product and softmax per layer.

    Example:
        >>> import torch, regard
        >>> layer = torch.nn.MultiheadAttention(8, 2)
        >>> x = torch.randn(5, 1, 8)  # [length, batch, embed_dim]
        >>> with regard.watch(layer, [regard.Entropy()]) as seen:
        ...     output, _ = layer(x, x, x)
        >>> seen.layers[0].entropy.shape
        torch.Size([1, 2, 5])
    """
    _check(model, probes, serve, modules, eager_limit, changes)
    if modules is not None:
        _check_match(model, modules)
    _check_changes(model, changes)
    session = Session(model, probes, serve=serve, modules=modules, eager_limit=eager_limit, changes=changes, keep=keep)
    return _Once(_watching(model, session))


class _Once(AbstractContextManager[Seen]):
    """A context that says so when it is entered again."""

    def __init__(self, inner: AbstractContextManager[Seen]) -> None:
        self._inner = inner
        self._entered = False

    def __enter__(self) -> Seen:
        if self._entered:
            raise ConfigError(message("watch", "a watch may be entered once; call regard.watch again for another."))
        self._entered = True
        return self._inner.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._inner.__exit__(*raised)


@contextmanager
def _watching(model: nn.Module, session: Session) -> Iterator[Seen]:
    seen = Seen(session)
    session.adapters = adapters_for(model)
    _refuse_scripts(session, model)
    with ExitStack() as stack:
        for handle in hook_every_module(
            model, lambda module: _begin(session, module), lambda module: _end(session, module)
        ):
            stack.callback(handle.remove)
        if any(isinstance(module, (nn.MultiheadAttention, nn.TransformerEncoderLayer)) for module in model.modules()):
            stack.enter_context(_fast_path.off(session, model))
        for adapter in session.adapters:
            stack.enter_context(adapter.attach(session, model))
        stack.callback(_abandon, session)
        yield seen


def _refuse_scripts(session: Session, model: nn.Module) -> None:
    """TorchScript calls no Python: say so of each outermost scripted or traced module."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and not name.startswith(inside):
            inside = (*inside, f"{name}." if name else "")
            session.refuse(
                module, "compiled by TorchScript: attention inside it cannot be seen; watch the Python module"
            )


def _check(model: Any, probes: Any, serve: Any, modules: Any, eager_limit: Any, changes: Any = ()) -> None:
    problems = []
    if not isinstance(probes, Iterable):
        problems.append(must_be("probes", "a sequence of regard.ops probes", f"a {type(probes).__name__}"))
        probes = ()
    if not isinstance(model, nn.Module):
        problems.append(must_be("model", "a torch.nn.Module", type(model).__name__))
    wrong = [type(probe).__name__ for probe in probes if not isinstance(probe, Probe)]
    if wrong:
        problems.append(must_be("probes", "a sequence of regard.ops probes", f"holding {', '.join(wrong)}"))
    attributes = [probe.attribute for probe in probes if isinstance(probe, Probe)]
    twice = sorted({attribute for attribute in attributes if attributes.count(attribute) > 1})
    if twice:
        problems.append(must_be("probes", "named apart (name=…)", f"several named {', '.join(twice)}"))
    if serve not in ("model", "regard"):
        problems.append(must_be("serve", '"model" or "regard"', repr(serve)))
    if modules is not None:
        try:
            re.compile(modules)
        except (re.error, TypeError) as problem:
            problems.append(must_be("modules", "a regular expression", f"{modules!r} ({problem})"))
    if not isinstance(eager_limit, int) or eager_limit < 0:
        problems.append(must_be("eager_limit", "a number of keys, 0 or more", repr(eager_limit)))
    if not isinstance(changes, Iterable) or not all(isinstance(change, Change) for change in changes):
        found = f"a {type(changes).__name__}" if not isinstance(changes, Iterable) else "of something else"
        expected = "a sequence of changes (SilenceHeads, BlockSpans, ForceWeights)"
        problems.append(must_be("changes", expected, found))
    if problems:
        raise all_problems("watch", problems)


def _check_changes(model: nn.Module, changes: Sequence[Change]) -> None:
    """Refuse a change that means no attention module at all."""
    known = [*attention_modules(model)]
    for change in changes:
        if change.modules is not None:
            _check_match(model, change.modules)
        if not any(change.names(name) for name, _ in model.named_modules()):
            numbers = sorted({number for name in known if (number := layer_number(name)) is not None})
            there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            problem = f"`layers` of {type(change).__name__} must name layers of the model ({there}), but is"
            raise ConfigError(message("watch", f"{problem} {change.layers}."))


def _check_match(model: nn.Module, modules: str) -> None:
    """Refuse a pattern that leaves out every module, and say which names come near it."""
    names = [name for name, _ in model.named_modules()]
    if any(re.search(modules, name) for name in names):
        return
    parts = dict.fromkeys([*names, *(part for name in names for part in name.split(".") if not part.isdecimal())])
    near = get_close_matches(modules.replace("\\", ""), [part for part in parts if part], n=_NAMES_SHOWN, cutoff=0.75)
    first = [*attention_modules(model), *names]
    shown = [repr(name) for name in dict.fromkeys(first) if name][:_NAMES_SHOWN]
    hint = f"the first are {', '.join(shown)}" if shown else "the model has no modules in it"
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    problem = f"`modules` must match the name of a module, but {modules!r} matches none."
    raise ConfigError(message("watch", problem, hint=hint))


def _begin(session: Session, module: nn.Module) -> None:
    name = session.names.get(id(module))
    if name is None:  # added to the model after the watch began
        return
    session.called.add(name)
    if session.frames.top is None:
        listen(session)
    session.frames.push(Frame(module, name, handled=sys.exc_info()[1]))


def _end(session: Session, module: nn.Module) -> None:
    frame = session.frames.pop(module)
    if frame is not None:
        if session.frames.top is None:
            unlisten(session)
        finish_softmax(session, frame)
        if sys.exc_info()[1] is frame.handled:  # hooks are also called for a forward that failed
            session.check_changed(frame)


def _abandon(session: Session) -> None:
    """Forget a forward that an interrupt cut off, for which torch calls no hooks."""
    session.frames.clear()
    unlisten(session)


class _FastPath:
    """Torch's fused fast path is one global switch: off while any watch needs it, as it was after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was = True

    @contextmanager
    def off(self, session: Session, model: nn.Module) -> Iterator[None]:
        """Keep the fast path off; the session's coverage names the modules that had it."""
        with self._lock:
            if self._users == 0:
                self._was = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._users += 1
            if self._was:
                heads = (module for module in model.modules() if isinstance(module, nn.MultiheadAttention))
                session.fused |= {session.names[id(module)] for module in heads if not module.training}
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    torch.backends.mha.set_fastpath_enabled(self._was)


_fast_path = _FastPath()
