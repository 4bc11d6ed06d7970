"""Cases of torch.compile, torch.export and ONNX on layers and models; run by test_compiled.py."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.models import (
    CaptionModel,
    DecoderLM,
    EncoderClassifier,
    EncoderConfig,
    EncoderDecoderConfig,
    EncoderForSpans,
    EncoderTagger,
    MaskedLM,
    Seq2Seq,
    TransformerConfig,
    VisionClassifier,
    VisionConfig,
)
from regard.nn import (
    Dropout,
    FeedForward,
    KeyValueCache,
    LearnedPositions,
    Rotary,
    SelfAttention,
    SinusoidalPositions,
    YarnScaling,
)
from tests.compiling import case, compare, main

torch.set_num_threads(1)
torch.manual_seed(0)
TINY: dict[str, Any] = {"vocab_size": 40, "embed_dim": 16, "num_heads": 2, "num_layers": 1, "ff_dim": 24}
IMAGES: dict[str, Any] = {**TINY, "image_size": 8, "patch_size": 4}
SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")


def words(batch: int, length: int) -> Tensor:
    tokens = torch.randint(3, 40, (batch, length))
    tokens[-1, -1] = 0
    return tokens


def text(batch: int, length: int) -> tuple[Tensor, ...]:
    return (words(batch, length),)


def pair(batch: int, length: int) -> tuple[Tensor, ...]:
    return words(batch, length), words(batch, length + 1)


def images(batch: int, _: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 1, 8, 8),)


def described(batch: int, length: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 1, 8, 8), words(batch, length)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, ...]]]] = {
    "decoder": (lambda: DecoderLM(TransformerConfig(**TINY, positions="rotary", num_kv_heads=1)), text),
    "encoder-decoder": (lambda: Seq2Seq(EncoderDecoderConfig(**TINY)), pair),
    "classifier": (lambda: EncoderClassifier(EncoderConfig(**TINY, positions="learned")), text),
    "masked": (lambda: MaskedLM(EncoderConfig(**TINY, positions="relative")), text),
    "tagger": (lambda: EncoderTagger(EncoderConfig(**TINY)), text),
    "spans": (lambda: EncoderForSpans(EncoderConfig(**TINY, positions="alibi")), text),
    "vision": (lambda: VisionClassifier(VisionConfig(**IMAGES)), images),
    "captions": (lambda: CaptionModel(VisionConfig(**IMAGES)), described),
}


@case
def compile_every_model_in_evaluation() -> None:
    for make, inputs in MODELS.values():
        compare(make().eval(), *inputs(2, 6))


@case
def compile_every_model_in_training_with_its_gradients() -> None:
    for make, inputs in MODELS.values():
        model, given = make().train(), inputs(2, 6)
        for module in model.modules():
            if isinstance(module, Dropout):
                module.p = 0.0
        parameters = list(model.parameters())
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")

        def loss(output: Any) -> Tensor:
            parts = output if isinstance(output, tuple) else (output,)
            return sum(part.masked_fill(part.isneginf(), 0).square().sum() for part in parts)  # type: ignore[return-value]

        found = torch.autograd.grad(loss(compiled(*given)), parameters)
        for one, two in zip(found, torch.autograd.grad(loss(model(*given)), parameters), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@case
def compile_every_scheme_of_a_decoder_with_a_window() -> None:
    for positions in SCHEMES:
        compare(DecoderLM(TransformerConfig(**TINY, positions=positions, window=3)).eval(), *text(2, 7))


@case
def padding_between_real_tokens_is_right_or_refused() -> None:
    tokens = words(2, 7).clamp(min=3)
    tokens[0, 2:4] = 0
    for options in ({"positions": "rotary"}, {"positions": "learned"}):
        compare(DecoderLM(TransformerConfig(**TINY, **options)).eval(), tokens)
    for options in ({"positions": "alibi"}, {"positions": "relative"}, {"window": 3}):
        for backend in ("aot_eager", "inductor") if options == {"window": 3} else ("aot_eager",):
            torch._dynamo.reset()
            model = DecoderLM(TransformerConfig(**TINY, **options)).eval()
            compiled = torch.compile(model, fullgraph=True, backend=backend)
            compiled(tokens[1:])
            with pytest.raises(
                RuntimeError, match="`keep` must be without padding between real tokens in compiled code"
            ):
                compiled(tokens[:1])


@case
def a_text_longer_than_learned_positions_is_named() -> None:
    model = DecoderLM(TransformerConfig(**TINY, positions="learned", max_len=6)).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled(words(1, 6))
    with pytest.raises(RuntimeError, match="`positions` must be from 0 to 5"):
        compiled(words(2, 8).clamp(min=3))


@case
def compile_the_parts() -> None:
    x = torch.randn(2, 5, 16)
    for module in (
        SinusoidalPositions(16),
        LearnedPositions(9, 16),
        FeedForward(16, 24, gated=True),
        SelfAttention(16, 2),
    ):
        compare(module, x, gradients=True)
    rotary = Rotary(8, scaling=YarnScaling(2.0, 16))
    compare(lambda t: rotary(t, torch.arange(5)), torch.randn(2, 2, 5, 8), gradients=True)


@case
def a_compiled_dropout_draws_a_new_mask_each_time() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Dropout(0.5), fullgraph=True, backend="aot_eager")
    x = torch.ones(200, 50)
    one, two = compiled(x), compiled(x)
    assert not torch.equal(one, two)
    assert abs(float((one == 0).float().mean()) - 0.5) < 0.03


@case
def compile_a_step_with_a_cache() -> None:
    model, tokens = DecoderLM(TransformerConfig(**TINY, positions="rotary")).eval(), words(2, 9).clamp(min=3)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for options in ({}, {"max_len": 9}):
        cache = KeyValueCache(**options)
        with torch.no_grad():
            pieces = [compiled(tokens[:, i:j], kv_cache=cache) for i, j in ((0, 5), (5, 6), (6, 7), (7, 8), (8, 9))]
            torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-4, atol=1e-5)


@case
def inductor_takes_an_encoder_decoder() -> None:
    make, inputs = MODELS["encoder-decoder"]
    compare(make().eval(), *inputs(2, 6), backend="inductor")


def dynamic(inputs: tuple[Tensor, ...]) -> tuple[dict[int, Any], ...]:
    """Every batch, and every length of its own."""
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes: list[dict[int, Any]] = []
    for number, tensor in enumerate(inputs):
        lengths = {1: torch.export.Dim(f"length{number}", min=2, max=64)} if tensor.dim() == 2 else {}
        shapes.append({0: batch, **lengths})
    return tuple(shapes)


@case
def export_every_model_with_any_batch_and_length() -> None:
    for name, (make, inputs) in MODELS.items():
        model, given = make().eval(), inputs(3, 6)
        program = torch.export.export(model, given, dynamic_shapes=dynamic(given))
        for sizes in ((2, 9), (1, 3), (4, 17)):
            others = inputs(*sizes)
            torch.testing.assert_close(
                program.module()(*others), model(*others), msg=lambda m, name=name: f"{name}: {m}"
            )


@case
def onnx_of_every_model_with_any_batch_and_length() -> None:
    import onnxruntime

    for name, (make, inputs) in MODELS.items():
        model, given = make().eval(), inputs(3, 6)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            path = Path(folder) / "model.onnx"
            torch.onnx.export(model, given, path, dynamo=True, dynamic_shapes=dynamic(given))
            session = onnxruntime.InferenceSession(path)
        names = [one.name for one in session.get_inputs()]
        for sizes in ((2, 9), (1, 3), (4, 17)):
            others = inputs(*sizes)
            found = session.run(None, dict(zip(names, (tensor.numpy() for tensor in others), strict=True)))
            wanted = model(*others)
            for one, two in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                torch.testing.assert_close(
                    torch.from_numpy(one), two.detach(), rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
                )


if __name__ == "__main__":
    main()
