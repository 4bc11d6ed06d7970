"""Additive and dot-product attention of recurrent decoders, against their formulas in float64."""

from __future__ import annotations

import pytest
import torch

from regard.errors import ConfigError, DTypeError, ShapeError
from regard.nn import AdditiveAttention, DotAttention
from regard.ops import Allowed, Causal, Padding
from tests.cases.test_group_a import close

KEEP = torch.tensor([[True, True, False, False], [True] * 4, [False] * 4])


def additive() -> AdditiveAttention:
    torch.manual_seed(0)
    return AdditiveAttention(3, 5, 6).double()


def both() -> list[AdditiveAttention | DotAttention]:
    return [additive(), DotAttention(3, 5, score="general").double()]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = ((3, 2, 3), (3, 4, 5))
    query, key = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in sizes)
    return query, key


def test_f9_one_dimension_by_hand() -> None:
    layer = AdditiveAttention(1, 1, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
    output, weights = layer(torch.zeros(1, 1, 1), torch.tensor([[[0.0], [1.0]]]))
    close(weights, [0.3183, 0.6817], 1e-4)
    close(output, 0.6817, 1e-4)


def test_additive_formula() -> None:
    layer, (query, key) = additive(), inputs()
    value = torch.randn(3, 4, 7, dtype=torch.float64)
    output, weights = layer(query, key, value)
    v, w, u = layer.score.weight[0], layer.query.weight, layer.key.weight
    for b in range(3):
        for i in range(2):
            scores = torch.stack([v @ (w @ query[b, i] + u @ key[b, j]).tanh() for j in range(4)])
            close(weights[b, i], scores.softmax(0), 1e-12)
            close(output[b, i], scores.softmax(0) @ value[b], 1e-12)


@pytest.mark.parametrize("score", ["dot", "general"])
def test_dot_formula(score: str) -> None:
    layer = DotAttention(5, 5, score=score).double()
    query, key = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 4, 5, dtype=torch.float64)
    output, weights = layer(query, key)
    matrix = layer.key.weight if score == "general" else torch.eye(5, dtype=torch.float64)
    expected = (query @ (key @ matrix.T).mT).softmax(-1)
    close(weights, expected, 1e-12)
    close(output, expected @ key, 1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_masked_has_no_influence_and_an_empty_row_is_zero(which: int) -> None:
    layer, (query, key) = both()[which], inputs()
    short, weights_short = layer(query[:1], key[:1, :2])
    key = key.masked_fill(~KEEP[..., None], float("nan")).requires_grad_()
    query.requires_grad_()
    output, weights = layer(query, key, mask=Padding(KEEP))
    close(output[0], short[0], 1e-12)
    close(weights[0, :, :2], weights_short[0], 1e-12)
    assert not weights[0, :, 2:].any()
    assert not output[2].any()
    assert not weights[2].any()
    output.square().sum().backward()
    assert torch.isfinite(query.grad).all()
    assert torch.isfinite(key.grad).all()
    assert not query.grad[2].any()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())
    assert query.grad[0].any()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
def test_masks_as_tensors_and_as_values_are_the_same(which: int, kind: torch.dtype) -> None:
    layer, (query, key) = both()[which], inputs()
    allowed = torch.rand(3, 2, 4) > 0.4
    as_value, _ = layer(query, key, mask=Allowed(allowed[:, None]) & Padding(KEEP))
    as_tensor, _ = layer(query, key, mask=(allowed & KEEP[:, None]).to(kind))
    close(as_tensor, as_value, 1e-12)
    unlike, _ = layer(query, key)
    assert not torch.allclose(unlike, as_tensor)


def test_causal_sits_at_the_end_as_for_attend() -> None:
    layer, (query, key) = additive(), inputs()
    _, weights = layer(query, key, mask=Causal())
    assert not weights[:, 0, 3].any()
    assert (weights[:, 0, :3] > 0).all()
    assert (weights[:, 1] > 0).all()


@pytest.mark.parametrize("which", [0, 1])
def test_projected_keys_are_used_again(which: int) -> None:
    layer, (query, key) = both()[which], inputs()
    expected, _ = layer(query, key, mask=Padding(KEEP))
    projected = layer.project(key)
    with torch.no_grad():
        layer.key.weight.fill_(float("nan"))
    found, _ = layer(query, key, mask=Padding(KEEP), projected=projected)
    close(found, expected, 1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_weigh_is_what_forward_uses(which: int) -> None:
    layer, (query, key) = both()[which], inputs()
    _, expected = layer(query, key, mask=Padding(KEEP))
    close(layer.weigh(query, layer.project(key), KEEP[:, None]), expected, 1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_twice(which: int) -> None:
    layer, (query, key) = both()[which], inputs()
    query, key = query[:2, :, :].requires_grad_(), key[:2].requires_grad_()

    def run(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return layer(q, k, mask=Padding(KEEP[:2]))[0]

    assert torch.autograd.gradcheck(run, (query, key))
    assert torch.autograd.gradgradcheck(run, (query, key))


def test_scores_are_float32_under_autocast() -> None:
    layer = AdditiveAttention(3, 5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, weights = layer(torch.randn(1, 2, 3), torch.randn(1, 4, 5))
    assert weights.dtype == torch.float32
    close(weights.sum(-1), 1.0, 1e-6)
    assert output.shape == (1, 2, 5)


@pytest.mark.usefixtures("unchecked")
def test_wrong_widths_and_options_are_named() -> None:
    layer = AdditiveAttention(3, 5, 6)
    with pytest.raises(ShapeError, match=r"`query` must be of shape \[batch, length, 3\], but is of shape \(1, 2, 4\)"):
        layer(torch.zeros(1, 2, 4), torch.zeros(1, 2, 5))
    with pytest.raises(ShapeError, match=r"(?s)`key`.*hint: a single sequence is key\[None\]"):
        layer(torch.zeros(1, 2, 3), torch.zeros(2, 5))
    with pytest.raises(ShapeError, match=r"`key` must have the batch of `query` \(1\), but has 2"):
        layer(torch.zeros(1, 2, 3), torch.zeros(2, 2, 5))
    with pytest.raises(ShapeError, match=r"`value` must be of shape"):
        layer(torch.zeros(1, 2, 3), torch.zeros(1, 2, 5), torch.zeros(1, 3, 5))
    with pytest.raises(DTypeError, match=r"`mask` must be a mask or a tensor"):
        layer(torch.zeros(1, 2, 3), torch.zeros(1, 2, 5), mask=3)
    with pytest.raises(ShapeError, match=r"Padding\(keep\)"):
        layer(torch.zeros(2, 3, 3), torch.zeros(2, 2, 5), mask=torch.ones(2, 2).bool())
    with pytest.raises(ConfigError, match=r"`key_dim` must be at least 1, but is 0"):
        AdditiveAttention(1, 0, 1)
    with pytest.raises(ConfigError, match=r'`score` must be "dot" or "general"'):
        DotAttention(1, 1, score="cosine")
    with pytest.raises(ConfigError, match=r"`key_dim` must be query_dim \(2\)"):
        DotAttention(2, 3)
