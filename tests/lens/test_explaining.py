"""Explanations side by side: each equals its own function, weighted by where the prediction is read from."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import ConfigError, ShapeError
from regard.lens import explain, gradient_attention, relevance, rollout, value_norms


def encoder(layers=2):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def read(model, target, *, length=6):
    x = torch.randn(1, length, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    with regard.watch(model, keep=True) as seen:
        output = model(x)
    return seen, target(output), x


def test_what_is_read_at_one_position_is_that_position_s():
    seen, target, x = read(encoder(), lambda output: output[0, 2, 3])
    found = explain(seen, target, x)
    last = seen.calls[-1].name
    close = torch.testing.assert_close
    close(found["rollout"], rollout(seen, rows=[2])[0, 0])
    close(found["relevance"], relevance(seen, target, rows=[2])[0, 0])
    close(found["value norms"], value_norms(seen, last, rows=[2]).together[0, 0])
    close(found["attention"], seen.calls[-1].rows([2])[0, :, 0].double().mean(0))
    products = gradient_attention(seen, target)
    close(found["gradient x attention"], sum(each.key_sums()[0].sum(0) for each in products))
    (gradient,) = torch.autograd.grad(target, x, retain_graph=True)
    close(found["gradient x input"], (x * gradient).detach()[0].double().sum(-1))


def test_a_mean_over_positions_is_read_from_all_of_them():
    seen, target, x = read(encoder(), lambda output: output[0].mean(0)[3])
    found = explain(seen, target, x)
    each = rollout(seen, rows=range(6))[0]
    assert (found["rollout"] >= each.amin(0) - 1e-12).all()
    assert (found["rollout"] <= each.amax(0) + 1e-12).all()
    assert found["rollout"].sum().item() == pytest.approx(1)
    assert found["attention"].sum().item() == pytest.approx(1)
    assert not torch.allclose(found["rollout"], each[0], atol=1e-3)


def test_without_inputs_that_control_is_left_out():
    seen, target, _ = read(encoder(), lambda output: output[0, 0, 3])
    assert "gradient x input" not in explain(seen, target)


class Moves(torch.nn.Module):
    """Attention that moves what it finds as it is, and looks for large features."""

    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(torch.cat([torch.zeros(16, 16), torch.eye(16), torch.eye(16)]))
            self.attention.in_proj_bias[:16] = 1
            self.attention.out_proj.weight.copy_(torch.eye(16))

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def test_a_planted_token_is_found():
    """One key carries all that the readout reads: every explanation names it first."""
    x = torch.full((1, 6, 16), 0.01)
    x[0, 4] = torch.linspace(1, 2, 16)
    x.requires_grad_()
    model = Moves().eval()
    with regard.watch(model, keep=True) as seen:
        output = model(x)
    for name, scores in explain(seen, output[0].mean(0).sum(), x).items():
        assert int(scores.argmax()) == 4, name


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_explained_is_refused():
    seen, target, x = read(encoder(), lambda output: output[0, 0, 3])
    with pytest.raises(
        ShapeError, match=r"`inputs` must be of shape \[1, 6, embed_dim\], but is of shape \(1, 5, 16\)"
    ):
        explain(seen, target, x[:, :5])
    with pytest.raises(ConfigError, match="`inputs` must be what `target` was computed from"):
        explain(seen, target, torch.randn(1, 6, 16, requires_grad=True))
    with pytest.raises(ShapeError, match="`target` must be one number"):
        explain(seen, target.expand(2), x)
    model = encoder()
    with regard.watch(model, keep=True) as two:
        output = model(torch.randn(2, 5, 16))
    with pytest.raises(ConfigError, match="`seen` must be of one text, but is of 2"):
        explain(two, output[0, 0, 0])
