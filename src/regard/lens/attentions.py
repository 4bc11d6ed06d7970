"""Recordings of attention weights that people already have: what a model returned itself, or a file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

import regard
from regard.errors import ConfigError, message, must_be
from regard.lens._call import layer_number
from regard.lens._recording import arrays_of, description_of
from regard.lens._stitching import CALLER, Stitched, stitched
from regard.lens._tokens import spelled
from regard.lens.usual import usual_probes
from regard.ops import Geometry, Strip
from regard.ops.probes import HeatMap
from regard.records import Call, Coverage, Model, Recording
from regard.records import Sequence as TokenSequence

_HOW = "from the weights that were given"
_BEAMS = "of a beam search also pass beam_indices=outputs.beam_indices"


def from_attentions(
    attentions: Sequence[Any] | Mapping[str, Any] | None,
    tokens: Sequence[Any] | TokenSequence,
    *,
    cross_attentions: Sequence[Any] | Mapping[str, Any] | None = None,
    encoder_attentions: Sequence[Any] | Mapping[str, Any] | None = None,
    source_tokens: Sequence[Any] | TokenSequence | None = None,
    beam_indices: Int[Tensor, "texts steps"] | None = None,
    has_sinks: bool = False,
    model_name: str = "attention weights",
    architecture: str | None = None,
    notes: Sequence[str] = (),
) -> Recording:
    """Make a recording of weights that are there already, to be saved and looked at like any other.

    One entry for each layer, [batch, heads, queries, keys], as transformers returns with ``output_attentions=True``;
    without a batch, or a single matrix, will do. A mapping gives the layers names. What ``generate(...,
    output_attentions=True, return_dict_in_generate=True)`` returns, one such tuple for each step, becomes one matrix
    for each layer: every row at its position, whatever the cache held.

    Args:
        attentions: Over ``tokens``: ``outputs.attentions``, or ``outputs.decoder_attentions``; None for
            cross-attention alone.
        tokens: What was read, or what an encoder–decoder wrote (first the token its decoder begins with): strings or a
            ``regard.records.Sequence``, or a list of these for each batch item. One for each position, padding
            included; what was written last and never read may be one more.
        cross_attentions: From ``tokens`` to ``source_tokens``.
        encoder_attentions: Over ``source_tokens``.
        source_tokens: What the encoder read, as ``tokens``.
        beam_indices: ``outputs.beam_indices`` of a beam search: without it, rows of different texts are mixed. The
            items are then the texts that were returned; behind the end of a text rows are zero.
        has_sinks: Whether a learned sink takes the rest of every row, as in gpt-oss.
        model_name: Shown on the page.
        architecture: The class of the model.
        notes: What a person should know.

    Returns:
        A recording with the usual probes: the exact weights up to 128 tokens, a map and the largest ones beyond.
        Layers are numbered in the order they come in; a mapping's names tell their numbers themselves.

    Raises:
        ConfigError: no weights (None, an empty tuple), NaN, negative weights, rows that sum neither to one nor to
            zero, or tokens that are not as many as the positions; names the layer.
        DTypeError, ShapeError: an entry of another kind or shape; names it.

    Numerics:
        Half types are read as they are; a row's sum may be off by 1e-3, or by four roundings of its dtype.

    Cost:
        Quadratic in the tokens, as the weights are.

    Example:
        >>> import torch
        >>> from regard.lens import from_attentions
        >>> recording = from_attentions([torch.full((1, 2, 3, 3), 1 / 3)], ["the", "river", "bank"])
        >>> recording.calls[0].name
        'layers.0.attention'
    """
    two = cross_attentions is not None or encoder_attentions is not None
    if two and source_tokens is None:
        raise ConfigError(
            message(CALLER, "`source_tokens` must be given with cross_attentions and encoder_attentions.")
        )
    if source_tokens is not None and not two:
        problem = "`source_tokens` is for cross_attentions or encoder_attentions, but there are none."
        raise ConfigError(message(CALLER, problem))
    texts = _texts("tokens", tokens, "target" if two else "input")
    sources = _texts("source_tokens", source_tokens, "source") if source_tokens is not None else []
    if sources and len(sources) != len(texts):
        problem = f"`source_tokens` must be of as many items as `tokens` ({len(texts)}), but are of {len(sources)}."
        raise ConfigError(message(CALLER, problem))
    if sources and sources[0].name == texts[0].name:
        problem = f"`tokens` and `source_tokens` must be sequences of two names, but both are {texts[0].name!r}."
        raise ConfigError(message(CALLER, problem))

    calls: list[Call] = []
    own, decoder = ("decoder.layers.{}.self", "decoder.layers.{}.cross") if two else ("layers.{}.attention", "")
    if encoder_attentions is not None:
        layers = stitched("encoder_attentions", encoder_attentions, kind="self", beam_indices=None, has_sinks=has_sinks)
        layers = [_for_each(layer, len(texts)) for layer in layers]
        calls += _calls(layers, "encoder.layers.{}.self", "self", (sources, sources), has_sinks)
    if attentions is not None or cross_attentions is None:
        options: dict[str, Any] = {"beam_indices": beam_indices, "has_sinks": has_sinks}
        layers = stitched("attentions", attentions, kind="self", **options)
        calls += _calls(layers, own, "self", (texts, texts), has_sinks)
    if cross_attentions is not None:
        layers = stitched(
            "cross_attentions", cross_attentions, kind="cross", beam_indices=beam_indices, has_sinks=has_sinks
        )
        calls += _calls(layers, decoder, "cross", (texts, sources), has_sinks)
    return Recording(
        model=Model(model_name, architecture=architecture),
        sequences=tuple(zip(sources, texts, strict=True)) if sources else tuple((text,) for text in texts),
        calls=tuple(calls),
        coverage=tuple(Coverage(call.name, "seen", _HOW) for call in calls),
        notes=tuple(notes),
        regard_version=regard.__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _texts(argument: str, given: Any, name: str) -> list[TokenSequence]:
    """One sequence for each batch item."""
    expected = "strings or a regard.records.Sequence, or a list of these for each batch item"
    if isinstance(given, TokenSequence):
        return [given]
    if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
        found = repr(given) if isinstance(given, str) or given == [] or given == () else f"a {type(given).__name__}"
        raise ConfigError(message(CALLER, must_be(argument, expected, found)))
    items = [given] if isinstance(given[0], str) else given
    texts: list[TokenSequence] = []
    for item in items:
        if isinstance(item, TokenSequence):
            texts.append(item)
        elif isinstance(item, str) or not isinstance(item, Sequence) or any(not isinstance(x, str) for x in item):
            hint = "tokenizer.convert_ids_to_tokens(ids) makes strings of numbers"
            what = {type(x).__name__ for x in item if not isinstance(x, str)} if isinstance(item, Sequence) else set()
            kinds = ", ".join(sorted(what)) or type(item).__name__
            raise ConfigError(message(CALLER, must_be(argument, expected, f"holding {kinds}"), hint=hint))
        else:
            texts.append(spelled(item, name))
    return texts


def _for_each(layer: Stitched, texts: int) -> Stitched:
    """An encoder's weights for each text that was written: it reads a source once, whatever the number of beams."""
    batch = layer.weights.shape[0]
    if batch == texts or texts % batch:
        return layer
    repeated = layer.weights.repeat_interleave(texts // batch, dim=0)
    return Stitched(layer.name, layer.key, repeated, layer.q_start, layer.generated)


def _calls(
    layers: Sequence[Stitched],
    pattern: str,
    kind: Literal["self", "cross"],
    texts: tuple[Sequence[TokenSequence], Sequence[TokenSequence]],
    has_sinks: bool,
) -> list[Call]:
    """A call for each layer, after its tokens were counted."""
    found = []
    for place, layer in enumerate(layers):
        _check_tokens(layer, kind, *texts)
        name = layer.key if layer.key is not None else pattern.format(place)
        found.append(_call(layer, name, kind, (texts[0][0].name, texts[1][0].name), has_sinks))
    return found


def _check_tokens(layer: Stitched, kind: str, queries: Sequence[TokenSequence], keys: Sequence[TokenSequence]) -> None:
    """Refuse another number of items or of tokens; one token more may have been written last."""
    batch = layer.weights.shape[0]
    if batch != len(queries):
        problem = f"`tokens` must be of as many items as `{layer.name}` ({batch}), but are of {len(queries)}."
        raise ConfigError(message(CALLER, problem, hint=_BEAMS if layer.generated else None))
    of_source = kind == "cross" or queries[0].name == "source"
    argument = "source_tokens" if of_source else "tokens"
    may_write = kind == "cross" or layer.generated or not bool(layer.weights.triu(layer.q_start + 1).any())
    for item, (query, key) in enumerate(zip(queries, keys, strict=True)):
        where = f" in item {item}" if batch > 1 else ""
        if kind == "cross":
            _count(argument, key, layer.weights.shape[3], f"keys of `{layer.name}`", where)
            argument_q, positions = "tokens", layer.q_end
        else:
            argument_q, positions = argument, layer.q_end
        _count(argument_q, query, positions, f"positions of `{layer.name}`", where, more=may_write)


def _count(argument: str, given: TokenSequence, expected: int, what: str, where: str, *, more: bool = False) -> None:
    count = len(given.tokens)
    if count == expected or (more and count == expected + 1):
        return
    numbers = f"{expected}, or {expected + 1} with the one written last" if more else str(expected)
    problem = f"`{argument}` must be as many as the {what} ({numbers}), but are {count}{where}."
    raise ConfigError(message(CALLER, problem))


def _call(
    layer: Stitched, name: str, kind: Literal["self", "cross"], sequences: tuple[str, str], has_sinks: bool
) -> Call:
    """The usual probes of one layer, each by its definition."""
    heads, kv_len = layer.weights.shape[1], layer.weights.shape[3]
    probes = usual_probes(max(layer.q_end, kv_len))
    strip = _whole(layer, has_sinks)
    pooled = tuple(probe.attribute for probe in probes if isinstance(probe, HeatMap))
    values: dict[str, np.ndarray] = {}
    for probe in probes:
        values |= arrays_of(probe, probe.define(strip))
    return Call(
        name=name,
        kind=kind,
        sequence_q=sequences[0],
        sequence_k=sequences[1],
        q_positions=strip.geometry.q_positions.numpy(),
        kv_start=0,
        kv_len=kv_len,
        num_heads=heads,
        num_kv_heads=heads,
        scale=1.0,
        logit_softcap=None,
        has_sinks=has_sinks,
        mask=None,
        mask_stored=False,
        values=values,
        probes={probe.attribute: description_of(probe) for probe in probes},
        exact=tuple(probe.attribute for probe in probes if probe.attribute not in pooled),
        pooled=pooled,
        layer=layer_number(name),
    )


def _whole(layer: Stitched, has_sinks: bool) -> Strip:
    """The weights as scores would have made them: log(weight) is such a score, and 0 the log of their sum."""
    weights = layer.weights
    batch, heads, q_len, kv_len = weights.shape
    positions = torch.arange(layer.q_start, layer.q_end)[None]
    geometry = Geometry(batch, heads, q_len, kv_len, positions, 0, weights.dtype, weights.device)
    row = weights.new_zeros(batch, heads, q_len)
    share = (1 - weights.sum(-1)).clamp(min=0) if has_sinks else row
    return Strip(geometry, 0, 0, logits=weights.log(), weights=weights, lse=row, sink_share=share)
