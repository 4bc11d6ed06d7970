"""Tensors on another device, without values or without strides are refused by name, wherever they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import ConfigError, UnsupportedError
from regard.lens import watch
from regard.ops import (
    Allowed,
    Blocked,
    Causal,
    Documents,
    Entropy,
    Padding,
    Prefix,
    attend,
    explain_backend,
    measure,
    observe,
    weights,
)
from tests.ops.backends import ALL

pytestmark = pytest.mark.usefixtures("unchecked")
Q = torch.zeros(2, 2, 3, 4)
META = torch.device("meta")

CALLS: dict[str, Callable[..., Any]] = {
    "attend": lambda q, k, v, **options: attend(q, k, v, **options),
    "observe": lambda q, k, v, **options: observe(q, k, v, [Entropy()], **options),
    "weights": lambda q, k, v, **options: weights(q, k, **options),
    "measure": lambda q, k, v, **options: measure(q, k, [Entropy()], **options),
    "explain_backend": lambda q, k, v, **options: explain_backend(q, k, v, **options),
}
TENSORS: dict[str, tuple[Tensor, Callable[[Tensor], dict[str, Any]]]] = {
    "mask": (torch.ones(3, 3).bool(), lambda t: {"mask": t}),
    "bias": (torch.full((3, 3), 0.5), lambda t: {"bias": t}),
    "sinks": (torch.zeros(2), lambda t: {"sinks": t}),
    "Padding(keep)": (torch.ones(2, 3).bool(), lambda t: {"mask": Causal() & Padding(t)}),
    "Documents(key_ids)": (torch.zeros(2, 3).long(), lambda t: {"mask": Documents(t)}),
    "Documents(query_ids)": (torch.zeros(2, 3).long(), lambda t: {"mask": Documents(torch.zeros(2, 3).long(), t)}),
    "Prefix(length)": (torch.ones(2).long(), lambda t: {"mask": Causal() | Prefix(t)}),
    "Allowed(tensor)": (torch.ones(3, 3).bool(), lambda t: {"mask": ~Allowed(t)}),
    "Blocked(tensor)": (torch.ones(2, 1, 3, 3).bool(), lambda t: {"mask": Blocked(t)}),
}


@pytest.mark.parametrize("caller", CALLS)
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_on_another_device_is_named(name: str, caller: str) -> None:
    tensor, given = TENSORS[name]
    CALLS[caller](Q, Q, Q, **given(tensor))
    with pytest.raises(ConfigError) as caught:
        CALLS[caller](Q, Q, Q, **given(tensor.to(META)))
    problem = f"{caller}(): `{name}` must be on the device of `query` (cpu), but is on meta."
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("caller", CALLS)
@pytest.mark.parametrize("name", TENSORS)
def test_a_sparse_tensor_is_named(name: str, caller: str) -> None:
    tensor, given = TENSORS[name]
    with pytest.raises(UnsupportedError) as caught:
        CALLS[caller](Q, Q, Q, **given(tensor.to_sparse()))
    problem = f"{caller}(): `{name}` must be a dense tensor, but is of the layout sparse_coo."
    assert str(caught.value).startswith(problem)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("caller", CALLS)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["query", "key", "value"])
def test_sparse_and_nested_inputs(place: int, caller: str) -> None:
    name = ("query", "key", "value")[place]
    if name == "value" and caller in ("weights", "measure"):
        return  # which take none
    nested = torch.nested.nested_tensor([torch.zeros(2, 3, 4)] * 2, layout=torch.jagged)
    strided = torch.nested.nested_tensor([torch.zeros(2, 3, 4)] * 2, layout=torch.strided)
    kinds = {"sparse_coo": Q.to_sparse(), "sparse_csr": Q[0, 0].to_sparse_csr(), "jagged": nested, "nested": strided}
    for layout, tensor in kinds.items():
        inputs = [Q, Q, Q]
        inputs[place] = tensor
        line = rf"{caller}\(\): `{name}` must be a dense tensor, but is of the layout {layout}\."
        with pytest.raises(UnsupportedError, match=line):
            CALLS[caller](*inputs)


@pytest.mark.parametrize("backend", ["auto", *ALL])
def test_inputs_without_values(backend: Any) -> None:
    for function in (attend, lambda *qkv, **options: observe(*qkv, [Entropy()], **options)):
        with pytest.raises(UnsupportedError, match=r"`query` must be on a device that holds values, but is on meta\."):
            function(Q.to(META), Q.to(META), Q.to(META), backend=backend)
    for name, inputs in (("key", (Q, Q.to(META), Q)), ("value", (Q, Q, Q.to(META)))):
        with pytest.raises(ConfigError, match=rf"`{name}` must be on the device of `query` \(cpu\), but is on meta\."):
            attend(*inputs, backend=backend)


def test_positions_and_denominators() -> None:
    starts = torch.zeros(2).long()
    with pytest.raises(UnsupportedError, match="`q_start` must be on a device that holds values, but is on meta"):
        attend(Q, Q, Q, q_start=starts.to(META))
    with pytest.raises(UnsupportedError, match="`q_start` must be a dense tensor"):
        attend(Q, Q, Q, q_start=starts.to_sparse())
    with pytest.raises(ConfigError, match=r"`lse` must be on the device of `query` \(cpu\), but is on meta"):
        measure(Q, Q, [Entropy()], lse=torch.zeros(2, 2, 3, device=META))


def test_a_model_without_values_runs_while_it_is_watched() -> None:
    model = torch.nn.MultiheadAttention(8, 2, device=META)
    x = torch.zeros(3, 1, 8, device=META)
    with watch(model, [Entropy()]) as seen:
        output, _ = model(x, x, x)
    assert output.shape == x.shape
    (entry,) = seen.coverage
    assert entry.status == "not seen"
    assert "on a device that holds values" in entry.reason
