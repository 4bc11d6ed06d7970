"""A ledger of a generation: for every new token, how much attention went to each part of what it was written from.

    parts = {"instructions": [(0, 12)], "documents": [(12, 300)], "question": [(300, 320)]}
    with regard.watch(model, ledger_probes(parts, prompt_len=320)) as seen:
        written = model.generate(**inputs)
    print(ledger(seen, parts, prompt_len=320))

The sums are exact and taken while the model runs: memory is linear in what is written, whatever the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import ConfigError, ShapeError, all_problems, message, must_be
from regard.lens._call import Kind
from regard.lens.seen import Seen
from regard.ops import Probe, SinkShare, SpanMass

Span = tuple[int, int]
Parts = Mapping[str, Iterable[Span]]

OUTPUT, OTHER = "output", "other"
_FAR = 1 << 30
_BAR = 24


@dataclass(frozen=True, eq=False)
class Ledger:
    """Where a generation looked, token by token.

    Args:
        parts: Names of the parts; "other" is what no part names, "output" what was written before.
        layers: Names of the attention modules.
        tokens: The written tokens, where they are known; else their positions.
        mass: Of each layer, head and written token the attention to each part; with the sink's share each row is one.
        sink: What a sink took.
    """

    parts: tuple[str, ...]
    layers: tuple[str, ...]
    tokens: tuple[str, ...]
    mass: Float64[Tensor, "layers heads written parts"]
    sink: Float64[Tensor, "layers heads written"]

    def together(self) -> Float64[Tensor, "written parts"]:
        """The mean over heads and layers."""
        return self.mass.mean((0, 1))

    def by_layer(self) -> Float64[Tensor, "layers written parts"]:
        """The mean over the heads of each layer."""
        return self.mass.mean(1)

    def step(self, number: int, *, width: int = _BAR) -> str:
        """What one token was written from, a bar for each part.

        Args:
            number: Of the written token, from 0; negative from the end.
            width: Of a bar that stands for everything, in characters.

        Raises:
            ConfigError: There is no such token.
        """
        if not -len(self.tokens) <= number < len(self.tokens):
            expected = f"from {-len(self.tokens)} to {len(self.tokens) - 1}"
            raise ConfigError(message("step", must_be("number", expected, number)))
        shares = [*self.together()[number].tolist(), float(self.sink[:, :, number].mean())]
        names = [*self.parts, "sink"]
        longest = max(map(len, names))
        lines = [
            f"  {name:<{longest}}  {share:6.1%}  {'█' * round(share * width)}"
            for name, share in zip(names, shares, strict=True)
            if name != "sink" or bool((self.sink != 0).any())
        ]
        return "\n".join([f"{number % len(self.tokens) + 1}. {self.tokens[number]}", *lines])

    def __str__(self) -> str:
        return "\n".join(self.step(number) for number in range(len(self.tokens)))


def ledger_probes(parts: Parts, *, prompt_len: int) -> list[Probe]:
    """What to watch a generation with, so that ``ledger`` can be made of it.

    Args:
        parts: For each name the ranges [start, stop) of positions it covers.
        prompt_len: How many tokens there are before the first that is written; for an encoder–decoder model, of the
            source.

    Raises:
        ConfigError: Parts that overlap, or go beyond the prompt; a name that is taken.
    """
    spans = [span for _, spans in _covering(parts, prompt_len) for span in spans]
    return [SpanMass(spans, name="ledger"), SinkShare(name="ledger_sink")]


def ledger(
    seen: Seen,
    parts: Parts,
    *,
    prompt_len: int,
    tokens: Sequence[str] = (),
    kind: Kind = "self",
    item: int = 0,
) -> Ledger:
    """The ledger of a generation that was watched with ``ledger_probes``.

    The row of a written token is that of the query before it, which chose it.

    Args:
        seen: Of the watch.
        parts: As for ``ledger_probes``.
        prompt_len: As for ``ledger_probes``.
        tokens: The written tokens.
        kind: "self" for a language model, whose prompt and output are one sequence; "cross" for what an encoder–decoder
            model read of its source.
        item: Batch row: of a beam search one of the returned hypotheses.

    Returns:
        Exact masses; rows and the sink's share sum to one.

    Raises:
        ConfigError: It was not watched with these probes; there is no layer of the kind, or nothing was written; a
            batch row that is not there.
        ShapeError: Not as many tokens as were written, or layers of different heads.
    """
    covering = _covering(parts, prompt_len)
    layers = [layer for layer in seen.layers if layer.kind == kind]
    if kind == "self" and any(layer.kind == "cross" for layer in seen.layers):
        layers = [layer for layer in layers if len(layer.calls) > 1]  # an encoder writes nothing
    first = 0 if kind == "cross" else prompt_len - 1
    found = {layer.name: _rows(layer, first, item) for layer in layers}
    found = {name: (mass, sink) for name, (mass, sink) in found.items() if sink.shape[1]}
    if not found:
        problem = "nothing was written after the prompt" if layers else f"no {kind}-attention was seen"
        raise ConfigError(message("ledger", f"{problem}."))
    shapes = sorted({tuple(sink.shape) for _, sink in found.values()})
    if len(shapes) > 1:
        problem = f"layers must have the same heads and queries, but have {', '.join(map(str, shapes))}"
        raise ShapeError(message("ledger", f"{problem} (heads, queries)."))
    written = shapes[0][1]
    if tokens and len(tokens) != written:
        raise ShapeError(message("ledger", must_be("tokens", f"the {written} that were written", f"{len(tokens)}")))
    shown = len(covering) - (kind == "cross")  # a source holds nothing that was written
    return Ledger(
        parts=tuple(name for name, _ in covering[:shown]),
        layers=tuple(found),
        tokens=tuple(tokens) or tuple(str(first + 1 + number) for number in range(written)),
        mass=torch.stack([_by_part(mass, covering)[..., :shown] for mass, _ in found.values()]),
        sink=torch.stack([sink for _, sink in found.values()]),
    )


def _rows(layer: Any, first: int, item: int) -> tuple[Tensor, Tensor]:
    """The sums of each span and the sink's share, of the queries from a position on."""
    try:
        mass, sink = layer.ledger, layer.ledger_sink
    except AttributeError:
        hint = "regard.watch(model, ledger_probes(parts, prompt_len=…))"
        raise ConfigError(
            message("ledger", "`seen` must be watched with ledger_probes, but is not.", hint=hint)
        ) from None
    if not 0 <= item < mass.shape[0]:
        raise ConfigError(message("ledger", must_be("item", f"from 0 to {mass.shape[0] - 1}", item)))
    late = layer.q_positions[0] >= first
    return mass[item, :, late.to(mass.device)].double().cpu(), sink[item, :, late.to(sink.device)].double().cpu()


def _by_part(mass: Float64[Tensor, "heads written spans"], covering: list[tuple[str, list[Span]]]) -> Tensor:
    """Sums of spans as sums of parts."""
    sizes = [len(spans) for _, spans in covering]
    return torch.stack([piece.sum(-1) for piece in torch.split(mass, sizes, dim=-1)], dim=-1)


def _covering(parts: Parts, prompt_len: int) -> list[tuple[str, list[Span]]]:
    """The parts with what is left of the prompt, and the output, so that every key is in one span."""
    problems = []
    if isinstance(prompt_len, bool) or not isinstance(prompt_len, int) or prompt_len < 1:
        raise ConfigError(message("ledger", must_be("prompt_len", "a number of tokens, at least 1", repr(prompt_len))))
    named = {name: [(int(start), int(stop)) for start, stop in spans] for name, spans in parts.items()}
    problems += [f"a part may not be called {name!r}." for name in (OUTPUT, OTHER, "sink") if name in named]
    for name, spans in named.items():
        wrong = [span for span in spans if not 0 <= span[0] <= span[1] <= prompt_len]
        if wrong:
            problems.append(must_be(name, f"ranges within 0 to {prompt_len}", wrong[0]))
    taken = sorted((start, stop, name) for name, spans in named.items() for start, stop in spans if stop > start)
    reached, before, free = 0, "", list[Span]()
    for start, stop, name in taken:
        if start < reached:
            problems.append(f"{before!r} and {name!r} overlap at position {start}.")
        if start > reached:
            free.append((reached, start))
        reached, before = max(reached, stop), name
    if reached < prompt_len:
        free.append((reached, prompt_len))
    if problems:
        raise all_problems("ledger", problems)
    other = [(OTHER, free)] if free else []
    return [*((name, spans or [(0, 0)]) for name, spans in named.items()), *other, (OUTPUT, [(prompt_len, _FAR)])]
