"""A session: what one ``with watch(...)`` knows about its model, and where every observed call is written down."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.errors import DTypeError, ShapeError, UnsupportedError, message
from regard.lens._attention_like import attention_modules, has_no_softmax
from regard.lens._call import AttentionCall
from regard.lens._empty_rows import with_empty_rows
from regard.lens._frames import Frame, FrameStack, in_backward, quiet
from regard.lens._layers import AttentionStep, Layer
from regard.lens.changes import Change, Changed
from regard.lens.kept import KeptCall, Output
from regard.ops import Observation, Probe, attend, measure
from regard.ops.transforms import in_vmap

if TYPE_CHECKING:
    from regard.lens.adapters import Adapter

Serve = Literal["model", "regard"]


class Session:
    """Recorder of one watch: found by module identity, so two models and nested watches never mix.

    Args:
        model: What is watched.
        probes: What to gather.
        serve: Who computes the model's output.
        modules: Regular expression that a module's name must contain a match of; None for all.
        eager_limit: Longest row of weights that is taken from a model that computes its own softmax.
        changes: What its attention calls are made to do.
        keep: Whether queries, keys and values are kept.
    """

    def __init__(
        self,
        model: nn.Module,
        probes: Sequence[Probe],
        *,
        serve: Serve,
        modules: str | None,
        eager_limit: int,
        changes: Sequence[Change] = (),
        keep: bool = False,
    ) -> None:
        self.architecture = type(model).__name__
        self.probes = tuple(probes)
        self.serve: Serve = serve
        self.eager_limit = eager_limit
        self.changes = tuple(changes)
        self.keep = keep
        self.kept: list[KeptCall] = []
        self.unprojected: KeptCall | None = None
        self.beams = False
        self.names = {id(module): name for name, module in model.named_modules()}
        self.candidates = {name: has_no_softmax(module) for name, module in attention_modules(model).items()}
        self.pattern = re.compile(modules) if modules is not None else None
        self.frames = FrameStack()
        self.adapters: tuple[Adapter, ...] = ()
        self.lock = threading.RLock()
        self.layers: list[Layer] = []
        self.refusals: dict[str, list[str]] = defaultdict(list)
        self.remarks: dict[str, list[str]] = defaultdict(list)
        self.called: set[str] = set()
        self.fused: set[str] = set()
        self._by_module: dict[int, list[Layer]] = defaultdict(list)
        self._beside: dict[str, tuple[int, int]] = {}
        self._fresh: list[Layer] = []

    def knows(self, module: nn.Module) -> bool:
        """Whether the module belongs to the watched model."""
        return id(module) in self.names

    def wants(self, module: nn.Module) -> bool:
        """Whether calls of this module are to be probed."""
        name = self.names.get(id(module))
        return name is not None and (self.pattern is None or self.pattern.search(name) is not None)

    def grows(self, module: nn.Module, *, q_len: int, kv_len: int) -> bool:
        """Whether the keys are those of an earlier call of the module and one for each new query: a cache."""
        return any(layer.kind == "self" and layer.kv_end + q_len == kv_len for layer in self._by_module[id(module)])

    def change(self, module: nn.Module, found: Changed) -> Changed:
        """What becomes of a call by the changes that mean its module."""
        name = self.names[id(module)]
        if not self.is_changed(name):
            return found
        frame = self.frames.of(module)
        if frame is not None:
            frame.changeable = True
        with self.lock:
            found = replace(found, call=replace(found.call, q_start=self._place(name, found.call)))
            for change in self.changes:
                if change.names(name):
                    found = change.apply(found, name)
                    self._remark(self.remarks[name], (change.remark,))
        return found

    def is_changed(self, name: str) -> bool:
        """Whether changes mean the module of this name."""
        return any(change.names(name) for change in self.changes)

    def check_changed(self, frame: Frame) -> None:
        """Refuse to go on when a module ran that was to be changed and could not be.

        Raises:
            UnsupportedError: it attends in a way that changes cannot reach.
        """
        if frame.changeable or frame.name not in self.candidates or not self.is_changed(frame.name):
            return
        reasons = self.refusals.get(frame.name) or ["no attention function or softmax of a known form was met in it"]
        problem = f"{frame.name} cannot be changed: {reasons[0]}"
        hint = "layers=, modules= and kind= say which modules are meant"
        raise UnsupportedError(message("watch", problem, hint=hint))

    def record(
        self,
        module: nn.Module,
        changed: Changed,
        *,
        via: str,
        value: Tensor | None = None,
        output: Output | None = None,
    ) -> None:
        """Gather the probes of one call, or write down why that was not possible.

        Args:
            module: Which attends.
            changed: What it computed.
            via: The way in.
            value: Its values, where it has any.
            output: What the attention function returned.
        """
        call = changed.call
        if in_backward():  # a checkpoint computes again what was counted in the forward
            return
        name = self.names[id(module)]
        with self.lock:
            self._remark(self.remarks[name], call.notes)
            if not self.wants(module):
                return
            if in_vmap():
                self._remark(self.refusals[name], ("called under vmap, which lets no value out",))
                return
            q_start = self._place(name, call)
            layer = self._layer(module, call, q_start, via)
            try:
                observation = self._measure(replace(call, q_start=q_start), layer)
            except (ShapeError, DTypeError, UnsupportedError) as problem:
                if layer is not None:
                    raise  # some of the probes hold this call now and some do not
                self._remark(self.refusals[name], (str(problem).splitlines()[0],))
                return
            if layer is None:
                layer = self._begin(module, name, call, via, observation)
            layer.note(AttentionStep(call, q_start))
            self._fresh.append(layer)
            if self.keep:
                self._keep(layer, replace(call, q_start=q_start), value, output, changed.silenced)

    def refuse(self, module: nn.Module, reason: str) -> None:
        """Write down that a call of this module could not be observed."""
        with self.lock:
            self._remark(self.refusals[self.names[id(module)]], (reason,))

    def _keep(
        self,
        layer: Layer,
        call: AttentionCall,
        value: Tensor | None,
        output: Output | None,
        silenced: tuple[int, ...],
    ) -> None:
        bias = call.bias.detach() if isinstance(call.bias, Tensor) else call.bias
        sinks = None if call.sinks is None else call.sinks.detach()
        call = replace(call, query=call.query.detach(), key=call.key.detach(), bias=bias, sinks=sinks)
        kept = KeptCall(layer.name, layer.index, call, None if value is None else value.detach(), output, silenced)
        self.kept.append(kept)
        self.unprojected = kept if output is not None else None

    def project(self, values: Tensor, weight: Tensor) -> None:
        """A product with a weight [out, in]: the output projection of the latest kept call, if it reads its output."""
        kept, self.unprojected = self.unprojected, None
        if kept is not None and kept.output is not None and kept.output.is_read_by(values):
            kept.projection = weight.detach()

    def project_directly(self, weight: Tensor) -> None:
        """The output projection of the latest kept call, of a function that projects by itself."""
        self.unprojected = None
        if self.kept and not in_backward():
            self.kept[-1].projection = weight.detach()

    def reorder(self, index: Int[Tensor, "new_batch"], kept: Int[Tensor, "kept"] | None = None) -> None:
        """Follow a beam search: the layers that took part in the latest step keep these batch rows.

        Args:
            index: Rows that go on.
            kept: Rows that are finished and are carried along, counted behind the rows that took part.
        """
        with self.lock:
            moved, self._fresh = self._fresh, []
            for layer in dict.fromkeys(moved):
                if layer.batch == index.numel():  # an encoder's batch has no hypotheses
                    self.beams = True
                    layer.select(index.long().cpu(), None if kept is None else kept.long().cpu())

    def finish(self, rows: Int[Tensor, "new_batch"]) -> None:
        """End a beam search: of each layer that followed it these rows are the hypotheses that were returned."""
        with self.lock:
            for layer in self.layers:
                if layer.kept:
                    layer.select(rows.cpu())

    def _measure(self, call: AttentionCall, layer: Layer | None) -> Observation:
        bias = call.bias.detach() if isinstance(call.bias, Tensor) else call.bias
        if isinstance(bias, Tensor) and not bias.is_inference():
            bias.requires_grad_()  # a bias of zeros and ones is refused as a mistaken mask; here it is what was added
        call = replace(call, query=call.query.detach(), key=call.key.detach(), bias=bias)
        with quiet(), torch.no_grad():
            if layer is None:
                return measure(call.query, call.key, self.probes, **call.options())
            call = with_empty_rows(call, layer.kept)
            return measure(call.query, call.key, into=layer.observation, **call.options())

    @staticmethod
    def output(call: AttentionCall, value: Tensor, dropout_p: float) -> Tensor:
        """What the model's attention would return, computed by regard: [batch, heads, q, value_dim]."""
        with quiet():
            return attend(call.query, call.key, value, dropout_p=dropout_p, **call.options())

    @staticmethod
    def _remark(texts: list[str], new: Sequence[str]) -> None:
        texts.extend(text for text in new if text not in texts)

    def _place(self, name: str, call: AttentionCall) -> int:
        """Where query 0 sits; cross-attention is placed beside the self-attention that ran before it."""
        ancestors = _ancestors(name)
        if call.q_start is not None:
            if call.kind == "self":
                self._beside.update((ancestor, (call.q_len, call.q_start)) for ancestor in ancestors)
            return call.q_start
        for ancestor in ancestors:
            q_len, q_start = self._beside.get(ancestor, (-1, 0))
            if q_len == call.q_len:
                return q_start
        return 0

    def _layer(self, module: nn.Module, call: AttentionCall, q_start: int, via: str) -> Layer | None:
        return next(
            (layer for layer in self._by_module[id(module)] if layer.via == via and layer.continues(call, q_start)),
            None,
        )

    def _begin(self, module: nn.Module, name: str, call: AttentionCall, via: str, observation: Observation) -> Layer:
        same = self._by_module[id(module)]
        layer = Layer(name=name, index=len(same), via=via, call=call, observation=observation)
        same.append(layer)
        self.layers.append(layer)
        return layer


def changed_by(watchers: Iterable[tuple[Session, nn.Module]], call: AttentionCall) -> Changed:
    """What becomes of a call by the changes of all sessions, each with the module that it takes for the caller."""
    found = Changed(call)
    for session, module in watchers:
        found = session.change(module, found)
    return found


def _ancestors(name: str) -> list[str]:
    """Every dotted prefix of a name, longest first, without the name itself."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, -1, -1)]
