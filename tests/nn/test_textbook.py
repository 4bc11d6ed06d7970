"""Attention as teaching code writes it: both layouts, written out here as their authors wrote them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import DTypeError, ShapeError
from regard.nn import MultiHeadAttention, SelfAttention, ValuesKeysQueryAttention, from_textbook


class SharedHeads(nn.Module):
    """One head_dim × head_dim projection for all heads, scores scaled by the root of the whole width."""

    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.embed_size, self.head_dim = heads, embed_size, embed_size // heads
        self.values = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.keys = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.fc_out = nn.Linear(heads * self.head_dim, embed_size)

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        batch, q_len, kv_len = query.shape[0], query.shape[1], keys.shape[1]
        values = self.values(values.reshape(batch, kv_len, self.heads, self.head_dim))
        keys = self.keys(keys.reshape(batch, kv_len, self.heads, self.head_dim))
        queries = self.queries(query.reshape(batch, q_len, self.heads, self.head_dim))
        energy = torch.einsum("nqhd,nkhd->nhqk", [queries, keys])
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-1e20"))
        attention = torch.softmax(energy / (self.embed_size ** (1 / 2)), dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", [attention, values]).reshape(batch, q_len, self.heads * self.head_dim)
        return self.fc_out(out), attention


class FourProjections(nn.Module):
    """W_Q, W_K, W_V and W_O with biases, and a mask of zeros and ones for each sentence."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_Q, self.W_K = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.W_V, self.W_O = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        batch = query.shape[0]

        def heads(x: Tensor) -> Tensor:
            return x.view(batch, -1, self.num_heads, self.d_k).transpose(1, 2)

        q, k, v = heads(self.W_Q(query)), heads(self.W_K(key)), heads(self.W_V(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        weights = torch.softmax(scores, dim=-1)
        return self.W_O((weights @ v).transpose(1, 2).contiguous().view(batch, -1, self.num_heads * self.d_k)), weights


VALUES, KEYS, QUERY = torch.randn(2, 6, 32), torch.randn(2, 6, 32), torch.randn(2, 4, 32)
MASK = (torch.arange(6)[None] < torch.tensor([[6], [4]])).int()


@pytest.mark.parametrize("mask", [None, MASK[:, None, None], MASK[:, None, None].float()])
def test_shared_heads(mask: Tensor | None) -> None:
    theirs = SharedHeads(32, 4)
    ours = from_textbook(theirs.state_dict())
    assert isinstance(ours, ValuesKeysQueryAttention)
    wanted, weights = theirs(VALUES, KEYS, QUERY, mask)
    found, ours_weights = ours(VALUES, KEYS, QUERY, mask, need_weights=True)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours_weights, weights, atol=1e-5, rtol=0)
    assert torch.equal(ours(VALUES, KEYS, QUERY, mask), found)


@pytest.mark.parametrize("mask", [None, MASK[:, None].expand(2, 4, 6), MASK[:, None].expand(2, 4, 6).long()])
def test_four_projections(mask: Tensor | None) -> None:
    theirs = FourProjections(32, 4)
    ours = from_textbook(theirs.state_dict(), num_heads=4)
    assert isinstance(ours, MultiHeadAttention)
    wanted, weights = theirs(QUERY, KEYS, VALUES, mask)
    found, ours_weights = ours(QUERY, KEYS, VALUES, mask, need_weights=True)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours_weights, weights, atol=1e-5, rtol=0)


def test_an_empty_row_is_zeros_and_that_is_the_one_difference() -> None:
    theirs = FourProjections(32, 4)
    mask = torch.ones(2, 4, 6)
    mask[1, 2] = 0
    found, weights = from_textbook(theirs.state_dict(), num_heads=4)(QUERY, KEYS, VALUES, mask, need_weights=True)
    wanted, their_weights = theirs(QUERY, KEYS, VALUES, mask)
    assert torch.equal(weights[1, :, 2], torch.zeros(4, 6))
    torch.testing.assert_close(found[1, 2], theirs.W_O.bias)
    torch.testing.assert_close(their_weights[1, :, 2], torch.full((4, 6), 1 / 6))
    others = torch.arange(8).reshape(2, 4) != 6
    torch.testing.assert_close(found[others], wanted[others], atol=1e-5, rtol=0)


def test_full_width_projections_with_the_old_scale() -> None:
    state = SelfAttention(32, 4).state_dict()
    names = {"query": "queries", "key": "keys", "value": "values", "output": "fc_out"}
    theirs = {f"model.{names[name.split('.')[0]]}.{name.split('.')[1]}": tensor for name, tensor in state.items()}
    ours = from_textbook(theirs, num_heads=4, prefix="model.")
    assert ours.scale == pytest.approx(32**-0.5)
    assert ours(VALUES, KEYS, QUERY).shape == (2, 4, 32)


def test_small_letters_of_other_books() -> None:
    theirs = FourProjections(16, 2)
    state = {name.replace("W_Q", "w_q").replace("W_K", "w_k"): tensor for name, tensor in theirs.state_dict().items()}
    x = torch.randn(1, 3, 16)
    torch.testing.assert_close(from_textbook(state, num_heads=2)(x), theirs(x, x, x, None)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("scale", "factor"), [("head", 8**-0.5), ("embed", 32**-0.5), (0.25, 0.25)])
@pytest.mark.parametrize("shared", [True, False])
def test_self_attention_is_its_formula(scale: Any, factor: float, shared: bool) -> None:
    module = SelfAttention(32, 4, shared_heads=shared, scale=scale).double()
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    parts = []
    for linear in (module.query, module.key, module.value):
        heads = x.view(2, 5, 4, 8) @ linear.weight.T if shared else (x @ linear.weight.T).view(2, 5, 4, 8)
        parts.append(heads.transpose(1, 2))
    q, k, v = parts
    weights = (q @ k.transpose(2, 3) * factor).softmax(dim=-1)
    wanted = (weights @ v).transpose(1, 2).flatten(2) @ module.output.weight.T + module.output.bias
    found, ours = module(x, need_weights=True)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours, weights)


def separate(**parts: Any) -> Any:
    """A checkpoint of the second layout with other parts than its own."""
    return {**FourProjections(8, 2).state_dict(), **parts}


def shared_of(width: int) -> dict[str, Tensor]:
    """A checkpoint of the first layout, of embed_size 8, whose projections are of this width."""
    parts = {f"{name}.weight": torch.zeros(width, width) for name in ("values", "keys", "queries")}
    return {**parts, "fc_out.weight": torch.zeros(8, 8)}


EYE = torch.eye(8)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("state_dict", "text"),
    [
        (FourProjections(8, 2), r"(?s)`state_dict` must be a mapping .* a FourProjections.*module.state_dict\(\) is"),
        (None, "`state_dict` must be a mapping of names to tensors, but is a NoneType"),
        (separate(**{"W_Q.weight": None}), "`W_Q.weight` must be a tensor of floating dtype, but is a NoneType"),
        (separate(**{"W_Q.weight": EYE.numpy()}), "`W_Q.weight` must be a tensor of .* but is a ndarray"),
        (separate(**{"W_K.weight": EYE.long()}), "`W_K.weight` must be .* of floating dtype, but is torch.int64"),
        (separate(**{"W_K.weight": EYE[0]}), r"`W_K.weight` must be of 2 dimension\(s\), but is of shape \(8,\)"),
        (separate(**{"W_V.bias": EYE[0, :1]}), r"`W_V.bias` must be of shape \(8,\), but is of shape \(1,\)"),
        (separate(**{"W_O.bias": EYE[0, :4]}), r"`W_O.bias` must be of shape \(8,\), but is of shape \(4,\)"),
        (
            separate(**{"W_O.weight": EYE.double()}),
            r"`W_O.weight` must be of the dtype of W_V.weight \(torch.float32\), but is of torch.float64",
        ),
        (shared_of(16), r"`queries.weight` must be of a width that divides embed_size \(8, .*fc_out.*\), .*\(16, 16\)"),
        (shared_of(3), r"`queries.weight` must be of a width that divides embed_size"),
        (shared_of(0), r"`queries.weight` must be of a width that divides embed_size"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named_in_its_own_words(state_dict: Any, text: str) -> None:
    with pytest.raises((DTypeError, ShapeError), match=text):
        from_textbook(state_dict, num_heads=2)


@pytest.mark.usefixtures("unchecked")
def test_a_prefix_is_a_string() -> None:
    with pytest.raises(DTypeError, match="`prefix` must be a string, but is a NoneType"):
        from_textbook(separate(), num_heads=2, prefix=None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: SelfAttention(10, 3), r"`embed_size` must be a multiple of heads \(3\), but is 10"),
        (lambda: SelfAttention(8, 2, scale="root"), '`scale` must be "head", "embed", a number or None'),  # type: ignore[arg-type]
        (lambda: SelfAttention(8, 2)(torch.randn(1, 3, 7)), r"`query` must be of shape \[batch, length, 8\]"),
        (
            lambda: from_textbook({"a.weight": torch.zeros(2, 2)}),
            "values, keys, queries, fc_out or W_V.*but is of a.weight",
        ),
        (lambda: from_textbook({}), "but is of nothing"),
        (lambda: from_textbook(FourProjections(8, 2).state_dict()), "`num_heads` must be given"),
        (lambda: from_textbook(SharedHeads(8, 2).state_dict(), num_heads=4), "must be 2 for these shapes"),
        (
            lambda: from_textbook({**FourProjections(8, 2).state_dict(), "W_K.weight": torch.zeros(4, 8)}, num_heads=2),
            r"`W_K.weight` must be of shape \(8, 8\), but is of shape \(4, 8\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
