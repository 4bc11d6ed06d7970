"""Changes: silenced heads, blocked spans and forced weights do what they say, in every way in, and leave no trace."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import regard
from regard.errors import ConfigError, DTypeError, ShapeError, UnsupportedError
from regard.lens import BlockSpans, ForceWeights, SilenceHeads, watch
from tests.lens.ways import WAYS, text


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("way", WAYS)
def test_silencing_heads_is_zeroing_their_columns(way, serve):
    model, x = WAYS[way].model(), text()
    zeroed = copy.deepcopy(model)
    with torch.no_grad():
        WAYS[way].projection(zeroed[1]).weight[:, [4, 5, 6, 7, 12, 13, 14, 15]] = 0
        with watch(zeroed, serve=serve):
            expected = zeroed(x)
        with watch(model, [regard.Rows()], serve=serve, changes=[SilenceHeads(heads=[1, 3], layers=[1])]) as seen:
            found = model(x)
        with watch(model, [regard.Rows()], serve=serve) as plain:
            whole = model(x)
    if way == "softmax":  # a sum of zeros and one without them: the same numbers, in another order of adding up
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    else:
        assert torch.equal(found, expected)
    assert not torch.equal(found, whole)
    for changed, before in zip(seen.layers, plain.layers, strict=True):
        torch.testing.assert_close(changed.rows, before.rows, atol=1e-6, rtol=0)  # weights are as they were
    assert ["changed: the output of heads 1, 3" in entry.reason for entry in seen.coverage] == [False, True]


@pytest.mark.parametrize("way", WAYS)
def test_afterwards_a_model_is_as_it_was(way):
    model, x = WAYS[way].model(), text()
    before, state = model(x), state_of(model)
    hooks = [len(module._forward_hooks) for module in model.modules()]
    with watch(model, changes=[SilenceHeads(), BlockSpans(key_spans=[(0, 2)]), ForceWeights()]):
        assert not torch.equal(model(x), before)
    with pytest.raises((RuntimeError, ValueError)), watch(model, changes=[SilenceHeads()]):
        model(torch.randn(1, 2, 3))  # of another width: it fails on the way
    assert torch.equal(model(x), before)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("way", WAYS)
def test_blocked_spans_get_nothing_and_the_rest_gets_all(way):
    model, x = WAYS[way].model(), text()
    for options in ({}, {"heads": [0, 2]}, {"query_spans": [(3, 5)]}, {"heads": [1], "query_spans": [(2, 3), (5, 6)]}):
        block = BlockSpans(key_spans=[(1, 3), (4, 4)], layers=[0], **options)
        with torch.no_grad(), watch(model, [regard.Rows()]) as plain:
            model(x)
        with torch.no_grad(), watch(model, [regard.Rows()], changes=[block]) as seen:
            model(x)
        hidden = torch.zeros(4, 6, 6, dtype=torch.bool)
        for head in options.get("heads", range(4)):
            for start, stop in options.get("query_spans", [(0, 6)]):
                hidden[head, start:stop, 1:3] = True
        left = plain.layers[0].rows.masked_fill(hidden, 0)
        expected = left / left.sum(-1, keepdim=True)
        torch.testing.assert_close(seen.layers[0].rows, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_blocked_has_no_influence_on_the_output(way):
    model, x = WAYS[way].model(), text()
    other = x.clone()
    other[:, 1] += 1
    with torch.no_grad(), watch(model, changes=[BlockSpans(key_spans=[(1, 2)])]):
        found, beside = model(x), model(other)
    torch.testing.assert_close(found[:, 2:], beside[:, 2:], atol=1e-6, rtol=0)
    assert not torch.allclose(model(x)[:, 2:], model(other)[:, 2:], atol=1e-3)


@pytest.mark.parametrize("heads", [None, [0, 3]])
@pytest.mark.parametrize("way", WAYS)
def test_forced_weights_are_what_heads_attend_with(way, heads):
    model, x = WAYS[way].model(), text()
    given = torch.rand(len(heads or range(4)), 6, 6, generator=torch.Generator().manual_seed(2))
    given[:, 2] = 0  # sees nothing
    given = given / given.sum(-1, keepdim=True).clamp(min=1e-9)
    with torch.no_grad(), watch(model, [regard.Rows()]) as plain:
        model(x)
    with torch.no_grad(), watch(model, [regard.Rows()], changes=[ForceWeights(weights=given, heads=heads)]) as seen:
        found = model(x)
    expected = plain.layers[0].rows.clone()
    expected[:, heads or slice(None)] = given
    torch.testing.assert_close(seen.layers[0].rows, expected, atol=1e-6, rtol=0)
    layer = model[0]
    if way == "sdpa":  # by hand
        value = layer.qkv(x).chunk(3, -1)[2].unflatten(2, (4, -1)).transpose(1, 2)
        by_hand = x + layer.out((expected @ value).transpose(1, 2).flatten(2))
        with torch.no_grad(), watch(model, changes=[ForceWeights(weights=given, heads=heads, layers=[0])]):
            torch.testing.assert_close(model[0](x), by_hand, atol=1e-5, rtol=0)
    assert found.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
def test_uniform_weights_are_over_what_a_query_may_see(way):
    model, x = WAYS[way].model(), text()
    with torch.no_grad(), watch(model, [regard.Rows()], changes=[ForceWeights(heads=[2])]) as seen:
        model(x)
    causal = torch.ones(6, 6).tril()
    torch.testing.assert_close(seen.layers[1].rows[0, 2], causal / causal.sum(-1, keepdim=True), atol=1e-6, rtol=0)


def test_changes_act_one_after_the_other_and_in_nested_watches():
    model, x = WAYS["sdpa"].model(), text()
    with (
        torch.no_grad(),
        watch(model, [regard.Rows()], changes=[BlockSpans(key_spans=[(0, 1)]), ForceWeights()]) as one,
    ):
        both = model(x)
    with (
        torch.no_grad(),
        watch(model, changes=[BlockSpans(key_spans=[(0, 1)])]),
        watch(model, [regard.Rows()], changes=[ForceWeights()]) as two,
    ):
        nested = model(x)
    assert torch.equal(both, nested)
    assert torch.equal(one.layers[0].rows, two.layers[0].rows)
    row = torch.tensor([0, 1 / 3, 1 / 3, 1 / 3, 0, 0])
    torch.testing.assert_close(one.layers[0].rows[0, 0, 3], row)


def test_gradients_pass_through_changed_calls():
    for way in WAYS:
        model, x = WAYS[way].model(), text().requires_grad_()
        with watch(model, changes=[SilenceHeads(heads=[0]), BlockSpans(key_spans=[(1, 2)], heads=[2])]):
            model(x).square().sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        weight = WAYS[way].projection(model[1]).weight.grad
        assert (weight[:, :4] == 0).all()
        assert (weight[:, 4:] != 0).any()


def test_a_checkpoint_computes_again_what_was_changed():
    from torch.utils.checkpoint import checkpoint

    model, x = WAYS["sdpa"].model(), text().requires_grad_()
    with watch(model, changes=[SilenceHeads(heads=[0])]):
        model(x).square().sum().backward()
        plain, x.grad = x.grad, None
        checkpoint(model, x, use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(x.grad, plain)


class DeltaNetAttention(nn.Module):
    """Attends without weights that could be changed."""

    def forward(self, x):
        return x.cumsum(1)


class TwoSoftmaxAttention(nn.Module):
    """Attends with two softmaxes, neither of them over all keys."""

    def forward(self, x):
        scores = x @ x.mT
        return (scores[..., :3].softmax(-1) @ x[:, :3]) + (scores[..., 3:].softmax(-1) @ x[:, 3:])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (DeltaNetAttention(), "0 cannot be changed: no attention function or softmax of a known form was met in it"),
        (TwoSoftmaxAttention(), "0 cannot be changed: it computes several softmaxes per call"),
    ],
    ids=["no softmax", "two softmaxes"],
)
def test_a_module_that_cannot_be_changed_stops_the_run(layer, reason):
    model = nn.Sequential(layer)
    with pytest.raises(UnsupportedError, match=reason), watch(model, changes=[SilenceHeads(heads=[0])]):
        model(text())
    with watch(nn.Sequential(layer, nn.MultiheadAttention(16, 4)), changes=[SilenceHeads(layers=[1])]):
        model(text())  # only the other is meant


@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_named():
    model, x = WAYS["sdpa"].model(), text()
    beyond = r"`heads` must be less than the 4 heads of 0, but holds 4"
    with pytest.raises(ConfigError, match=beyond), watch(model, changes=[SilenceHeads(heads=[4])]):
        model(x)
    with pytest.raises(ConfigError, match=r"`layers` of SilenceHeads must name layers of the model \(0 to 1\), but is"):
        watch(model, changes=[SilenceHeads(layers=[7])])
    with pytest.raises(ConfigError, match="`modules` must match the name of a module, but 'decoder' matches none"):
        watch(model, changes=[SilenceHeads(modules="decoder")])
    with pytest.raises(ConfigError, match="`changes` must be a sequence of changes"):
        watch(model, changes=[3])
    with pytest.raises(ConfigError, match="2 problems") as raised:
        SilenceHeads(heads=[-1], kind="both")
    assert "`heads` must be one or more numbers from 0, or None for all, but is [-1]" in str(raised.value)
    assert "`kind` must be" in str(raised.value)
    with pytest.raises(ConfigError, match=r"`key_spans` must be one or more pairs \(start, stop\)"):
        BlockSpans(key_spans=[(3, 1)])
    with pytest.raises(DTypeError, match="`weights` must be a floating tensor"):
        ForceWeights(weights=torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ConfigError, match=r"every row of `weights` must sum to 1, or to 0 .*, but one sums to 3"):
        ForceWeights(weights=torch.ones(3, 3))
    short = r"`weights` must be for 4 heads, 6 queries and 6 keys of 0, but is of shape \(3, 3\)"
    with pytest.raises(ShapeError, match=short), watch(model, changes=[ForceWeights(weights=torch.eye(3))]):
        model(x)
