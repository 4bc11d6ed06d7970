"""Cases of torch.compile and torch.export on the public functions; run by test_compile.py."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo.testing
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from regard.ops import (
    Allowed,
    Causal,
    Documents,
    Padding,
    Prefix,
    SlidingWindow,
    Where,
    attend,
    observe,
    weights,
)
from regard.ops._backends import native
from regard.ops.probes import (
    Distance,
    Entropy,
    FirstKeys,
    HeatMap,
    KeyMass,
    LogSumExp,
    OffsetMass,
    SinkShare,
    SpanMass,
    TopK,
)
from tests.compiling import case, compare, main

torch.set_num_threads(1)
torch.manual_seed(0)
Q, K, V = (torch.randn(2, heads, 6, 8) for heads in (4, 2, 2))
KEEP = torch.tensor([[True] * 5 + [False], [True] * 6])


@case
def attend_with_masks_built_inside() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        return attend(q, k, v, mask=(Causal() | Prefix(2)) & Padding(keep) & SlidingWindow(4))

    compare(function, Q, K, V, KEEP, gradients=True)


@case
def attend_with_masks_passed_in() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
        return attend(q, k, v, mask=mask)

    compare(function, Q, K, V, Causal() & Padding(KEEP))
    compare(function, Q, K, V, Documents(torch.tensor([[0, 0, 1, 1, -1, 2]])), gradients=True)


@case
def attend_plain_and_causal() -> None:
    compare(lambda q, k, v: attend(q, k, v), Q, K, V, gradients=True)
    compare(lambda q, k, v: attend(q, k, v, mask=Causal()), Q, K, V, gradients=True)


@case
def attend_with_a_predicate() -> None:
    compare(
        lambda q, k, v: attend(q, k, v, mask=Where(lambda b, h, i, j: (i + j) % 3 != h % 2)), Q, K, V, gradients=True
    )


@case
def d7_attend_with_a_mask_tensor() -> None:
    mask = torch.ones(6, 6).tril().bool()
    compare(lambda q, k, v, m: attend(q, k, v, mask=m), Q, K, V, mask, gradients=True)
    compare(lambda q, k, v, m: attend(q, k, v, mask=Allowed(m) & Causal()), Q, K, V, mask)


@case
def attend_with_bias_sinks_and_cap() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, sinks: Tensor) -> Tensor:
        return attend(q, k, v, mask=Causal(), bias=bias, sinks=sinks, logit_softcap=3.0)

    compare(function, Q, K, V, torch.randn(1, 4, 6, 6), torch.randn(4), gradients=True)
    compare(lambda q, k, v: attend(q, k, v, logit_softcap=3.0), Q, K, V, gradients=True)


@case
def every_named_backend() -> None:
    for backend in ("reference", "tiled"):
        compare(lambda q, k, v, name=backend: attend(q, k, v, mask=Causal(), backend=name), Q, K, V, gradients=True)
    compare(lambda q, k, v: attend(q, k, v, backend="torch"), Q, K, V)


@case
def the_native_backend_by_name() -> None:
    if not native.installed():
        return
    bias, sinks = torch.randn(1, 4, 6, 6), torch.randn(4)

    def plain(q: Tensor, k: Tensor, v: Tensor, b: Tensor, s: Tensor) -> Tensor:
        return attend(q, k, v, mask=Causal() & Padding(KEEP), bias=b, sinks=s, logit_softcap=2.0, backend="native")

    def predicate(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, mask=Where(lambda b, h, i, j: (i + j + h) % 2 == 0), backend="native")

    compare(plain, Q, K, V, bias, sinks, gradients=True)
    compare(predicate, Q, K, V, gradients=True)


@case
def decoding_with_a_tensor_start() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, start: Tensor) -> Tensor:
        return attend(q, k, v, mask=Causal(), q_start=start)

    compare(function, Q[:, :, :1], K, V, torch.tensor([2, 4]))


@case
def weights_compile() -> None:
    compare(lambda q, k: weights(q, k, mask=Causal()), Q, K, gradients=True)


@case
def observe_compiles() -> None:
    probes = [LogSumExp(), Entropy(), KeyMass(), FirstKeys(2), SinkShare(), Distance(), OffsetMass((0, 1))]

    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, dict[str, Any]]:
        output, seen = observe(q, k, v, probes, mask=Causal() & Padding(KEEP))
        return output, seen.values()

    compare(function, Q, K, V)


@case
def observe_top_k_compiles() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        output, seen = observe(q, k, v, [TopK(2)], mask=Causal())
        return output, seen.top_k.indices, seen.top_k.weights, seen.top_k.rest

    compare(function, Q, K, V)


@case
def observe_heat_map_compiles() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        output, seen = observe(q, k, v, [HeatMap(3, 3)], mask=Causal())
        return output, seen.heat_map

    compare(function, Q, K, V)


@case
def observe_span_mass_compiles() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        output, seen = observe(q, k, v, [SpanMass(((0, 2), (2, 4)))], mask=Causal())
        return output, seen.span_mass

    compare(function, Q, K, V)


@case
def h7_lengths_may_change_without_a_new_graph() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(
        lambda q, k, v: attend(q, k, v, mask=Causal()), fullgraph=True, backend=counter, dynamic=True
    )
    for length in (5, 7, 9, 12):
        tensors = [torch.randn(2, 2, length, 8) for _ in range(3)]
        torch.testing.assert_close(compiled(*tensors), attend(*tensors, mask=Causal()))
    assert counter.frame_count <= 2, f"{counter.frame_count} graphs for four lengths"


@case
def h7_export_with_dynamic_batch_and_length() -> None:
    class Module(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(q, k, v, mask=Causal())

    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    shapes = {name: {0: batch, 2: length} for name in "qkv"}
    tensors = tuple(torch.randn(3, 2, 6, 8) for _ in range(3))
    program = torch.export.export(Module(), tensors, dynamic_shapes=shapes)
    others = tuple(torch.randn(2, 2, 9, 8) for _ in range(3))
    torch.testing.assert_close(program.module()(*others), attend(*others, mask=Causal()))


@case
def autocast_inside_a_graph() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return attend(q, k, v, mask=Causal())

    compare(function, Q, K, V)


@case
def dropout_is_reproducible_inside_a_graph() -> None:
    torch._dynamo.reset()
    eye = torch.eye(6).expand(2, 2, 6, 6)
    compiled = torch.compile(lambda q, k, v: attend(q, k, v, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(compiled(Q, K, eye))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    share = (results[0] == 0).double().mean().item()
    assert 0.3 < share < 0.7, share
    assert not torch.equal(results[0], compiled(Q, K, eye)), "the next call draws anew"


@case
def inductor() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q * 1.5, k, v, mask=Causal() & SlidingWindow(3)) + 1

    compare(function, Q, K, V, gradients=True, backend="inductor")


if __name__ == "__main__":
    main()
