"""What surrounds a call changes nothing: torch's default dtype and device, modes, views that were never written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

import regard
from regard.ops import (
    ALiBi,
    Causal,
    Distance,
    Documents,
    Entropy,
    FirstKeys,
    HeatMap,
    KeyMass,
    LogSumExp,
    Mask,
    OffsetMass,
    Padding,
    Prefix,
    SinkShare,
    SlidingWindow,
    SpanMass,
    TopK,
    Where,
    attend,
    available_backends,
    measure,
    observe,
    weights,
)

pytestmark = pytest.mark.usefixtures("unchecked")
BACKENDS = ("auto", *available_backends())
PROBES = [
    *(Entropy(), LogSumExp(), TopK(3), Distance(), FirstKeys(2), OffsetMass([0, -1]), SpanMass([(0, 4)])),
    *(KeyMass(), HeatMap(2, 3), SinkShare()),
]
FAR, HELD = r"`q_start` must be from −2\^30 to 2\^30 less the length, but is 2147483648", "that float32 can hold"
MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": Causal(),
    "documents": Documents(torch.tensor([[0] * 20 + [1] * 17])),
    "padding": Causal() & Padding(torch.rand(2, 37, generator=torch.Generator().manual_seed(0)) < 0.8),
    "tiles": Where(lambda b, h, i, j: (i + j) % 3 != 0),
}


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    seeds = (torch.Generator().manual_seed(n) for n in range(3))
    return tuple(torch.randn(2, 4, 37, 16, generator=seed, dtype=torch.float32).to(dtype) for seed in seeds)


def everything(mask: Mask | None, bias: ALiBi | None = None) -> list[Tensor]:
    """Output, gradients, and every probe in one pass and beside."""
    q, k, v = (tensor.clone().requires_grad_() for tensor in inputs())
    output = attend(q, k, v, mask=mask, bias=bias)
    found = [output, *torch.autograd.grad(output.square().sum(), (q, k, v))]
    q, k, v = inputs()
    also, seen = observe(q, k, v, PROBES, mask=mask, bias=bias)
    beside = measure(q, k, PROBES, mask=mask, bias=bias)
    for observation in (seen, beside):
        for probe in PROBES:
            value = getattr(observation, probe.attribute)
            found.extend((value.weights, value.indices, value.rest) if isinstance(probe, TopK) else (value,))
    return [*found, also, attend(q, k, v, mask=mask, bias=bias)]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_default_dtype(dtype: torch.dtype, mask: str) -> None:
    wanted = everything(MASKS[mask])
    with default_dtype(dtype):
        found = everything(MASKS[mask])
    for one, two in zip(found, wanted, strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


@pytest.mark.parametrize("mask", MASKS)
def test_a_default_device(mask: str) -> None:
    for bias in (None, ALiBi(torch.tensor([0.1, 0.2, 0.3, 0.4]))):
        wanted = everything(MASKS[mask], bias)
        with torch.device("meta"):
            attend(*(torch.zeros(1, 1, 5, 4, device="cpu") for _ in range(3)), mask=Causal())
        fresh = MASKS[mask] if mask != "tiles" else Where(lambda b, h, i, j: (i + j) % 3 != 0)
        q, k, v = inputs()
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        with torch.device("meta"):
            output = attend(*leaves, mask=fresh, bias=bias)
            grads = torch.autograd.grad(output.square().sum(), leaves)
            also, seen = observe(q, k, v, PROBES, mask=fresh, bias=bias)
        for one, two in zip((output, *grads), wanted, strict=False):
            assert torch.equal(one, two)
        assert torch.equal(also, wanted[-2])
        assert torch.equal(seen.entropy, wanted[4])
        assert torch.equal(seen.heat_map, observe(q, k, v, [HeatMap(2, 3)], mask=fresh, bias=bias)[1].heat_map)


def test_no_tensor_of_the_operation_is_made_on_a_default_device_or_of_a_default_dtype() -> None:
    makes = re.compile(r"torch\.(?:empty|zeros|ones|full|tensor|arange|linspace|eye|rand\w*)\((?:[^()]|\([^()]*\))*\)")
    folder = Path(regard.__file__).parent / "ops"
    own = ("_contract.py", "_matrices.py", "check.py", "testing.py")  # they make inputs, on the CPU
    wrong = [
        f"{path.name}: {call}"
        for path in folder.rglob("*.py")
        if path.name not in own
        for call in makes.findall(re.sub(r"^\s*>>>.*$|^\s*#.*$", "", path.read_text(), flags=re.MULTILINE))
        if "device=" not in call
    ]
    assert wrong == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_that_were_never_written_are_what_they_stand_for(backend: str) -> None:
    q, k, v = inputs()
    zero = torch._efficientzerotensor(q.shape)
    for one, two in ((torch._neg_view(q), -q), (zero, torch.zeros_like(q))):
        for place in range(3):
            found, wanted = [q, k, v], [q, k, v]
            found[place], wanted[place] = one, two
            torch.testing.assert_close(attend(*found, backend=backend), attend(*wanted, backend=backend))
            torch.testing.assert_close(
                observe(*found, [Entropy()], backend=backend)[1].entropy, observe(*wanted, [Entropy()])[1].entropy
            )
    bias = torch.randn(37, 37)
    torch.testing.assert_close(
        attend(q, k, v, bias=torch._neg_view(bias), backend=backend), attend(q, k, v, bias=-bias, backend=backend)
    )
    leaf = q.clone().requires_grad_()
    output, grad = attend(leaf, k, v, backend=backend), torch.randn_like(q)
    found, wanted = (torch.autograd.grad(output, leaf, g, retain_graph=True)[0] for g in (torch._neg_view(grad), -grad))
    torch.testing.assert_close(found, wanted)


def test_wrappers_of_tensors_and_tensors_without_values() -> None:
    q, k, v = inputs()
    twice = [TwoTensor(tensor, tensor.clone()) for tensor in (q, k, v)]
    torch.testing.assert_close(attend(*twice).a, attend(q, k, v))
    leaf = TwoTensor(q, q.clone()).requires_grad_()
    (grad,) = torch.autograd.grad(attend(leaf, *twice[1:]).sum(), leaf)
    plain = q.clone().requires_grad_()
    torch.testing.assert_close(grad.a, torch.autograd.grad(attend(plain, k, v).sum(), plain)[0])
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in (q, k, v)]
        assert attend(*fake).shape == q.shape


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "mask", [Prefix(2), Documents(torch.tensor([[0] * 20 + [1] * 17])), Causal() & Padding(torch.ones(2, 37).bool())]
)
def test_a_mask_that_was_evaluated_with_trains_afterwards(mask: Mask, backend: str) -> None:
    q, k, v = inputs()
    if backend != "reference" and backend == "torch":
        mask = Causal()
    with torch.inference_mode():
        attend(q, k, v, mask=mask, backend=backend)
    q.requires_grad_()
    torch.autograd.grad(attend(q, k, v, mask=mask, backend=backend).sum(), q)


def test_a_mask_remembers_few_shapes() -> None:
    mask = Where(lambda b, h, i, j: j <= i)
    from regard.ops._lower import _KEPT, _lowered

    for length in range(5, 30):
        q = torch.randn(1, 1, length, 4)
        torch.testing.assert_close(attend(q, q, q, mask=mask), attend(q, q, q, mask=Causal()))
    assert len(_lowered[mask]) == _KEPT


def test_slopes_that_change_before_the_gradient_are_noticed() -> None:
    q, k, v = inputs()
    q.requires_grad_()
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])
    output = attend(q, k, v, bias=ALiBi(slopes)).sum()
    slopes.mul_(100)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(output, q)


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_and_prefixes_of_any_size_are_no_limit(backend: str) -> None:
    q, k, v = inputs()
    wanted = attend(q, k, v, backend=backend)
    for size in (2**31, 2**62, 2**63 - 1, 10**30):
        if backend != "torch":
            torch.testing.assert_close(attend(q, k, v, mask=SlidingWindow(size), backend=backend), wanted)
            torch.testing.assert_close(attend(q, k, v, mask=Prefix(size), backend=backend), wanted)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda q: attend(q, q, q, q_start=2**31),
            r"`q_start` must be from −2\^30 to 2\^30 less the length, but is 2147483648",
        ),
        (lambda q: attend(q, q, q, kv_start=10**30), "`kv_start` must be from"),
        (lambda q: attend(q, q, q, q_start=torch.tensor([0, 2**40])), "`q_start` must be from"),
        (lambda q: attend(q, q, q, q_start=torch.tensor([0j, 1])), "`q_start` must be integers"),
        (lambda q: SpanMass([(0, 2**70)]), "one or more pairs of integers .* of at most 2.30 in size"),
        (lambda q: OffsetMass([2**64]), "one or more integers of at most 2.30 in size"),
        (lambda q: FirstKeys(2**63), "an integer ≥ 1 of at most 2.30 in size"),
        (
            lambda q: attend(q, q, q, logit_softcap=1e-46),
            f"`logit_softcap` must be a number above 0 {HELD}",
        ),
        (
            lambda q: attend(q, q, q, logit_softcap=1e39),
            f"`logit_softcap` must be a number above 0 {HELD}",
        ),
        (lambda q: attend(q, q, q, scale=1e300), f"`scale` must be a finite number {HELD}"),
        (lambda q: attend(q, q, None), "`value` must be a tensor, but is a NoneType"),
        (lambda q: observe(q, q, None, [Entropy()]), "`value` must be a tensor, but is a NoneType"),
    ],
)
def test_numbers_that_do_not_fit_are_named(call, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        call(inputs()[0])


def test_far_positions_are_distances() -> None:
    q, k, v = inputs()
    start = 2**29
    seen = observe(q, k, v, [Distance(), FirstKeys(3)], q_start=start, kv_start=-5)[1]
    wanted = weights(q, k) @ (start + 5 + torch.arange(37)[:, None] - torch.arange(37).double()).abs().T.float()
    torch.testing.assert_close(seen.distance, wanted.diagonal(dim1=2, dim2=3), rtol=1e-5, atol=0)
    torch.testing.assert_close(seen.first_keys, weights(q, k)[..., :8].sum(dim=3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: type(probe).__name__)
def test_probes_change_no_bit_of_the_output(probe, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 6, 224, 80, generator=generator).to(dtype)
    k = torch.randn(1, 3, 469, 80, generator=generator).to(dtype)
    v = torch.randn(1, 3, 469, 41, generator=generator).to(dtype)
    for mask in (None, Causal()):
        assert torch.equal(observe(q, k, v, [probe], mask=mask)[0], attend(q, k, v, mask=mask))


def test_gradients_of_keys_that_many_queries_see_are_as_exact_as_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, 64, generator=generator) for n in (8192, 256, 256))
    errors = {}
    for backend in ("native", "torch"):
        if backend not in available_backends():
            pytest.skip("no kernels for this CPU")
        found = []
        for dtype, name in ((torch.float32, backend), (torch.float64, "reference")):
            leaves = [tensor.to(dtype).requires_grad_() for tensor in (k, v)]
            output = attend(q.to(dtype), *leaves, backend=name)
            found.append(torch.autograd.grad(output.sum(), leaves))
        errors[backend] = [float((one - two).abs().max()) for one, two in zip(*found, strict=True)]
    assert all(ours <= 2 * theirs for ours, theirs in zip(errors["native"], errors["torch"], strict=True)), errors


@pytest.mark.parametrize("backend", BACKENDS)
def test_bools_of_any_byte(backend: str) -> None:
    q = torch.randn(1, 1, 4, 8)
    k = torch.randn(1, 1, 64, 8)
    odd = torch.tensor([[0, 2, 255, 1] * 16] * 4, dtype=torch.uint8).view(torch.bool)
    plain = torch.tensor([[False, True, True, True] * 16] * 4)
    torch.testing.assert_close(
        attend(q, k, k, mask=odd[None, None], backend=backend), attend(q, k, k, mask=plain[None, None], backend=backend)
    )


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "torch"])
def test_a_sink_of_minus_infinity_takes_nothing_and_an_overflowed_row_gives_it_all(backend: str) -> None:
    q, k, v = inputs()
    sinks = torch.tensor([0.5, -torch.inf, 1.0, -torch.inf], requires_grad=True)
    mask = Padding(torch.tensor([[True] * 37, [False] * 37]))
    output, seen = observe(q, k, v, [SinkShare(), LogSumExp(), Entropy()], mask=mask, sinks=sinks, backend=backend)
    assert torch.equal(seen.sink_share[1], torch.tensor([1.0, 0, 1, 0])[:, None].expand(4, 37))
    assert torch.equal(seen.log_sum_exp[1, 1], torch.full((37,), -torch.inf))
    assert torch.equal(output[1], torch.zeros(4, 37, 16))
    (grad,) = torch.autograd.grad(attend(q, k, v, mask=mask, sinks=sinks, backend=backend).sum(), sinks)
    assert grad.isfinite().all()
    assert torch.equal(grad[[1, 3]], torch.zeros(2))
    low = torch.full_like(q, -1e30)
    output, seen = observe(
        low, low.neg(), v, [SinkShare(), Entropy()], sinks=sinks.detach()[[0, 2, 0, 2]], backend=backend
    )
    assert torch.equal(seen.sink_share, torch.ones(2, 4, 37))
    assert torch.equal(seen.entropy, torch.zeros(2, 4, 37))
    assert torch.equal(output, torch.zeros_like(output))


def test_packages_are_reached_from_the_root() -> None:
    assert regard.ops.attend is attend
    assert regard.nn.MultiHeadAttention.__module__ == "regard.nn.attention"
