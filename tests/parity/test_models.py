"""Watched transformers models: the weights are eager's, and the output is untouched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.lens import watch
from regard.ops.probes import KeyMass, Rows, TopK

from .tiny_models import MODELS

CASES = [(name, how) for name, tiny in MODELS.items() for how in (("eager", "sdpa") if tiny.fused else ("eager",))]


def eager_weights(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What each attention module of an eager model returns as its weights."""
    found: dict[str, torch.Tensor] = {}

    def keep(name):
        def hook(_module, _inputs, output):
            if isinstance(output, tuple) and isinstance(output[-1], torch.Tensor) and output[-1].dim() == 4:
                found[name] = output[-1]

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules()]
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    return found


def tensors_of(value: object) -> list[torch.Tensor]:
    """Every tensor of a model's output, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors_of(part)]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


def assert_equal_but_for_rounding(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Compare outputs of layers in float32, whose rounding grows with the largest value that passed through them.

    CLIP's image states reach 106 here, where eager's own distance from float64 is 1.4e-4.
    """
    torch.testing.assert_close(ours, theirs, atol=2e-5 * max(1.0, float(theirs.abs().max()) / 10), rtol=1e-4)


def real_queries(weights: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Which rows belong to real tokens: [batch, q], by the attention mask where it is about these queries."""
    keep = inputs.get("attention_mask")
    if keep is not None and keep.shape[1] == weights.shape[2]:
        return keep.bool()
    return torch.ones(weights.shape[0], weights.shape[2], dtype=torch.bool)


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_weights_are_those_of_eager_and_the_output_is_untouched(name, implementation):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    expected = eager_weights(tiny.build("eager"), inputs)
    model = tiny.build(implementation)
    with torch.no_grad():
        before = tensors_of(model(**inputs))
        with watch(model, [Rows(), KeyMass(), TopK(3)]) as seen:
            during = tensors_of(model(**inputs))
        after = tensors_of(model(**inputs))
    assert all(map(torch.equal, before, during)), "watching changed the output"
    assert all(map(torch.equal, before, after)), "watching left something behind"
    names = {layer.name for layer in seen.layers}
    inner = {name for name in expected if not any(other.startswith(f"{name}.") for other in expected)}
    assert names == inner, "modules that attend are missing or invented"
    assert all(entry.status == "seen" for entry in seen.coverage)
    for layer in seen.layers:
        weights = expected[layer.name]
        real = real_queries(weights, inputs)
        torch.testing.assert_close(
            layer.rows.transpose(1, 2)[real], weights.transpose(1, 2)[real].to(layer.rows.dtype), atol=1e-5, rtol=0
        )
        torch.testing.assert_close(layer.key_mass, layer.rows.sum(2), atol=1e-5, rtol=0)
        largest = weights.amax(-1)[real[:, None].expand(weights.shape[:3])].mean()
        assert float(largest) * weights.shape[3] > 1.5, "attention is too uniform for a comparison to mean much"


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_regard_serves_the_same_output(name, implementation):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    model = tiny.build(implementation)
    with torch.no_grad():
        expected = tensors_of(model(**inputs))
        with watch(model, [Rows()]) as beside:
            model(**inputs)
        with watch(model, [Rows()], serve="regard") as within:
            served = tensors_of(model(**inputs))
    for theirs, ours in zip(expected, served, strict=True):
        real = torch.ones(theirs.shape[:2], dtype=torch.bool) if theirs.dim() > 1 else ...
        if theirs.dim() == 3:
            real = real_queries(theirs[:, None], inputs)
        assert_equal_but_for_rounding(ours[real], theirs[real])
    assert [layer.name for layer in within.layers] == [layer.name for layer in beside.layers]
    for ours, theirs in zip(within.layers, beside.layers, strict=True):
        real = real_queries(theirs.rows, inputs)
        torch.testing.assert_close(
            ours.rows.transpose(1, 2)[real], theirs.rows.transpose(1, 2)[real], atol=1e-5, rtol=1e-4
        )


GENERATING = [name for name, tiny in MODELS.items() if tiny.generates]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", GENERATING)
def test_generation_is_untouched_and_rows_are_those_of_one_forward(name, cache):
    tiny = MODELS[name]
    inputs = tiny.inputs()
    inputs.pop("decoder_input_ids", None)
    model = tiny.build("eager")
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache}
    tokens = model.generate(**inputs, **options)
    with watch(model, [Rows(), TopK(2)]) as seen:
        assert torch.equal(model.generate(**inputs, **options), tokens)
    with watch(model, [], serve="regard"):
        assert torch.equal(model.generate(**inputs, **options), tokens)
    whole = eager_weights(model, _whole(inputs, tokens, model))
    for layer in seen.layers:
        assert layer.index == 0, "steps were not joined"
        weights = whole[layer.name][:, :, : layer.rows.shape[2], : layer.rows.shape[3]]
        pads = (inputs["attention_mask"] == 0).sum(1).tolist()
        left = not model.config.is_encoder_decoder
        for row, skipped in enumerate(pads):
            first = skipped if left else 0
            last = layer.rows.shape[2] - (0 if left or "decoder" in layer.name else skipped)
            torch.testing.assert_close(
                layer.rows[row, :, first:last], weights[row, :, first:last].float(), atol=2e-5, rtol=0
            )
            top = layer.top_k.indices[row, :, first:last, 0]
            chosen = weights[row, :, first:last].gather(2, top[..., None])[..., 0]
            torch.testing.assert_close(chosen, weights[row, :, first:last].amax(-1), atol=2e-5, rtol=0)


def _whole(inputs, tokens, model):
    """The inputs of one forward over everything that was read and generated, as generate() placed it."""
    if model.config.is_encoder_decoder:
        return {**inputs, "decoder_input_ids": tokens[:, :-1]}
    keep = torch.cat(
        [inputs["attention_mask"], torch.ones(2, tokens.shape[1] - inputs["input_ids"].shape[1]).long()], 1
    )
    positions = (keep.cumsum(1) - 1).clamp(min=0)
    whole = {**inputs, "input_ids": tokens[:, :-1], "attention_mask": keep[:, :-1], "position_ids": positions[:, :-1]}
    return {**whole, "use_cache": False}
