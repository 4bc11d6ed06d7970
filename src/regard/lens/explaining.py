"""Explanations side by side: what one prediction was made of, asked in every way there is."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.lens.gradients import GradientAttention, gradient_attention, relevance_of
from regard.lens.kept import KeptLayer, kept_stack
from regard.lens.norms import value_norms
from regard.lens.rollout import rollout_of
from regard.lens.seen import Seen


def explain(
    seen: Seen,
    target: Tensor,
    inputs: Float[Tensor, "1 tokens embed_dim"] | None = None,
    *,
    modules: str | None = None,
) -> dict[str, Float64[Tensor, "tokens"]]:
    """Scores for every token of a text that one prediction was read from.

        attention             of the last layer, a mean over heads
        value norms           of the last layer: how long the vectors are that attention moves (``value_norms``)
        rollout               attention through all layers (``rollout``)
        relevance             positive gradient times attention through all layers (``relevance``)
        gradient x attention  summed over layers, heads and queries, signed (``gradient_attention``)
        gradient x input      Σ_d x_d · ∂target/∂x_d, signed: without a look at attention, as a control

    The first four are of queries: they are weighted by how much the prediction depends on each, which is the length of
    the target's gradient by the last layer's output there. For a model that reads [CLS] all of it is there.

    Args:
        seen: Of ``regard.watch(model, keep=True)``: one pass over one text, with gradients.
        target: One number that the model computed inside, such as ``logits[0, label]``.
        inputs: The embeddings the pass began with, part of the target's graph; without them the last is left out.
        modules: Regular expression for the layers' names, where the model has several stacks.

    Returns:
        By name, float64. Each has a scale of its own: compare tokens within one, and orders between them. How far they
        may be trusted is another question: ``faithfulness`` asks it.

    Raises:
        ConfigError: As ``gradient_attention`` and ``value_norms``; there are several texts.
        ShapeError: The target is not one number, or ``inputs`` are not of these tokens.

    Cost:
        One backward, and per layer as much as each of them costs; memory linear in the text, times the positions that
        the prediction is read from for value norms.

    Source:
        Abnar and Zuidema 2020; Chefer et al. 2021; Kobayashi et al. 2020; Shrikumar et al. 2017 (gradient × input).

    Example:
        >>> import torch, regard
        >>> from regard.lens import explain
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        >>> with regard.watch(model, keep=True) as seen:
        ...     output = model(torch.randn(1, 5, 8))
        >>> sorted(explain(seen, output[0, 0, 3]))
        ['attention', 'gradient x attention', 'relevance', 'rollout', 'value norms']
    """
    layers = kept_stack(seen, caller="explain", modules=modules)
    if layers[-1].batch != 1:
        raise ConfigError(message("explain", must_be("seen", "of one text", f"of {layers[-1].batch}")))
    gradients = gradient_attention(seen, target, modules=modules, kind="self")
    last = layers[-1]
    shares = _read_from(last, gradients[-1])
    rows = shares.nonzero()[:, 0].tolist()
    moved = value_norms(seen, last.name, rows).together[0]
    found = {
        "attention": _looked(last, shares),
        "value norms": shares[rows] @ moved,
        "rollout": rollout_of(layers, shares[None, None])[0, 0],
        "relevance": relevance_of(gradients, shares[None, None])[0, 0],
        "gradient x attention": torch.stack([each.key_sums()[0].sum(0) for each in gradients]).sum(0),
    }
    if inputs is not None:
        found["gradient x input"] = _gradient_input(target, inputs, last.kv_end)
    return found


def _read_from(layer: KeptLayer, gradient: GradientAttention) -> Float64[Tensor, "queries"]:
    """How much of the prediction is read from each position, as shares."""
    lengths = [by_call.double().pow(2).sum(dim=(1, 3)).sqrt()[0] for by_call in gradient.gradients]
    found = torch.zeros(layer.q_end, dtype=torch.float64, device=layer.device)
    for call, length in zip(layer.calls, lengths, strict=True):
        found[call.q_start : call.q_end] = length
    total = found.sum()
    if not total > 0:
        raise ConfigError(message("explain", "`target` must depend on the last layer's attention, but does not."))
    return found / total


def _looked(layer: KeptLayer, shares: Float64[Tensor, "queries"]) -> Float64[Tensor, "keys"]:
    """The layer's attention, a mean over heads, of its queries by their shares."""
    found = torch.zeros(layer.kv_end, dtype=torch.float64, device=layer.device)
    for call in layer.calls:
        for strip in call.strips():
            queries, keys = call.places(strip)
            found[keys] += shares[queries] @ strip.weights[0].double().mean(0)
    return found


def _gradient_input(target: Tensor, inputs: Tensor, length: int) -> Float64[Tensor, "tokens"]:
    if inputs.dim() != 3 or inputs.shape[:2] != (1, length):
        expected = f"of shape [1, {length}, embed_dim]"
        raise ShapeError(message("explain", must_be("inputs", expected, f"of shape {tuple(inputs.shape)}")))
    (gradient,) = torch.autograd.grad(target, inputs, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ConfigError(message("explain", must_be("inputs", "what `target` was computed from", "not")))
    product: Tensor = inputs.detach().double() * gradient.double()
    return product.sum(dim=-1)[0]
