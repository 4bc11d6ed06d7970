"""Cases of torch.compile and torch.export on modules; run by test_compiled_modules.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.testing
from torch import Tensor, nn

from regard.nn import ALiBi, MultiHeadAttention, Rotary, ScaledDotProductAttention
from regard.ops import Causal, Padding, Prefix, SlidingWindow, attend
from tests.compiling import case, compare, main

torch.set_num_threads(1)
torch.manual_seed(0)
KEEP = torch.tensor([[True] * 6, [False, False, True, True, True, True]])


class Plain(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v)


class Block(nn.Module):
    """Attention as a person writes it: projections, rotation, a mask built inside."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.rotary = Rotary(8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1], device=x.device)
        mask = Causal() & SlidingWindow(4)
        return attend(self.rotary(q, places), self.rotary(k, places), v, mask=mask).transpose(1, 2).flatten(2)


class Wrapped(nn.Module):
    """A causal module that returns its weights too."""

    def __init__(self, *, need_weights: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(16, 4, num_kv_heads=2)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, mask=Causal(), need_weights=self.need_weights)


def exported(module: nn.Module, inputs: Callable[[int, int], tuple[Tensor, ...]], axis: int) -> None:
    """Export with dynamic batch and length, and compare at other sizes, odd and 2 x 2 among them."""
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    shapes = tuple({0: batch, axis: length} for _ in inputs(3, 6))
    program = torch.export.export(module, inputs(3, 6), dynamic_shapes=shapes)
    for sizes in ((2, 9), (5, 2), (4, 33), (2, 2)):
        others = inputs(*sizes)
        torch.testing.assert_close(program.module()(*others), module(*others))


def heads(batch: int, length: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(batch, 2, length, 8) for _ in range(3))


def tokens(batch: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, length, 16),)


@case
def h7_export_plain() -> None:
    exported(Plain().eval(), heads, 2)


@case
def h7_export_a_block_with_rotation_and_window() -> None:
    exported(Block().eval(), tokens, 1)


@case
def h7_export_module_in_eval_and_train() -> None:
    for training in (False, True):
        exported(Wrapped(need_weights=False).train(training), tokens, 1)


@case
def h7_export_module_with_weights() -> None:
    exported(Wrapped(need_weights=True).eval(), tokens, 1)


@case
def h7_export_every_backend_with_masks_and_bias() -> None:
    class Module(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.options = options

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            places = torch.arange(q.shape[2])
            return attend(q, k, v, bias=ALiBi(2)(places, places), **self.options)

    for backend, mask in (("auto", None), ("auto", Causal()), ("reference", Causal()), ("tiled", Causal() | Prefix(2))):
        exported(Module(backend=backend, mask=mask), heads, 2)


@case
def h7_an_exported_module_can_be_saved_and_loaded() -> None:
    import io

    module, file, inputs = Wrapped(need_weights=False).eval(), io.BytesIO(), tokens(2, 6)
    torch.export.save(torch.export.export(module, inputs), file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(*inputs), module(*inputs))


@case
def h7_compile_module_in_eval_and_train() -> None:
    for training in (False, True):
        module = MultiHeadAttention(16, 4, num_kv_heads=2).train(training)
        for mask in (None, Causal(), Causal() & Padding(KEEP), torch.ones(6, 6).tril(), KEEP[:, None, None]):
            compare(lambda x, mask=mask, module=module: module(x, mask=mask), *tokens(2, 6), gradients=True)


@case
def h7_compile_module_with_weights() -> None:
    module = MultiHeadAttention(16, 4)
    compare(lambda x: module(x, mask=Causal() & Padding(KEEP), need_weights=True), *tokens(2, 6))
    single = ScaledDotProductAttention(16)
    compare(lambda x: single(x, x, x, torch.ones(6, 6).tril()), *tokens(2, 6))


@case
def h7_compile_module_gives_its_parameters_the_same_gradients() -> None:
    module, x = MultiHeadAttention(16, 4, num_kv_heads=1).train(), tokens(2, 6)[0]
    parameters = list(module.parameters())
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, mask=Causal()).square().sum(), parameters)
    for one, two in zip(found, torch.autograd.grad(module(x, mask=Causal()).square().sum(), parameters), strict=True):
        torch.testing.assert_close(one, two)


@case
def h7_compile_positions() -> None:
    rotary, alibi, places = Rotary(8), ALiBi(6), torch.arange(6)
    q = torch.randn(2, 6, 6, 8)
    compare(lambda q: attend(rotary(q, places), q, q, bias=alibi(places, places), mask=Causal()), q, gradients=True)


@case
def h7_compile_lengths_may_change_without_a_new_graph() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    module = MultiHeadAttention(16, 4)
    compiled = torch.compile(lambda x: module(x, mask=Causal()), fullgraph=True, backend=counter, dynamic=True)
    for length in (5, 7, 9, 12):
        x = torch.randn(2, length, 16)
        torch.testing.assert_close(compiled(x), module(x, mask=Causal()))
    assert counter.frame_count <= 2, f"{counter.frame_count} graphs for four lengths"


if __name__ == "__main__":
    main()
