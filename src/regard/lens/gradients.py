"""Gradient times attention: which weights a prediction depends on, and in which direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.lens._call import Kind
from regard.lens.kept import KeptCall, KeptLayer, kept_layers, kept_stack, places_of
from regard.lens.rollout import unit_rows
from regard.lens.seen import Seen
from regard.ops import Strip


@dataclass(frozen=True, eq=False)
class GradientAttention:
    """Gradient times attention of one layer: A ∘ ∂target/∂A, computed where it is asked for.

    Args:
        layer: The layer.
        gradients: ∂target/∂output of each of its calls, [batch, heads, q, value_dim].
    """

    layer: KeptLayer
    gradients: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """Dotted name of the module."""
        return self.layer.name

    @property
    def kind(self) -> Kind:
        """Self- or cross-attention."""
        return self.layer.kind

    def rows(self, rows: Sequence[int]) -> Float64[Tensor, "batch heads rows keys"]:
        """The products of some queries, signed.

        Args:
            rows: Positions of queries; −1 is the last.

        Raises:
            ConfigError: A position that was not seen.
        """
        layer = self.layer
        places = places_of(rows, layer.q_start, layer.q_end, caller="rows")
        shape = layer.batch, layer.num_heads, len(places), layer.kv_end
        found = torch.zeros(shape, dtype=torch.float64, device=layer.device)
        for queries, keys, product in self.strips():
            for number, place in enumerate(places):
                if queries.start <= place < queries.stop:
                    found[:, :, number, keys] = product[:, :, place - queries.start]
        return found

    def key_sums(self) -> Float64[Tensor, "batch heads keys"]:
        """The sum over all queries for each key, signed."""
        layer = self.layer
        found = torch.zeros(layer.batch, layer.num_heads, layer.kv_end, dtype=torch.float64, device=layer.device)
        for _, keys, product in self.strips():
            found[:, :, keys] += product.sum(2)
        return found

    def strips(self) -> Iterator[tuple[slice, slice, Float64[Tensor, "batch heads r c"]]]:
        """Positions of queries, positions of keys, and the products between them, some rows at a time."""
        for call, gradient in zip(self.layer.calls, self.gradients, strict=True):
            for strip in call.strips():
                queries, keys = call.places(strip)
                yield queries, keys, _product(call, gradient, strip)


def gradient_attention(
    seen: Seen, target: Tensor, *, modules: str | None = None, kind: Kind | None = None
) -> list[GradientAttention]:
    """Which weights a number depends on: each weight times the derivative of the number by it.

        ∂target/∂A[i, j] = ∂target/∂output[i] · v[j]

    so that the weights themselves need no graph and no memory: only the gradient of each layer's output is kept.

    Args:
        seen: Of ``regard.watch(model, keep=True)``, in which the model ran with gradients.
        target: One number that the model computed inside, such as ``logits[0, label]``.
        modules: Regular expression for names of layers; None for all.
        kind: Only "self" or only "cross" attention.

    Returns:
        One for each layer, in the order of their calls. ``target`` keeps its graph.

    Raises:
        ConfigError: Nothing was kept; the model ran without gradients; the target does not depend on a layer; a layer's
            output cannot be told from the rest of what its module computes.
        ShapeError: The target is not one number.

    Numerics:
        The weights are those before dropout; in ``eval`` mode there is no other. Products in float64.

    Cost:
        One backward; per layer one product of queries and keys and one of gradients and values when it is asked for.

    Source:
        Chefer et al. 2021, arXiv:2103.15679, equation 5 (before its mean and its positive part).
    """
    _check_target(target, caller="gradient_attention")
    return _gradients(kept_layers(seen, caller="gradient_attention", kind=kind, modules=modules), target)


def relevance(
    seen: Seen, target: Tensor, rows: Sequence[int] = (-1,), *, modules: str | None = None
) -> Float64[Tensor, "batch rows keys"]:
    """How much a prediction read from some positions depends on each input token, by gradients and attention.

        Ā_l = mean over heads of the positive part of A_l ∘ ∂target/∂A_l
        R   = (I + Ā_L) · … · (I + Ā_1), less the identity's share of a row in its own token

    Rows of R are computed from the last layer to the first, in linear memory.

    Args:
        seen: As for ``gradient_attention``: one pass of self-attention over a text.
        target: As for ``gradient_attention``.
        rows: Positions that the prediction is read from: 0 for a model with [CLS], −1 for a language model.
        modules: As for ``rollout``.

    Returns:
        Not negative, not normalised, float64. Only comparisons between keys of one row have a meaning.

    Raises:
        ConfigError, ShapeError: as ``gradient_attention`` and ``rollout``.

    Source:
        Chefer et al. 2021, arXiv:2103.15679, equations 5 and 6, for self-attention.
    """
    _check_target(target, caller="relevance")
    layers = kept_stack(seen, caller="relevance", modules=modules)
    places = places_of(rows, layers[-1].q_start, layers[-1].q_end, caller="relevance")
    return relevance_of(_gradients(layers, target), unit_rows(layers[-1], places))


def relevance_of(
    gradients: Sequence[GradientAttention], start: Float64[Tensor, "batch rows queries"]
) -> Float64[Tensor, "batch rows keys"]:
    """What a mass over the last layer's queries depends on; ``relevance`` of layers whose gradients are known."""
    mass = start.clone()
    for found in reversed(gradients):
        added = torch.zeros_like(mass)
        for queries, keys, product in found.strips():
            added[:, :, keys] += mass[:, :, queries] @ product.clamp(min=0).mean(1)
        mass += added
    return mass - start


def _gradients(layers: Sequence[KeptLayer], target: Tensor) -> list[GradientAttention]:
    """The gradients of all calls' outputs, by one backward."""
    calls = [call for layer in layers for call in layer.calls]
    for call in calls:
        if call.output is None or call.value is None:
            problem = f"the output of {call.name} cannot be told apart: it computes its own softmax."
            raise ConfigError(message("gradient_attention", problem, hint="modules= leaves it out"))
        if not call.output.tensor.requires_grad:
            problem = f"the model must run with gradients, but the output of {call.name} has none."
            hint = "run it without torch.no_grad(), with weights or inputs that require gradients"
            raise ConfigError(message("gradient_attention", problem, hint=hint))
    outputs = [call.output.tensor for call in calls if call.output is not None]
    found = torch.autograd.grad(target, outputs, allow_unused=True, retain_graph=True)
    by_call = {}
    for call, gradient in zip(calls, found, strict=True):
        assert call.output is not None
        by_call[id(call)] = call.output.by_head(torch.zeros_like(call.output.tensor) if gradient is None else gradient)
    if all(gradient is None for gradient in found):
        raise ConfigError(message("gradient_attention", "`target` must depend on attention, but depends on no layer."))
    return [GradientAttention(layer, tuple(by_call[id(call)] for call in layer.calls)) for layer in layers]


def _product(call: KeptCall, gradient: Tensor, strip: Strip) -> Tensor:
    """A ∘ (∂target/∂output · vᵀ) for the rows and keys of a strip."""
    assert call.value is not None
    group = gradient.shape[1] // max(call.value.shape[1], 1)
    values = call.value[:, :, strip.keys].double().repeat_interleave(group, 1)
    product = strip.weights.double() * (gradient[:, :, strip.rows].double() @ values.mT)
    return product.index_fill(1, torch.tensor(call.silenced, dtype=torch.long, device=product.device), 0)


def _check_target(target: Tensor, *, caller: str) -> None:
    if not isinstance(target, Tensor) or target.numel() != 1:
        found = f"of shape {tuple(target.shape)}" if isinstance(target, Tensor) else f"a {type(target).__name__}"
        raise ShapeError(message(caller, must_be("target", "one number, such as logits[0, label]", found)))
    if not target.requires_grad:
        raise ConfigError(message(caller, must_be("target", "computed with gradients", "without")))
