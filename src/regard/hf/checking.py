"""Whether a transformers model can be trusted when it is watched: it is run both ways, and its masks are tried."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionMaskInterface

from regard.errors import ConfigError, all_problems, message, must_be
from regard.hf.loading import kind_of, quiet
from regard.lens import Layer, Seen, watch
from regard.ops import Rows
from regard.records import Coverage

_ROUNDINGS = 2000  # how many roundings of the dtype the layers of a model may add up to, relative to its largest output
_MORE = 3  # tokens of padding
_LINEAR = "no softmax attention"


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a model: what was asked, what came out, and whether that is wrong."""

    name: str
    text: str
    wrong: bool = False


@dataclass(frozen=True)
class ModelCheck:
    """What ``check_model`` found; ``print`` shows all of it.

    Args:
        architecture: The class of the model.
        tokens: How many tokens were read.
        findings: The checks, in order.
        kinds: What kinds of attention there are, one line each.
        coverage: Per attention module: seen how, or not seen and why.
    """

    architecture: str
    tokens: int
    findings: tuple[Finding, ...]
    kinds: tuple[str, ...]
    coverage: tuple[Coverage, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that speak against trusting a watch of this model."""
        return tuple(finding for finding in self.findings if finding.wrong)

    def __str__(self) -> str:
        lines = [f"{self.architecture}, checked on {self.tokens} tokens"]
        lines += [f"{finding.name:<16} {'WRONG: ' * finding.wrong}{finding.text}" for finding in self.findings]
        return "\n".join([*lines, *(f"{'attention':<16} {line}" for line in self.kinds)])


@torch.no_grad()
def check_model(model: Any, inputs: Mapping[str, Tensor]) -> ModelCheck:
    """Run a text watched and unwatched, alone and padded, and say what a person must know before trusting a watch.

    Args:
        model: Of transformers, in evaluation mode: an encoder, a decoder or an encoder–decoder of text.
        inputs: Of one text, unpadded: ``input_ids`` [1, tokens], and ``decoder_input_ids`` of a decoder behind it.

    Returns:
        The findings. Wrong are: another output while watched, or when regard computes it (beyond 2000 roundings of
        the dtype, relative to the largest output); weights that are not those the model returns with eager
        attention; an output that padding changes; attention that cannot be observed.

    Raises:
        ConfigError: the model is in training mode, or the inputs are not those of one text.

    Cost:
        About eight runs, and the whole weights of the text: a few dozen tokens are enough.
    """
    ids = inputs.get("input_ids")
    problems = []
    if getattr(model, "training", False):
        problems.append(must_be("model", "in evaluation mode (model.eval())", "in training mode"))
    if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.shape[0] != 1 or ids.shape[1] < 1:
        found = f"of the shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        problems.append(must_be("inputs", "of one text: input_ids [1, tokens]", found))
    if problems or ids is None:
        raise all_problems("check_model", problems)
    whole = {"attention_mask": torch.ones_like(ids), **inputs}
    with quiet():
        base, again = _run(model, whole), _run(model, whole)
        with watch(model, [Rows()]) as seen:
            watched = _run(model, whole)
        findings = [
            _finite(base),
            _same(base, again, watched),
            _served(model, whole, base, again),
            _weights(model, whole, seen),
            _padding(model, whole, base),
            _coverage(seen),
        ]
    return ModelCheck(
        type(model).__name__, int(ids.shape[1]), tuple(findings), tuple(_kinds(seen.layers)), seen.coverage
    )


def _run(model: Any, inputs: Mapping[str, Tensor], **options: Any) -> Tensor:
    return _output(model(**inputs, **options))


def _output(returned: Any) -> Tensor:
    """What a model computes for each token: its logits, or its last hidden states."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(returned, name, None), Tensor):
            return found.detach().clone()
    raise ConfigError(message("check_model", "`model` must return logits or last_hidden_state, but returns neither."))


def _difference(found: Tensor, expected: Tensor) -> tuple[float, float]:
    """The largest difference, and the same relative to the largest output; NaN counts as infinitely far."""
    apart = (found.double() - expected.double()).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    largest, size = float(apart.max()), float(expected.double().abs().max())
    return largest, largest / size if size else largest


def _limit(output: Tensor) -> float:
    return min(_ROUNDINGS * torch.finfo(output.dtype).eps, 0.2)


def _finite(base: Tensor) -> Finding:
    bad = int((~base.isfinite()).sum())
    return Finding("output", f"{bad} of {base.numel()} numbers are NaN or infinite" if bad else "finite", bool(bad))


def _same(base: Tensor, again: Tensor, watched: Tensor) -> Finding:
    if torch.equal(base, watched):
        return Finding("watched", "the output is the unwatched one, bit for bit")
    own, _ = _difference(again, base)
    found, relative = _difference(watched, base)
    text = f"the output differs by {found:.1e} ({relative:.1e} of the largest); two runs unwatched by {own:.1e}"
    return Finding("watched", text, found > 2 * own)


def _served(model: Any, inputs: Mapping[str, Tensor], base: Tensor, again: Tensor) -> Finding:
    with watch(model, serve="regard"):
        found, relative = _difference(_run(model, inputs), base)
    own, _ = _difference(again, base)
    wrong = relative > _limit(base) and found > 2 * own
    text = f"differs by {found:.1e} ({relative:.1e} of the largest); two runs of the model by {own:.1e}"
    return Finding('serve="regard"', text + _blame(model) * wrong, wrong)


def _blame(model: Any) -> str:
    """What is known against the model's attention implementation."""
    name = getattr(model.config, "_attn_implementation", None)
    if name in (None, "eager") or name in AttentionMaskInterface._global_mapping:
        return f": the attention implementation {name!r} computes something else"
    return f": the attention implementation {name!r} has no mask function, so transformers gives it no masks"


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _weights(model: Any, inputs: Mapping[str, Tensor], seen: Seen) -> Finding:
    """The observed weights beside those that eager attention returns."""
    name = "weights"
    try:
        with _eager(model):
            returned = model(**inputs, output_attentions=True)
    except (TypeError, ValueError, NotImplementedError) as error:
        return Finding(name, f"not compared: the model returns none ({str(error).splitlines()[0][:100]})")
    expected = {
        "encoder": getattr(returned, "encoder_attentions", None) or getattr(returned, "attentions", None) or (),
        "decoder": getattr(returned, "decoder_attentions", None) or (),
        "cross": getattr(returned, "cross_attentions", None) or (),
    }
    pairs = []
    for part, given in expected.items():
        layers = [layer for layer in seen.layers if _part(layer, bool(expected["decoder"])) == part]
        given = [weights for weights in given if weights is not None]
        if len(layers) != len(given):
            return Finding(name, f"not compared: {len(layers)} layers were seen, and the model returns {len(given)}")
        pairs += list(zip(layers, given, strict=True))
    if not pairs:
        return Finding(name, "not compared: the model returns none")
    apart = {}
    for layer, weights in pairs:
        if layer.rows.shape != weights.shape:
            return Finding(name, f"not compared: those of {layer.name} have another shape {tuple(weights.shape)}")
        apart[layer.name] = _difference(layer.rows, weights)[0]
    limit = _limit(pairs[0][1])
    bad = {place: value for place, value in apart.items() if value > limit}
    if bad:
        listed = ", ".join(f"{place} {value:.1e}" for place, value in bad.items())
        return Finding(
            name, f"differ from those of eager attention in {len(bad)} of {len(apart)} layers: {listed}", True
        )
    worst = max(apart, key=lambda place: apart[place])
    return Finding(name, f"those of eager attention in {len(apart)} layers, within {apart[worst]:.1e} ({worst})")


def _part(layer: Layer, two: bool) -> str:
    if layer.kind == "cross":
        return "cross"
    return "decoder" if two and "decoder" in layer.name.split(".") else "encoder"


def _padding(model: Any, inputs: Mapping[str, Tensor], base: Tensor) -> Finding:
    """The text beside a longer one: its output must stay what it was."""
    name = "padding mask"
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        return Finding(name, "the model takes no attention_mask: texts of several lengths cannot share a batch", True)
    apart, relative = _difference(_padded(model, inputs), base)
    if relative <= _limit(base):
        return Finding(name, f"a longer text beside this one changes nothing ({relative:.1e} of the largest output)")
    own = getattr(model.config, "_attn_implementation", None)
    text = f"a longer text beside this one changes its output by {apart:.1e} ({relative:.1e} of the largest)"
    if own not in (None, "eager"):
        try:
            with _eager(model):
                _, eager = _difference(_padded(model, inputs), _run(model, inputs))
        except (TypeError, ValueError, NotImplementedError):
            eager = relative
        if eager <= _limit(base):
            return Finding(name, f"{text}: the attention implementation {own!r} loses the mask, eager does not", True)
    return Finding(name, f"{text}: the model ignores its padding mask", True)


def _padded(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """The output of the text in a batch with a longer one: padded where no causal mask would hide it."""
    ids = inputs["input_ids"]
    two = "decoder_input_ids" in inputs
    left = not two and _is_causal(model)
    spare = _pad_id(model)
    longer = ids[:, torch.arange(ids.shape[1] + _MORE) % ids.shape[1]]
    pads = torch.full_like(ids[:, :1], spare).expand(1, _MORE)
    row = torch.cat([pads, ids] if left else [ids, pads], dim=1)
    keep = torch.ones(2, ids.shape[1] + _MORE, dtype=torch.long, device=ids.device)
    keep[0, slice(0, _MORE) if left else slice(ids.shape[1], None)] = 0
    batch = {"input_ids": torch.cat([row, longer]), "attention_mask": keep}
    if left and "position_ids" in inspect.signature(model.forward).parameters:
        batch["position_ids"] = (keep.cumsum(1) - 1).clamp(min=0)
    if two:
        batch["decoder_input_ids"] = inputs["decoder_input_ids"].expand(2, -1)
    found = _run(model, batch)[:1]
    return found if two else found[:, _MORE:] if left else found[:, : ids.shape[1]]


def _is_causal(model: Any) -> bool:
    return kind_of(model.config) == "decoder"


def _pad_id(model: Any) -> int:
    config = model.config.get_text_config()
    for name in ("pad_token_id", "eos_token_id"):
        if isinstance(found := getattr(config, name, None), int) and found >= 0:
            return found
    return 0


def _coverage(seen: Seen) -> Finding:
    """How many modules were seen; every one that was not, by name and reason."""
    missed = [entry for entry in seen.coverage if entry.status != "seen" and not entry.reason.startswith(_LINEAR)]
    count = len({layer.name for layer in seen.layers})
    if not count and not missed:
        return Finding("coverage", "no attention was met", True)
    linear = sum(entry.reason.startswith(_LINEAR) for entry in seen.coverage)
    rest = f"; {linear} more have {_LINEAR}" if linear else ""
    if not missed:
        return Finding("coverage", f"all {count} attention modules were seen{rest}")
    listed = "; ".join(f"{entry.name} ({entry.status}): {entry.reason}" for entry in missed)
    return Finding("coverage", f"{count} attention modules were seen{rest}; not, or only in part: {listed}", True)


def _kinds(layers: list[Layer]) -> list[str]:
    """What is alike, said once, with the numbers of its layers."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        found.setdefault(_kind(layer), []).append(str(layer.number) if layer.number is not None else layer.name)
    return [f"{kind}: layers {', '.join(dict.fromkeys(places))}" for kind, places in found.items()]


def _kind(layer: Layer) -> str:
    mask = repr(layer.calls[0].mask)
    window = re.search(r"SlidingWindow\((?:size=)?(\d+)", mask)
    stack = re.split(r"(?:^|\.)\d+(?:\.|$)", layer.name)[0]
    parts = [f"{layer.kind}-attention of {stack}" if stack else f"{layer.kind}-attention"]
    parts += ["causal"] if "Causal" in mask else []
    if window:
        parts.append(f"window of {window[1]} keys" if "Causal" in mask else f"window |i − j| < {window[1]}")
    parts += ["in chunks or documents"] if "Documents" in mask else []
    parts += ["a mask known only as a function"] if "Where" in mask else []
    heads = f"{layer.num_heads} heads"
    parts.append(heads if layer.num_kv_heads == layer.num_heads else f"{heads} on {layer.num_kv_heads} key heads")
    parts += [f"soft cap {layer.logit_softcap:g}"] if layer.logit_softcap is not None else []
    parts += ["sinks"] if layer.has_sinks else []
    parts += ["read from its own softmax"] if layer.via == "softmax" else []
    return ", ".join(parts)
