"""``regard.attend`` inside a watched module, whoever wrote the module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard.lens import watch
from regard.nn import ALiBi, KeyValueCache, MultiHeadAttention, RelativeBias, Rotary, ScaledDotProductAttention
from regard.ops import Causal, Documents, Padding, SlidingWindow
from regard.ops.probes import Entropy, KeyMass, Rows

KEEP = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


@pytest.mark.parametrize("serve", ["model", "regard"])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, None),
        ({}, Causal() & Padding(KEEP)),
        ({"num_kv_heads": 1, "scale": 0.7}, KEEP[:, None, None]),
        ({"sinks": True}, Causal()),
        ({"positions": Rotary(4)}, Causal()),
        ({"positions": ALiBi(4)}, Causal()),
        ({"positions": RelativeBias(4)}, None),
    ],
)
def test_probes_are_of_the_weights_and_the_output_is_untouched(options, mask, need_weights, serve):
    module, x = MultiHeadAttention(16, 4, **options).eval(), torch.randn(2, 5, 16)
    wanted, weights = module(x, mask=mask, need_weights=True)
    with watch(module, [Rows(), Entropy()], serve=serve) as seen:
        found = module(x, mask=mask, need_weights=need_weights)
    assert torch.equal(found[0] if need_weights else found, wanted)
    (layer,) = seen.layers
    torch.testing.assert_close(layer.rows, weights, atol=1e-6, rtol=0)
    assert (layer.kind, layer.q_positions.tolist()) == ("self", [[0, 1, 2, 3, 4]])
    assert [(entry.status, entry.reason) for entry in seen.coverage] == [("seen", "through regard.attend")]


def test_outputs_and_gradients_with_and_without_a_watch():
    module, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16, requires_grad=True)
    (wanted,) = torch.autograd.grad(module(x, mask=Causal()).square().sum(), x)
    with watch(module, [Entropy()]):
        (found,) = torch.autograd.grad(module(x, mask=Causal()).square().sum(), x)
    assert torch.equal(found, wanted)


def test_a_module_of_a_person_and_the_textbook_class():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.book = ScaledDotProductAttention(4)

        def forward(self, x):
            return regard.attend(x[:, None], x[:, None], x[:, None], q_start="start")[:, 0] + self.book(x, x, x)[0]

    model = Mine()
    with watch(model, [Rows()]) as seen:
        model(torch.randn(2, 3, 4))
    assert sorted(layer.name for layer in seen.layers) == ["", "book"]
    torch.testing.assert_close(seen[""].rows, seen["book"].rows)


def test_steps_with_a_cache_are_one_layer_at_absolute_positions():
    module, x = MultiHeadAttention(16, 4, positions=Rotary(4)).eval(), torch.randn(1, 6, 16)
    mask, cache = Causal() & SlidingWindow(3), KeyValueCache(window=3)
    with watch(module, [Rows(), KeyMass()]) as seen:
        for i, j in ((0, 4), (4, 5), (5, 6)):
            module(x[:, i:j], mask=mask, kv_cache=cache.layer(0))
    with watch(module, [Rows(), KeyMass()]) as once:
        module(x, mask=mask)
    (layer,) = seen.layers
    torch.testing.assert_close(layer.rows, once[""].rows, atol=1e-6, rtol=0)
    torch.testing.assert_close(layer.key_mass, once[""].key_mass, atol=1e-6, rtol=0)


def test_another_sequence_is_cross_attention_and_a_mask_of_positions_keeps_its_own():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.cross = MultiHeadAttention(8, 2)

        def forward(self, x, memory, mask=None):
            return self.cross(x, memory, mask=mask)

    model, x, memory = Layer(), torch.randn(1, 2, 8), torch.randn(1, 5, 8)
    for mask, place in (
        (None, 0),
        (Padding(KEEP[:1]), 0),
        (Causal(), 3),
        (Causal() | Documents(torch.zeros(1, 5).long()), 3),
    ):
        with watch(model, [Rows()]) as seen:
            model(x, memory, mask)
        (layer,) = seen.layers
        assert layer.kind == "cross"
        assert layer.q_positions.tolist() == [[place, place + 1]]
        _, weights = model.cross(x, memory, mask=mask, need_weights=True)
        torch.testing.assert_close(layer.rows, weights, atol=1e-6, rtol=0)


def test_rows_at_positions_of_their_own_are_said_not_to_be_seen():
    class Model(nn.Module):
        def forward(self, x):
            return regard.attend(x, x, x, mask=Causal(), q_start=torch.tensor([0, 1]))

    model = Model()
    with watch(model, [Rows()]) as seen:
        model(torch.randn(2, 1, 3, 4))
    assert seen.layers == []
    assert "positions of their own" in seen.coverage[0].reason


def test_the_end_of_a_name_will_do_where_it_is_the_only_one():
    model = nn.Sequential(MultiHeadAttention(8, 2), nn.Sequential(MultiHeadAttention(8, 2)))
    with watch(model, [Entropy()]) as seen:
        model(torch.randn(1, 3, 8))
    assert seen["1.0"] is seen.layers[1]
    assert seen["0"] is seen.layers[0], "a whole name comes first"
    with pytest.raises(KeyError, match=r"seen were: 0, 1\.0"):
        seen["2"]


def test_nothing_outside_a_watch_and_under_a_mode_of_another_kind():
    q = torch.randn(1, 2, 3, 4)
    wanted = regard.attend(q, q, q)
    with torch.device("cpu"):
        assert torch.equal(regard.attend(q, q, q), wanted)
        assert regard.weights(q, q).shape == (1, 2, 3, 3)
