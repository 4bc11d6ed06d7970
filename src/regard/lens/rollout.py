"""Rollout: where the tokens that a last layer reads came from, if attention were all that moves anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.errors import ConfigError, message, must_be
from regard.lens.kept import KeptLayer, kept_stack, places_of
from regard.lens.seen import Seen


def rollout(
    seen: Seen, rows: Sequence[int] = (-1,), *, modules: str | None = None, residual: float = 0.5
) -> Float64[Tensor, "batch rows keys"]:
    """How much of each input token is in the outputs of some queries, by attention rollout.

        Â_l = r · I + (1 − r) · mean over heads of A_l,  rows divided by their sums
        rollout = Â_L · … · Â_2 · Â_1

    with the last layer on the left. Rows of the product are computed as a vector times one matrix after another, from
    the last layer to the first, and the matrices some rows at a time: nothing quadratic is held.

    Args:
        seen: Of ``regard.watch(model, keep=True)``: one pass over a text, or a generation.
        rows: Positions of the queries; −1 is the last.
        modules: Regular expression for the layers' names, where the model has several stacks.
        residual: r, the share of a token that goes around attention; 0.5 by convention.

    Returns:
        For each row a distribution over the positions of the input, in float64.

    Raises:
        ConfigError: Nothing was kept; a position that was not seen; layers of several stacks; ``residual`` outside 0 to
            1.

    Numerics:
        A row that gives a share to a sink, or sees nothing, is divided by what it gives to tokens.

    Cost:
        One product of queries and keys for each layer; memory for queries and keys of all layers, and rows · keys.

    Source:
        Abnar and Zuidema 2020, arXiv:2005.00928, section 3.

    Example:
        >>> import torch, regard
        >>> from regard.lens import rollout
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        >>> with torch.no_grad(), regard.watch(model, keep=True) as seen:
        ...     output = model(torch.randn(1, 5, 8))
        >>> rollout(seen, rows=[0]).sum().round().item()
        1.0
    """
    check_residual(residual, caller="rollout")
    layers = kept_stack(seen, caller="rollout", modules=modules)
    places = places_of(rows, layers[-1].q_start, layers[-1].q_end, caller="rollout")
    return rollout_of(layers, unit_rows(layers[-1], places), residual)


def rollout_of(
    layers: Sequence[KeptLayer], mass: Float64[Tensor, "batch rows queries"], residual: float = 0.5
) -> Float64[Tensor, "batch rows keys"]:
    """Where a mass over the last layer's queries came from; arguments as for ``rollout``."""
    for layer in reversed(layers):
        mass = _through(layer, mass, residual)
    return mass


def unit_rows(layer: KeptLayer, places: Sequence[int]) -> Float64[Tensor, "batch rows keys"]:
    """All of each row at its own position."""
    mass = torch.zeros(layer.batch, len(places), layer.kv_end, dtype=torch.float64, device=layer.device)
    mass[:, range(len(places)), list(places)] = 1
    return mass


def mixing(layer: KeptLayer, residual: float) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Â of one layer, some rows at a time.

    Yields:
        (queries, keys, attention [batch, r, c], own [batch, r]): positions, what the queries take from the keys by
        attention, and what they keep of themselves; the two sum to one for each query.
    """
    for call in layer.calls:
        for strip in call.strips():
            queries, keys = call.places(strip)
            weights = strip.weights.double().mean(1)
            total = residual + (1 - residual) * weights.sum(-1)
            share = torch.where(total > 0, 1 / total, 0)
            yield queries, keys, (1 - residual) * share[..., None] * weights, residual * share


def check_residual(residual: float, *, caller: str) -> None:
    """Refuse a share that is none."""
    if not isinstance(residual, int | float) or not 0 <= residual <= 1:
        raise ConfigError(message(caller, must_be("residual", "from 0 to 1", repr(residual))))


def _through(layer: KeptLayer, mass: Tensor, residual: float) -> Tensor:
    """One factor Â more: mass · Â of a layer."""
    found = torch.zeros_like(mass)
    for queries, keys, attention, own in mixing(layer, residual):
        found[:, :, queries] += mass[:, :, queries] * own[:, None]
        found[:, :, keys] += mass[:, :, queries] @ attention
    return found
