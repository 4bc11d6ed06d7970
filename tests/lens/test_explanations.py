"""Explanations computed in linear memory equal their definitions on whole matrices."""

from __future__ import annotations

import networkx
import pytest
import torch
from torch import nn
from torch.nn import functional

import regard
from regard.errors import ConfigError, ShapeError
from regard.lens import flow, gradient_attention, reasons, relevance, rollout, value_norms, watch
from tests.lens.ways import WAYS, text


def seen_of(way, *, gradients=False, batch=2):
    model = WAYS[way].model()
    with torch.set_grad_enabled(gradients), watch(model, [regard.Rows()], keep=True) as seen:
        output = model(text(batch=batch))
    return model, seen, output


def mixed(weights, residual=0.5):
    """(1 − r) A + r I with the mean over heads, in rows that sum to one."""
    mean = weights.double().mean(1)
    whole = (1 - residual) * mean + residual * torch.eye(mean.shape[-1], dtype=torch.float64)
    return whole / whole.sum(-1, keepdim=True)


@pytest.mark.parametrize("residual", [0.5, 0.0, 0.2, 1.0])
@pytest.mark.parametrize("way", WAYS)
def test_rollout_is_the_product_of_all_layers(way, residual):
    _, seen, _ = seen_of(way)
    first, second = (mixed(layer.rows, residual) for layer in seen.layers)
    expected = second @ first
    torch.testing.assert_close(rollout(seen, range(6), residual=residual), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(rollout(seen, [-1, 2], residual=residual), expected[:, [-1, 2]], atol=1e-6, rtol=0)


class Given(nn.Module):
    """Attends with given weights."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.tensor(weights)[None, None]

    def forward(self, x):
        zero = torch.zeros(1, 1, self.weights.shape[-1], 1)
        return functional.scaled_dot_product_attention(zero, zero, x, attn_mask=self.weights.log())


def test_the_order_of_layers_the_residual_and_the_rows():
    """Case C13: the later layer stands on the left, half of each token stays, rows are divided by their sums."""
    model = nn.Sequential(Given([[0.6, 0.4], [0.2, 0.8]]), Given([[0.5, 0.5], [0.9, 0.1]]))
    with torch.no_grad(), watch(model, keep=True) as seen:
        model(torch.randn(1, 1, 2, 1))
    expected = torch.tensor([[[0.625, 0.375], [0.415, 0.585]]], dtype=torch.float64)
    torch.testing.assert_close(rollout(seen, [0, 1]), expected, atol=1e-6, rtol=0)
    unnormalised = torch.tensor([[1.9, 0.3], [0.1, 1.3]], dtype=torch.float64)
    rows = torch.tensor([[0.863636, 0.136364], [0.071429, 0.928571]], dtype=torch.float64)
    torch.testing.assert_close(unnormalised / unnormalised.sum(-1, keepdim=True), rows, atol=1e-6, rtol=0)


def test_a_sink_and_empty_rows_keep_rows_whole():
    class WithSink(nn.Module):
        def forward(self, x):
            keep = torch.tensor([[False, True, True, True]])
            return regard.attend(x, x, x, mask=regard.Causal() & regard.Padding(keep), sinks=torch.tensor([1.0, -1.0]))

    x = torch.randn(1, 2, 4, 8)
    with torch.no_grad(), watch(WithSink(), [regard.Rows()], keep=True) as seen:
        WithSink.forward(None, x)
    model = WithSink()
    with torch.no_grad(), watch(model, [regard.Rows()], keep=True) as seen:
        model(x)
    found = rollout(seen, range(4))
    torch.testing.assert_close(found, mixed(seen.layers[0].rows), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 4, dtype=torch.float64))
    assert found[0, 0].tolist() == [1, 0, 0, 0]


def brute_flow(matrices, source, sink):
    graph = networkx.DiGraph()
    for level, matrix in enumerate(matrices):
        for i, row in enumerate(matrix.tolist()):
            for j, capacity in enumerate(row):
                if capacity > 0:
                    graph.add_edge((level + 1, i), (level, j), capacity=capacity)
    if (0, sink) not in graph or (len(matrices), source) not in graph:
        return 0.0
    return networkx.maximum_flow_value(graph, (len(matrices), source), (0, sink))


@pytest.mark.parametrize("residual", [0.5, 0.1])
@pytest.mark.parametrize("way", WAYS)
def test_flow_is_the_maximum_flow(way, residual):
    _, seen, _ = seen_of(way)
    matrices = [mixed(layer.rows, residual) for layer in seen.layers]
    found = flow(seen, 5, residual=residual)
    for item in range(2):
        expected = [brute_flow([matrix[item] for matrix in matrices], 5, sink) for sink in range(6)]
        torch.testing.assert_close(found[item], torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(flow(seen, -1, [3], residual=residual), found[:, [3]])


def test_flow_goes_round_what_is_full():
    """Edges that do not fit together must be given back: a greedy way reaches less."""
    torch.manual_seed(3)
    sharp = [(12 * torch.randn(7, 7)).softmax(-1).clamp(min=1e-6) for _ in range(4)]
    sharp = [(matrix / matrix.sum(-1, keepdim=True)).tolist() for matrix in sharp]
    model = nn.Sequential(*(Given(matrix) for matrix in sharp))
    with torch.no_grad(), watch(model, [regard.Rows()], keep=True) as seen:
        model(torch.randn(1, 1, 7, 1))
    matrices = [mixed(layer.rows)[0] for layer in seen.layers]
    for source in range(7):
        expected = torch.tensor([brute_flow(matrices, source, sink) for sink in range(7)], dtype=torch.float64)
        torch.testing.assert_close(flow(seen, source)[0], expected, atol=1e-6, rtol=0)


def dense(model, x, target):
    """Weights of the two layers written out, the target of what they lead to, and its gradients by them."""
    kept = []
    for layer in model:
        q, k, v = (part.unflatten(2, (4, -1)).transpose(1, 2) for part in layer.qkv(x).chunk(3, -1))
        scores = (q @ k.mT / 2).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
        weights = scores.softmax(-1)
        kept.append(weights)
        x = x + layer.out((weights @ v).transpose(1, 2).flatten(2))
    gradients = torch.autograd.grad(target(x), kept)
    return [(weights * gradient).double().detach() for weights, gradient in zip(kept, gradients, strict=True)]


def last_entry(output):
    return output[0, -1, 3]


def test_gradient_times_attention_is_that_of_written_out_weights():
    model, seen, output = seen_of("sdpa", gradients=True)
    expected = dense(model, text(), last_entry)
    found = gradient_attention(seen, last_entry(output))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.rows(range(6)), theirs, atol=1e-6, rtol=0)
        torch.testing.assert_close(ours.key_sums(), theirs.sum(2), atol=1e-6, rtol=0)
    eye = torch.eye(6, dtype=torch.float64)
    first, second = (product.clamp(min=0).mean(1) for product in expected)
    whole = (eye + second) @ (eye + first) - eye
    torch.testing.assert_close(relevance(seen, last_entry(output), range(6)), whole, atol=1e-6, rtol=0)
    assert (first > 0).any()


@pytest.mark.parametrize("way", ["torch", "regard"])
def test_gradient_times_attention_agrees_with_small_changes(way):
    """d target / d A · A summed over all weights is what the target changes by when outputs of attention grow."""
    model, seen, output = seen_of(way, gradients=True)
    found = gradient_attention(seen, last_entry(output))[1].key_sums().sum()
    projection = WAYS[way].projection(model[1])
    weight = projection.weight.detach().clone().requires_grad_()
    with torch.no_grad():
        projection.weight.zero_()
        bare = last_entry(model(text()))
        projection.weight.copy_(weight)
    torch.testing.assert_close(found, (last_entry(output) - bare).double().detach(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", ["sdpa", "torch", "regard"])
def test_value_norms_are_lengths_of_what_is_moved(way):
    model, seen, _ = seen_of(way)
    projection = WAYS[way].projection(model[1]).weight.double().detach().view(16, 4, 4)
    value = seen.calls[1].value.double()
    moved = torch.einsum("bhkd,mhd->bhkm", value, projection)
    vectors = seen.layers[1].rows.double()[..., None] * moved[:, :, None]
    found = value_norms(seen, seen.calls[1].name, range(6))
    torch.testing.assert_close(found.by_head, vectors.norm(dim=-1), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.together, vectors.sum(1).norm(dim=-1), atol=1e-6, rtol=0)


def test_a_softmax_of_its_own_has_no_values():
    _, seen, output = seen_of("softmax", gradients=True)
    with pytest.raises(ConfigError, match="no output projection was met that reads the heads of 1 as they are"):
        value_norms(seen, "1")
    with pytest.raises(ConfigError, match="the output of 0 cannot be told apart: it computes its own softmax"):
        gradient_attention(seen, last_entry(output))


class Rotated(nn.Module):
    """Rotary positions, grouped heads, a bias, a soft cap and a sink, all at once."""

    def __init__(self, interleaved):
        super().__init__()
        self.rotary = regard.nn.Rotary(6, interleaved=interleaved)

    def forward(self, q, k):
        places = torch.arange(5)
        q, k = self.rotary(q, places), self.rotary(k, places)
        options = {
            "bias": regard.ALiBi(torch.tensor([0.5, 0.25])),
            "logit_softcap": 3.0,
            "sinks": torch.tensor([0.3, 1]),
        }
        return regard.attend(q, k, k, mask=regard.Causal(), **options)


@pytest.mark.parametrize("interleaved", [False, True])
def test_reasons_add_up_to_the_score(interleaved):
    q, k = torch.randn(2, 2, 5, 8), torch.randn(2, 1, 5, 8)
    model = Rotated(interleaved)
    with torch.no_grad(), watch(model, [regard.Rows(), regard.SinkShare(), regard.LogSumExp()], keep=True) as seen:
        model(q, k)
    frequencies = 10_000 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    for query in range(5):
        for key in range(5):
            why = reasons(seen, "", query=query, key=key, item=1, frequencies=frequencies, interleaved=interleaved)
            content = 8**-0.5 * (q[1, :, query].double() * k[1, 0, key].double()).sum(-1)
            torch.testing.assert_close(why.content, content, atol=1e-6, rtol=0)
            torch.testing.assert_close(why.content + why.rotary.sum(-1), why.product, atol=1e-9, rtol=0)
            torch.testing.assert_close(why.product + why.capped + why.bias, why.score, atol=1e-9, rtol=0)
            assert why.allowed.tolist() == [key <= query] * 2
            expected = (why.score - why.lse).exp() if key <= query else torch.zeros(2, dtype=torch.float64)
            torch.testing.assert_close(why.weight, expected, atol=1e-6, rtol=0)
            torch.testing.assert_close(why.weight, seen.layers[0].rows[1, :, query, key].double(), atol=1e-6, rtol=0)
            torch.testing.assert_close(why.sink_share, seen.layers[0].sink_share[1, :, query].double())


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    model, seen, output = seen_of("sdpa")
    with pytest.raises(
        ConfigError, match="`rows` must be one or more positions from 0 to 5, or from −1 back, but is 6"
    ):
        rollout(seen, [6])
    with pytest.raises(ConfigError, match="`residual` must be from 0 to 1, but is 2"):
        flow(seen, residual=2)
    with pytest.raises(ConfigError, match="`target` must be computed with gradients, but is without"):
        gradient_attention(seen, output[0, 0, 0])
    with pytest.raises(ShapeError, match=r"`target` must be one number, .*, but is of shape \(2, 6, 16\)"):
        gradient_attention(seen, output)
    with pytest.raises(ConfigError, match="the model must run with gradients, but the output of 0 has none"):
        gradient_attention(seen, torch.ones(1, requires_grad=True).sum())
    with watch(model) as unkept:
        model(text())
    with pytest.raises(ConfigError, match="`seen` must be of a watch that keeps its calls, but is not"):
        rollout(unkept)
    with pytest.raises(ConfigError, match=r"`name` must be the name, or the end of the name, of one layer"):
        value_norms(seen, "7")
    with pytest.raises(
        ConfigError, match="there is no self-attention matching 'x' among the calls that were kept: 0, 1"
    ):
        rollout(seen, modules="x")
    with watch(model, keep=True) as twice:
        model(text(5))
        model(text(6))
    with pytest.raises(ConfigError, match="the layers must be of one stack over one text, but are of 2"):
        rollout(twice)
