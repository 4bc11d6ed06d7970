"""Behind the mask nothing matters; in front of it nothing is hidden (DESIGN §2, lines 6 and 7; cases A44, H1)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.ops import (
    Allowed,
    Blocked,
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
from regard.ops.probes import Entropy, FirstKeys, LogSumExp, TopK
from tests.ops.backends import WAYS, each_backend, or_refused, play, serve, skip_unavailable

NAN, INF = float("nan"), float("inf")
KEEP = torch.tensor([[True, False, True, True, False, True], [True, True, True, True, True, False]])
HIDDEN = ~KEEP
each_way_here = pytest.mark.parametrize("backend", WAYS)
each_poison = pytest.mark.parametrize("poison", [NAN, INF, -INF])

MASKS: dict[str, Any] = {
    "padding": Padding(KEEP),
    "causal and padding": Causal() & Padding(KEEP),
    "allowed": Allowed(KEEP[:, None, None, :]),
    "blocked": Blocked(HIDDEN[:, None, None, :].expand(2, 2, 6, 6)),
    "bool tensor": KEEP[:, None, None, :],
    "documents": Documents(torch.where(KEEP, 0, -1)),
    "where": Where(lambda b, h, i, j: ~((b == 0) & ((j == 1) | (j == 4)) | (b == 1) & (j == 5))),
}


def leaves(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: torch.randn(2, 2, 6, 8, dtype=dtype) for name in ("query", "key", "value")}


def poisoned(tensor: Tensor, cells: Tensor, value: float) -> Tensor:
    """Overwrite the tokens that `cells` [batch, kv_len] marks."""
    return tensor.masked_fill(cells[:, None, :, None], value)


def run(backend: str, tensors: dict[str, Tensor], **options: Any) -> tuple[Tensor, ...] | None:
    """The output and the gradients of query, key and value."""
    given = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    with play(backend) as name:
        output = serve(name, **given, **options)
        if output is None:
            return None
        upstream = torch.linspace(-1, 1, output.numel()).view(output.shape).to(output)
        return (output, *torch.autograd.grad(output, list(given.values()), upstream))


@pytest.mark.parametrize(("where", "poison"), [("key", NAN), ("value", NAN), ("both", INF), ("key", -INF)])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@each_way_here
def test_h1_keys_nobody_may_see_do_not_matter(backend: str, mask: Any, where: str, poison: float) -> None:
    tensors = leaves()
    clean = run(backend, tensors, mask=mask)
    dirty = dict(tensors)
    for name in ("key", "value") if where == "both" else (where,):
        dirty[name] = poisoned(tensors[name], HIDDEN, poison)
    found = run(backend, dirty, mask=mask)
    if clean is None or found is None:
        return
    for one, two in zip(found, clean, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    for gradient in found[2:]:
        assert torch.count_nonzero(gradient.masked_fill(KEEP[:, None, :, None], 0.0)) == 0


@each_poison
@each_way_here
def test_h1_a_blocking_bias_hides_as_well_as_a_mask(backend: str, poison: float) -> None:
    tensors = leaves()
    bias = torch.randn(2, 1, 1, 6).masked_fill(HIDDEN[:, None, None, :], -INF)
    clean = run(backend, tensors, bias=bias)
    dirty = tensors | {name: poisoned(tensors[name], HIDDEN, poison) for name in ("key", "value")}
    found = run(backend, dirty, bias=bias)
    for one, two in zip(found or (), clean or (), strict=False):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


@each_poison
@pytest.mark.parametrize("name", ["key", "value"])
@each_way_here
def test_h1_keys_that_only_some_may_see_touch_only_those(backend: str, name: str, poison: float) -> None:
    """Causal, the last key broken: only the last query may notice."""
    tensors = leaves()
    cells = torch.zeros(2, 6, dtype=torch.bool)
    cells[:, 5] = True
    clean = run(backend, tensors, mask=Causal())
    dirty = run(backend, tensors | {name: poisoned(tensors[name], cells, poison)}, mask=Causal())
    if clean is None or dirty is None:
        return
    torch.testing.assert_close(dirty[0][:, :, :5], clean[0][:, :, :5], rtol=1e-6, atol=1e-6)
    if name == "value" or poison != poison:
        assert not dirty[0][:, :, 5].isfinite().any(), "a visible NaN stays visible"
    torch.testing.assert_close(dirty[1][:, :, :5], clean[1][:, :, :5], rtol=1e-6, atol=1e-6)  # dq of the others


@each_backend
def test_h1_gradients_that_do_not_depend_on_the_broken_row_are_finite(backend: str) -> None:
    """Only query 5 sees the broken key 5, and nothing else: all that belongs to the others is as if it were fine."""
    tensors = leaves()
    mask = torch.ones(6, 6).tril().bool()
    mask[5, :5] = False
    broken = {name: tensors[name].clone() for name in tensors}
    broken["key"][:, :, 5] = NAN
    broken["value"][:, :, 5] = INF

    def gradients(given: dict[str, Tensor]) -> tuple[Tensor, ...] | None:
        given = {name: tensor.requires_grad_() for name, tensor in given.items()}
        output = serve(backend, **given, mask=mask)
        if output is None:
            return None
        return torch.autograd.grad(output[:, :, :5].square().sum(), list(given.values()))

    clean, dirty = gradients(tensors), gradients(broken)
    for one, two in zip(dirty or (), clean or (), strict=False):
        valid = slice(0, 5)
        torch.testing.assert_close(one[:, :, valid], two[:, :, valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mask",
    [None, Causal(), torch.ones(6, 6, dtype=torch.bool), Padding(torch.ones(2, 6, dtype=torch.bool))],
    ids=["none", "causal", "bool", "padding"],
)
@each_backend
def test_a44_nan_in_a_query_stays_visible(backend: str, mask: Any) -> None:
    tensors = leaves()
    tensors["query"][0, 1, 3] = NAN
    output = serve(backend, **tensors, mask=mask)
    if output is None:
        return
    assert output[0, 1, 3].isnan().all()
    rest = torch.ones_like(output, dtype=torch.bool)
    rest[0, 1, 3] = False
    assert output[rest].isfinite().all()


@each_backend
def test_a44_nan_in_a_query_with_a_float_bias_stays_visible(backend: str) -> None:
    tensors = leaves()
    tensors["query"][0, 1, 3] = NAN
    output = serve(backend, **tensors, bias=torch.randn(6, 6))
    if output is not None:
        assert output[0, 1, 3].isnan().all()
        assert output.isnan().sum() == 8


@pytest.mark.parametrize("name", ["key", "value"])
@each_backend
def test_a44_nan_in_a_key_everybody_sees_stays_visible(backend: str, name: str) -> None:
    tensors = leaves()
    tensors[name][1, 0, 2] = NAN
    output = serve(backend, **tensors)
    if output is not None:
        assert output[1, 0].isnan().all()
        assert output[0].isfinite().all()
        assert output[1, 1].isfinite().all()


@each_way_here
def test_a44_nan_in_an_empty_query_does_not_matter(backend: str) -> None:
    """The zero-row rule depends on the mask, never on the values: a query that sees nothing gives zero even if NaN."""
    allowed = torch.ones(6, 6, dtype=torch.bool)
    allowed[2] = False
    tensors = leaves()
    clean = run(backend, tensors, mask=allowed)
    tensors["query"][:, :, 2] = NAN
    dirty = run(backend, tensors, mask=allowed)
    if clean is None or dirty is None:
        return
    assert torch.count_nonzero(dirty[0][:, :, 2]) == 0
    for one, two in zip(dirty, clean, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


@each_backend
def test_a46_plus_infinity_in_a_bias_makes_its_row_nan(backend: str) -> None:
    tensors = leaves()
    bias = torch.zeros(2, 2, 6, 6)
    bias[0, 1, 3, 2] = INF
    output = serve(backend, **tensors, bias=bias)
    if output is not None:
        assert output[0, 1, 3].isnan().all()
        assert output.isnan().sum() == 8


@pytest.mark.parametrize("special", [INF, NAN])
@each_way_here
def test_a_bias_behind_the_mask_does_not_matter(backend: str, special: float) -> None:
    tensors = leaves()
    bias = torch.randn(1, 1, 6, 6)
    above = torch.ones(6, 6).triu(1).bool()
    clean = run(backend, tensors, bias=bias, mask=Causal())
    dirty = run(backend, tensors, bias=bias.masked_fill(above, special), mask=Causal())
    for one, two in zip(dirty or (), clean or (), strict=False):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


@each_backend
def test_gradient_of_a_bias_is_zero_behind_the_mask(backend: str) -> None:
    bias = torch.randn(1, 1, 6, 6)
    bias[..., 0, 3] = NAN
    bias[..., 4, 1] = -INF
    bias.requires_grad_()
    output = serve(backend, **leaves(), bias=bias, mask=Causal())
    if output is None:
        return
    output.square().sum().backward()
    assert bias.grad is not None
    hidden = torch.ones(6, 6).triu(1).bool()
    hidden[4, 1] = True
    assert torch.count_nonzero(bias.grad[0, 0][hidden]) == 0
    assert bias.grad.isfinite().all()


def test_weights_ignore_nan_behind_the_mask_and_show_it_in_front() -> None:
    tensors = leaves()
    tensors["key"][:, :, 5] = NAN
    found = weights(tensors["query"], tensors["key"], mask=Causal())
    assert found[:, :, :5].isfinite().all()
    assert torch.count_nonzero(found[:, :, :5, 5]) == 0
    assert found[:, :, 5].isnan().all()


@pytest.mark.parametrize("mask", [Prefix(0), SlidingWindow(6) & ~SlidingWindow(6), Blocked(torch.ones(6, 6).bool())])
@each_way_here
def test_when_nobody_sees_anything_everything_is_zero(backend: str, mask: Any) -> None:
    tensors = {name: torch.full_like(tensor, NAN) for name, tensor in leaves().items()}
    found = run(backend, tensors, mask=mask)
    for result in found or ():
        assert torch.count_nonzero(result) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_backend
def test_h1_in_half_types(backend: str, dtype: torch.dtype) -> None:
    tensors = leaves(dtype)
    mask = Causal() & Padding(KEEP)
    clean = run(backend, tensors, mask=mask)
    dirty = run(backend, tensors | {n: poisoned(tensors[n], HIDDEN, NAN) for n in ("key", "value")}, mask=mask)
    for one, two in zip(dirty or (), clean or (), strict=False):
        # A row done again without what it may not see can be rounded another way.
        torch.testing.assert_close(one, two, rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@each_backend
def test_inputs_are_not_changed(backend: str) -> None:
    skip_unavailable(backend)
    tensors = leaves()
    tensors["key"] = poisoned(tensors["key"], HIDDEN, NAN)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    or_refused(backend, lambda: attend(**tensors, mask=Padding(KEEP), backend=backend))
    for name, tensor in tensors.items():
        assert torch.equal(tensor.nan_to_num(7.0), before[name].nan_to_num(7.0))


@pytest.mark.parametrize("poison", [NAN, INF])
@pytest.mark.parametrize("mask", [*MASKS.values(), Causal()], ids=[*MASKS, "causal"])
@pytest.mark.parametrize("way", ["reference", "tiled in small blocks"])
def test_h1_probes_do_not_see_behind_the_mask(way: str, mask: Any, poison: float) -> None:
    """Rows that may not see the broken keys have the values they would have without them."""
    tensors = leaves()
    hidden = torch.tensor([[False] * 5 + [True]] * 2) if isinstance(mask, Causal) else HIDDEN
    dirty = tensors | {name: poisoned(tensors[name], hidden, poison) for name in ("key", "value")}
    probes = [Entropy(), LogSumExp(), TopK(2), FirstKeys(2)]
    with play(way) as backend:
        _, clean = observe(**tensors, probes=probes, mask=mask, backend=backend)
        _, found = observe(**dirty, probes=probes, mask=mask, backend=backend)
    rows = slice(0, 5) if isinstance(mask, Causal) else slice(None)
    for name in ("entropy", "log_sum_exp", "first_keys"):
        torch.testing.assert_close(getattr(found, name)[:, :, rows], getattr(clean, name)[:, :, rows])
    assert torch.equal(found.top_k.indices[:, :, rows], clean.top_k.indices[:, :, rows])
