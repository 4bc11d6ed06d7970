"""Masks say what is allowed: each value, their algebra, their precedence, their standing with pytree (DESIGN §2.2)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.errors import DTypeError
from regard.ops import (
    Allowed,
    Blocked,
    Causal,
    Documents,
    Mask,
    Padding,
    Prefix,
    SlidingWindow,
    Where,
    attend,
    weights,
)
from regard.ops._validate import make_call
from regard.records.mask_program import MaskProgram
from tests.ops.backends import COMPLETE, each_backend, serve

KEEP = torch.tensor([[True, True, True, False, True]])


def seen(mask: Any, *, q_len: int = 5, kv_len: int = 5, batch: int = 1, heads: int = 1, **options: Any) -> list[Any]:
    """Which keys each query sees, as text rows of `x` and `.`; read from the weights."""
    found = weights(torch.zeros(batch, heads, q_len, 2), torch.zeros(batch, heads, kv_len, 2), mask=mask, **options)
    rows = [["".join("x" if w else "." for w in row) for row in head] for item in found.tolist() for head in item]
    return rows[0] if len(rows) == 1 else rows


def test_causal_is_key_position_up_to_query_position() -> None:
    assert seen(Causal(), q_len=3, kv_len=3) == ["x..", "xx.", "xxx"]
    assert seen(Causal(), q_len=2, kv_len=4) == ["xxx.", "xxxx"]
    assert seen(Causal(), q_len=2, kv_len=4, q_start="start") == ["x...", "xx.."]
    assert seen(Causal(), q_len=4, kv_len=2) == ["..", "..", "x.", "xx"]


def test_a20_a_window_counts_the_token_itself() -> None:
    band = ["xx...", "xxx..", ".xxx.", "..xxx", "...xx"]
    assert seen(SlidingWindow(2)) == band
    assert seen(Causal() & SlidingWindow(2)) == ["x....", "xx...", ".xx..", "..xx.", "...xx"]
    assert seen(Causal() & SlidingWindow(1)) == ["x....", ".x...", "..x..", "...x.", "....x"]


def test_padding_keeps_what_is_true() -> None:
    assert seen(Padding(KEEP), q_len=1) == ["xxx.x"]


def test_documents_see_themselves_and_negative_ids_see_nothing() -> None:
    ids = torch.tensor([[0, 0, 7, -1, 7]])
    assert seen(Documents(ids)) == ["xx...", "xx...", "..x.x", ".....", "..x.x"]
    assert seen(Documents(ids, torch.tensor([[7, -1]])), q_len=2) == ["..x.x", "....."]
    both_negative = torch.full((1, 3), -1)
    assert seen(Documents(both_negative), q_len=3, kv_len=3) == ["...", "...", "..."]
    assert seen(Documents(torch.tensor([[-1, -2, 3]])), q_len=3, kv_len=3) == ["...", "...", "..x"]


def test_documents_of_a_cached_call_are_those_of_the_last_keys() -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1]])
    assert seen(Documents(ids), q_len=2) == ["..xxx", "..xxx"]
    assert seen(Documents(ids) & Causal(), q_len=3) == ["..x..", "..xx.", "..xxx"]


def test_a_prefix_is_seen_by_all() -> None:
    assert seen(Prefix(2), q_len=2) == ["xx...", "xx..."]
    assert seen(Causal() | Prefix(2), q_len=5)[0] == "xx..."
    both = seen(Prefix(torch.tensor([1, 3])), batch=2, q_len=1)
    assert both == [["x...."], ["xxx.."]]


def test_allowed_and_blocked_are_opposites() -> None:
    cells = torch.rand(1, 1, 5, 5) < 0.5
    assert seen(Allowed(cells)) == seen(Blocked(~cells)) == seen(~Blocked(cells)) == seen(cells)


def test_allowed_takes_the_shapes_that_a_tensor_takes() -> None:
    cells = torch.rand(3, 5) < 0.5
    assert seen(Allowed(cells), q_len=3) == seen(cells[None, None], q_len=3)
    per_item = torch.rand(2, 3, 5) < 0.5
    assert seen(Allowed(per_item), q_len=3, batch=2, heads=3) == seen(per_item[:, None], q_len=3, batch=2, heads=3)


def test_where_gets_absolute_positions() -> None:
    calls: list[tuple[Tensor, ...]] = []

    def rule(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        calls.append((b, h, i, j))
        return i - j == h

    rows = seen(Where(rule), q_len=2, kv_len=4, heads=2, kv_start=10, q_start=12)
    assert rows == [["..x.", "...x"], [".x..", "..x."]]
    b, h, i, j = calls[0]
    assert all(t.dtype == torch.int64 for t in (b, h, i, j))
    assert (i.min(), i.max(), j.min(), j.max()) == (12, 13, 10, 13)
    torch.broadcast_shapes(b.shape, h.shape, i.shape, j.shape)


def test_and_or_not() -> None:
    assert seen(Causal() & Padding(KEEP))[4] == "xxx.x"
    assert seen(SlidingWindow(1) | Prefix(1))[3] == "x..x."
    assert seen(~Causal())[2] == "...xx"
    assert seen(~~Causal()) == seen(Causal())
    assert seen(~(Causal() & Prefix(2))) == seen(~Causal() | ~Prefix(2))


def test_and_binds_tighter_than_or() -> None:
    """Python's rule, easily forgotten: brackets are needed to pad a prefix mask."""
    keep = torch.tensor([[False, True, True, True, True]])
    bracketed = seen((Causal() | Prefix(3)) & Padding(keep))
    assert bracketed == [".xx..", ".xx..", ".xx..", ".xxx.", ".xxxx"]
    bare = seen(Causal() | Prefix(3) & Padding(keep))
    assert bare == seen(Causal() | (Prefix(3) & Padding(keep))) == ["xxx..", "xxx..", "xxx..", "xxxx.", "xxxxx"]
    assert bare != bracketed


def test_the_precedence_is_documented() -> None:
    assert "tighter" in (Mask.__doc__ or "")


@pytest.mark.parametrize(
    "mask",
    [
        Causal(),
        SlidingWindow(3),
        Padding(KEEP),
        Documents(torch.zeros(1, 5).long()),
        Prefix(2),
        Allowed(KEEP),
        Blocked(KEEP),
        Causal() & Padding(KEEP),
        Causal() | Prefix(1),
        ~Causal(),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_masks_are_frozen_values_known_to_pytree(mask: Any) -> None:
    assert isinstance(mask, Mask)
    assert dataclasses.is_dataclass(mask)
    for field in dataclasses.fields(mask):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(mask, field.name, None)
    leaves, spec = pytree.tree_flatten(mask)
    tensors = [value for field in dataclasses.fields(mask) if isinstance(value := getattr(mask, field.name), Tensor)]
    assert all(any(leaf is tensor for leaf in leaves) for tensor in tensors)
    again = pytree.tree_unflatten(leaves, spec)
    assert type(again) is type(mask)
    assert seen(again) == seen(mask)


def test_tree_map_moves_the_tensors_of_a_mask() -> None:
    mask = Causal() & Padding(torch.ones(1, 5, dtype=torch.bool))
    flipped = pytree.tree_map(torch.logical_not, mask)
    assert torch.count_nonzero(weights(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), mask=flipped)) == 0


def test_a_mask_is_not_remembered_past_a_change() -> None:
    """Layers share what is derived from a mask; writing into its tensor, or another place, must be noticed."""
    keep = torch.ones(1, 5, dtype=torch.bool)
    mask = Causal() & Padding(keep)
    assert seen(mask)[4] == "xxxxx"
    keep[0, 1] = False
    assert seen(mask)[4] == "x.xxx"
    assert seen(mask, q_len=2) == ["x.xx.", "x.xxx"]
    assert seen(mask, q_len=2, q_start=1) == ["x....", "x.x.."]
    assert seen(mask, q_len=2, q_start="start") == ["x....", "x...."]
    tensors = torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2), torch.eye(5)[None, None]
    for backend in COMPLETE:
        before = attend(*tensors, mask=mask, backend=backend)
        keep[0, 0] = ~keep[0, 0]
        assert not torch.equal(before, attend(*tensors, mask=mask, backend=backend))


def test_masks_print_what_they_say() -> None:
    assert "Causal" in repr(Causal())
    assert "SlidingWindow" in repr(SlidingWindow(3))
    assert "3" in repr(SlidingWindow(3))


@each_backend
def test_a7_a_3d_mask_is_per_batch_row_for_all_heads(backend: str) -> None:
    allowed = torch.ones(2, 3, 5, dtype=torch.bool)
    allowed[1, :, 3:] = False
    query, key = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4)
    output = serve(backend, query, key, torch.eye(5).expand(2, 2, 5, 5), mask=allowed)
    if output is None:
        return
    assert torch.count_nonzero(output[1, :, :, 3:]) == 0
    assert torch.count_nonzero(output[0]) == output[0].numel()


@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 1, 5), (2, 2, 3, 5), (1, 1, 3, 5), (1, 2, 1, 5), (2, 3, 5)])
@each_backend
def test_a9_masks_broadcast(backend: str, shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape) < 0.6
    tensors = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    output = serve(backend, *tensors, mask=mask)
    if output is None:
        return
    whole = (mask[:, None] if mask.dim() == 3 else mask).expand(2, 2, 3, 5)
    exact = attend(*tensors, mask=whole, backend="reference")
    torch.testing.assert_close(output, exact)


def test_a9_a_1d_mask_is_per_key_or_refused() -> None:
    from regard.errors import ShapeError

    tensors = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    mask = torch.tensor([True, False, True, True, False])
    try:
        output = attend(*tensors, mask=mask)
    except ShapeError as refusal:
        text = str(refusal)
    else:
        torch.testing.assert_close(output, attend(*tensors, mask=mask.expand(2, 2, 3, 5)))
        return
    assert "(5,)" in text


@pytest.mark.parametrize(
    "mask",
    [
        Causal(),
        SlidingWindow(2),
        Padding(KEEP),
        Documents(torch.tensor([[0, 0, 1, 1, -1]])),
        Prefix(2),
        Allowed(torch.rand(5, 5) < 0.5),
        Blocked(torch.rand(1, 2, 5, 5) < 0.5),
        (Causal() | Prefix(2)) & ~Padding(KEEP),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_a_lowered_mask_means_the_same_to_numpy(mask: Any) -> None:
    """What a recording stores is what the kernel used."""
    import numpy as np

    lowered = make_call(
        "test", *(torch.zeros(1, 2, 5, 4),) * 3, mask=mask, bias=None, scale=None, logit_softcap=None, sinks=None
    ).mask
    assert lowered is not None
    program = MaskProgram(lowered.code, tuple(tensor.numpy() for tensor in lowered.tensors))
    positions = np.arange(5)
    found = np.broadcast_to(program.allowed(positions[None], positions), (1, 2, 5, 5))
    expected = weights(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), mask=mask) > 0
    assert (found == expected.numpy()).all()


def test_a_predicate_of_other_arguments_is_refused_where_it_is_given() -> None:
    with pytest.raises(
        DTypeError, match=r"Where.*`fn` must be .*four arguments \(b, h, i, j\), but is one of \(i, j\)"
    ):
        Where(lambda i, j: i >= j)
    Where(lambda *places: places[2] >= places[3])
    Where(torch.add)  # written in C: it has no signature to look at
