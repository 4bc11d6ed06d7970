"""Heads, projections and positions of the modules, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regard.nn import ALiBi, MultiHeadAttention, Rotary, ScaledDotProductAttention
from regard.ops import Causal, attend
from tests.cases.test_group_a import close


def module(**options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(8, 2, **options)


def is_projection_of(layer: MultiHeadAttention, identity: bool = True) -> None:
    """Make every projection the identity without bias."""
    with torch.no_grad():
        for linear in (layer.query, layer.key, layer.value, layer.output):
            linear.weight.copy_(torch.eye(*linear.weight.shape))
            if linear.bias is not None:
                linear.bias.zero_()


def test_i6_alibi_weights_of_three_causal_keys() -> None:
    positions = torch.arange(3)
    bias = ALiBi(8)(positions, positions)
    zeros = torch.zeros(1, 8, 3, 4)
    weighted = attend(zeros, zeros, torch.eye(3).expand(1, 8, 3, 3), mask=Causal(), bias=bias)
    close(weighted[0, 0, 2], [0.1863, 0.3072, 0.5065], 1e-4)


def test_i5_rotary_of_two_coordinates() -> None:
    turned = Rotary(2)(torch.tensor([1.0, 0.0]).view(1, 1, 1, 2), torch.tensor([1]))
    close(turned.flatten(), [math.cos(1), math.sin(1)])


def test_f1_the_scale_is_that_of_a_head() -> None:
    layer = MultiHeadAttention(16, 4)
    is_projection_of(layer)
    query, key = torch.zeros(1, 1, 16), torch.zeros(1, 2, 16)
    query[..., 0], key[0, 0, 0] = 2, 2
    _, found = layer(query, key, need_weights=True)
    close(found[0, 0, 0, 0], torch.sigmoid(torch.tensor(2.0)), 1e-5)


def test_f2_heads_are_split_along_features() -> None:
    layer = MultiHeadAttention(4, 2)
    is_projection_of(layer)
    with torch.no_grad():
        layer.query.weight.zero_()
    close(layer(torch.tensor([[[1.0, 2, 3, 4], [5, 6, 7, 8]]])), [3.0, 4, 5, 6])


def test_f3_f4_every_head_has_its_own_projection_and_they_are_joined() -> None:
    layer = MultiHeadAttention(16, 4)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (16 * 16 + 16)
    assert layer.output.weight.shape == (16, 16)


def test_f5_f8_widths_and_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(ValueError, match=r"(?s)3.*10"):
        MultiHeadAttention(10, 3)
    with pytest.raises(ValueError, match=r"(?s)4.*6"):
        MultiHeadAttention(12, 6, num_kv_heads=4)
    assert MultiHeadAttention(12, 6, num_kv_heads=1)(torch.randn(1, 3, 12)).shape == (1, 3, 12)


def test_f6_keys_of_another_width() -> None:
    layer = MultiHeadAttention(8, 2, kv_dim=5)
    assert layer(torch.randn(2, 3, 8), torch.randn(2, 4, 5)).shape == (2, 3, 8)


def test_f6_heads_of_any_width() -> None:
    layer = MultiHeadAttention(8, 3, head_dim=5, value_dim=2, kv_dim=(4, 6))
    output, found = layer(torch.randn(2, 3, 8), torch.randn(2, 7, 4), torch.randn(2, 7, 6), need_weights=True)
    assert (output.shape, found.shape) == ((2, 3, 8), (2, 3, 3, 7))
    assert (layer.query.out_features, layer.value.out_features, layer.output.in_features) == (15, 6, 6)


def test_f10_two_layers_start_differently() -> None:
    one, two = MultiHeadAttention(8, 2), MultiHeadAttention(8, 2)
    assert not torch.equal(one.query.weight, two.query.weight)


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
@pytest.mark.parametrize("shape", [(3, 3), (2, 1, 3, 3), (2, 3, 3)])
def test_textbook_masks_of_zeros_and_ones(kind: torch.dtype, shape: tuple[int, ...]) -> None:
    """Teaching code writes masks as 0/1 of any dtype and asks for (output, weights)."""
    layer = ScaledDotProductAttention(4)
    query, key, value = (torch.randn(2, 2, 3, 4) for _ in range(3))
    mask = torch.ones(3, 3).tril().to(kind).expand(shape)
    output, found = layer(query, key, value, mask)
    logits = (query @ key.mT / 2).masked_fill(torch.ones(3, 3).triu(1).bool(), float("-inf"))
    close(found, torch.softmax(logits, -1))
    close(output, found @ value)
