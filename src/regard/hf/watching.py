"""How a watch sees transformers models: at the interface through which they call attention.

Every routed model asks ``AttentionInterface.get_interface`` for its attention function in each forward, and
``AttentionMaskInterface`` for its masks. While a watch is open both are listened to. With ``serve="model"`` the model's
own functions get exactly what they would get unwatched, so outputs are equal bit for bit; the rule behind each mask is
remembered beside it and read by the probes. With ``serve="regard"`` masks stay lazy and regard computes the output.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from regard.errors import Error
from regard.hf.attention import NAME, dense_weights, is_cross, options_of, place_mask, weights_wanted
from regard.hf.beams import BeamFollower
from regard.hf.lazy_mask import LazyMask, MaskRule
from regard.hf.mask_book import MaskBook
from regard.lens.adapters import Adapter, AttentionCall, KnownMask, Output, Session, changed_by, quiet

AttentionFunction = Callable[..., tuple[Tensor, Any]]
_UPPER_LEFT = ("sdpa",)
_NO_MASK_IS_NO_MASK = ("eager", "paged|eager", None)


class TransformersAdapter(Adapter):
    """Listens at transformers' interfaces while any session is attached; leaves them as they were afterwards."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: list[tuple[Session, frozenset[int]]] = []
        self._book = MaskBook()
        self._beams = BeamFollower(self._sessions_of)
        self._get_interface: Any = None
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    @contextmanager
    def attach(self, session: Session, model: nn.Module) -> Iterator[None]:
        """Observe the session's model until the context ends."""
        configs = _configs(model)
        entry = (session, frozenset(configs))
        with self._lock:
            if not self._sessions:
                self._listen()
            self._sessions.append(entry)
            # A custom implementation without a mask function gets no masks from transformers; regard needs its own.
            unmasked = (
                {config._attn_implementation for config in configs.values()} if session.serve == "regard" else set()
            )
            self._wrap_masks(unmasked - {None})
        try:
            yield
        finally:
            with self._lock:
                self._sessions.remove(entry)
                if not self._sessions:
                    self._unlisten()

    def known_mask(self, tensor: Tensor) -> KnownMask | None:
        """What is known about a mask tensor, if transformers made it."""
        rule = self._book.find(tensor)
        return None if rule is None else KnownMask(rule.mask, rule.q_start, rule.kv_start, rule.kv_len)

    def _sessions_of(self, module: nn.Module) -> list[Session]:
        return [session for session, _ in self._sessions if session.knows(module)]

    def _listen(self) -> None:
        original = self._get_interface = AttentionInterface.__dict__["get_interface"]
        adapter = self

        @functools.wraps(original)
        def get_interface(self: AttentionInterface, attn_implementation: str, default: AttentionFunction) -> Any:
            function = original(self, attn_implementation, default)
            return functools.partial(adapter._attention, function, attn_implementation)

        AttentionInterface.get_interface = get_interface  # type: ignore[method-assign]
        self._beams.listen()

    def _unlisten(self) -> None:
        AttentionInterface.get_interface = self._get_interface  # type: ignore[method-assign]
        self._beams.unlisten()
        mapping: dict[str, Any] = AttentionMaskInterface._global_mapping
        for name, (original, wrapper) in self._wrapped.items():
            if mapping.get(name) is not wrapper:
                continue  # somebody registered another one meanwhile
            if original is None:
                del mapping[name]
            else:
                mapping[name] = original
        self._wrapped.clear()
        self._book.clear()

    def _wrap_masks(self, also: set[str]) -> None:
        mapping: dict[str, Any] = AttentionMaskInterface._global_mapping
        for name in {*mapping, *also} - self._wrapped.keys():
            original = mapping.get(name)
            wrapper = functools.partial(self._mask, original, name)
            mapping[name] = wrapper
            self._wrapped[name] = (original, wrapper)

    def _mask(self, original: Callable[..., Any] | None, name: str, *args: Any, **call: Any) -> Any:
        """Stand in for one mask function of transformers."""
        config = call.get("config")
        watching = [session for session, configs in self._sessions if id(config) in configs]
        if not watching or args:
            return original(*args, **call) if original is not None else None
        rule = MaskRule.of_call(**call)
        make = functools.partial(original, **{**call, "q_offset": rule.q_start}) if original is not None else _nothing
        if any(session.serve == "regard" for session in watching):
            dtype = call.get("dtype", torch.float32) if name == "eager" else torch.bool
            return LazyMask(rule, dtype=dtype, original=make)
        made = original(**call) if original is not None else None
        self._book.note(made, rule, config)
        return made

    def _attention(
        self,
        function: AttentionFunction,
        implementation: str | None,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Any]:
        """Stand in for one attention function of transformers."""
        sessions = self._sessions_of(module)
        call: AttentionCall | None = None
        try:
            if sessions:
                call = self._call(sessions[0], implementation, module, query, key, attention_mask, kwargs)
        except Error as problem:
            for session in sessions:
                session.refuse(module, str(problem).splitlines()[0])
        changed = None if call is None else changed_by([(session, module) for session in sessions], call)
        served = any(session.serve == "regard" and session.wants(module) for session in sessions)
        if changed is not None and (changed.recomputed or served):
            call = changed.call
            output = Session.output(call, value[:, :, : call.key.shape[2]], kwargs.get("dropout") or 0.0)
            wanted = weights_wanted(kwargs)
            matrix = dense_weights(call.query, call.key, key.shape[2], call.options()) if wanted else None
            result: tuple[Tensor, Any] = (output.transpose(1, 2).contiguous(), matrix)
        else:
            if isinstance(attention_mask, LazyMask) and function is not _regard():
                attention_mask = attention_mask.original()
            with quiet() if sessions else nullcontext():
                result = function(module, query, key, value, attention_mask, **kwargs)
        if changed is None:
            return result
        output = changed.without_silenced(result[0], dim=2)
        self._beams.latest(module)
        seen = value[:, :, : changed.call.key.shape[2]]
        for session in sessions:
            session.record(module, changed, via="interface", value=seen, output=Output(output, 2))
        return output, result[1]

    def _call(
        self,
        session: Session,
        implementation: str | None,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        attention_mask: Any,
        kwargs: dict[str, Any],
    ) -> AttentionCall:
        """Translate what an attention function was handed."""
        cross = is_cross(module, session.names[id(module)])
        is_causal = kwargs.get("is_causal")
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        rule = self._rule(module, query, key, attention_mask, causal=causal)
        unmasked = rule is None and attention_mask is None
        if unmasked and implementation in _NO_MASK_IS_NO_MASK:
            is_causal = False
        placed = place_mask(
            module,
            query,
            key,
            attention_mask if rule is None else None,
            is_causal=is_causal,
            rule=rule,
            upper_left=implementation in _UPPER_LEFT,
            cross=cross,
        )
        return AttentionCall(
            query=query,
            key=key[:, :, : placed.kv_len],
            kind="cross" if cross else "self",
            q_start=None if cross else placed.q_start,
            kv_start=placed.kv_start,
            notes=_assumed(implementation, causal=causal) if unmasked else (),
            **options_of(query, placed, kwargs),
        )

    def _rule(
        self, module: nn.Module, query: Tensor, key: Tensor, attention_mask: Any, *, causal: bool
    ) -> MaskRule | None:
        """The rule behind a mask, or behind one that transformers left out."""
        if attention_mask is not None:
            return self._book.find(attention_mask)
        config = getattr(module, "config", None)
        return self._book.find_left_out(config, query.shape[0], query.shape[2], key.shape[2], causal=causal)


def _assumed(implementation: str | None, *, causal: bool) -> tuple[str, ...]:
    """What had to be assumed of a call without a mask."""
    if implementation in _NO_MASK_IS_NO_MASK or implementation in AttentionMaskInterface._global_mapping:
        return ()
    return (
        f"the implementation {implementation!r} has no mask function, so transformers gave it no mask: "
        f"{'causal' if causal else 'full'} attention was assumed",
    )


def _nothing(**_: Any) -> None:
    return None


def _regard() -> AttentionFunction:
    known: dict[str, Any] = AttentionInterface._global_mapping
    function: AttentionFunction = known[NAME]
    return function


def _configs(model: nn.Module) -> dict[int, Any]:
    """Every configuration that a module of the model, or a configuration in it, holds; by identity."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    while waiting:
        config = waiting.pop()
        if not hasattr(config, "_attn_implementation") or id(config) in found:
            continue
        found[id(config)] = config
        waiting.extend(getattr(config, name, None) for name in config.sub_configs)
    return found
