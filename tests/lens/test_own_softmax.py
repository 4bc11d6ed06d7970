"""Modules that compute their own softmax: its logits are read on the way."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.lens import watch
from regard.ops.probes import Entropy, KeyMass, Rows, TopK


class TextbookAttention(nn.Module):
    """What a tutorial writes."""

    def __init__(self, how="functional", masked=-1e9, heads=2):
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(8, 24)
        self.how, self.masked, self.weights = how, masked, None
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, keep=None):
        q, k, v = (part.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), self.masked)
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, None], self.masked)
        if self.how == "three dimensions":
            self.weights = functional.softmax(scores.flatten(0, 1), dim=-1).view_as(scores)
        else:
            self.weights = {
                "functional": lambda: functional.softmax(scores, -1),
                "method": lambda: scores.softmax(dim=3),
                "torch": lambda: torch.softmax(input=scores, dim=-1),
                "module": lambda: self.softmax(scores),
            }[self.how]()
        return (self.weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("masked", [-1e9, -1e4, float("-inf"), torch.finfo(torch.float32).min])
@pytest.mark.parametrize("how", ["functional", "method", "torch", "module", "three dimensions"])
def test_weights_are_those_of_the_module(how, masked):
    model, x = nn.Sequential(TextbookAttention(how, masked)), torch.randn(2, 5, 8)
    expected = model(x)
    with watch(model, [Rows(), Entropy(), KeyMass(), TopK(2)]) as seen:
        assert torch.equal(model(x), expected)
    layer = seen["0"]
    weights = model[0].weights
    torch.testing.assert_close(layer.rows, weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(layer.entropy, torch.special.entr(weights).sum(-1), atol=1e-5, rtol=0)
    torch.testing.assert_close(layer.key_mass, weights.sum(2), atol=1e-5, rtol=0)
    assert [(entry.status, entry.reason) for entry in seen.coverage] == [("seen", "from its own softmax")]


def test_a_row_that_sees_nothing_is_empty_and_not_uniform():
    model, x = TextbookAttention(), torch.randn(1, 4, 8)
    keep = torch.tensor([[False, True, True, True]])
    with watch(model, [Rows()]) as seen:
        model(x, keep)
    assert (seen[""].rows[0, :, 0] == 0).all()
    torch.testing.assert_close(seen[""].rows[0, :, 1:], model.weights[0, :, 1:], atol=1e-6, rtol=0)


def test_beyond_the_limit_it_is_not_seen_and_said_so():
    model = TextbookAttention()
    with watch(model, [Entropy()], eager_limit=4) as seen:
        model(torch.randn(1, 5, 8))
    assert not seen.layers
    assert seen.coverage[0].status == "not seen"
    assert seen.coverage[0].reason == "its own softmax over 5 keys is beyond eager_limit=4"


def test_a_softmax_of_another_layout_is_refused():
    class WindowAttention(nn.Module):
        num_heads = 4

        def forward(self, x):
            return torch.softmax(x.view(1, 6, 4, 3), -1)

    model = WindowAttention()
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(72))
    assert seen.coverage[0].reason == "its own softmax has the shape [1, 6, 4, 3], not [batch, heads, queries, keys]"


def test_several_softmaxes_per_call_are_refused():
    class LandmarkAttention(nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1) @ torch.softmax(x.transpose(-1, -2), -1)

    model = LandmarkAttention()
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 2, 4, 3))
    assert "computes 2 softmaxes per call" in seen.coverage[0].reason


def test_called_but_without_a_known_form():
    class FourierAttention(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).real

    model = FourierAttention()
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 4, 8))
    assert seen.coverage[0].reason.startswith("called, but no attention function or softmax")


def test_a_softmax_outside_attention_is_not_attention():
    class Router(nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1)

    model = nn.Sequential(Router(), TextbookAttention())
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(2, 5, 8))
    assert [layer.name for layer in seen.layers] == ["1"]
