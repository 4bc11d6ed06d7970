"""Convolutional blocks, against sums written out, and streamed against the whole."""

from __future__ import annotations

import pytest
import torch

from regard.errors import ConfigError, ShapeError
from regard.nn import CausalBlock, CausalConvolution, TextBlock
from tests.cases.test_group_a import close


def test_causal_convolution_formula() -> None:
    layer = CausalConvolution(3, 4, 3, dilation=2).double()
    inputs = torch.randn(2, 7, 3, dtype=torch.float64)
    torch.nn.init.normal_(layer.convolution.bias)
    outputs, _ = layer(inputs)
    weight, bias = layer.convolution.weight, layer.convolution.bias
    for t in range(7):
        expected = bias.expand(2, 4).clone()
        for i in range(3):
            if (at := t - 2 * (2 - i)) >= 0:
                expected = expected + inputs[:, at] @ weight[..., i].T
        close(outputs[:, t], expected, 1e-12)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("pieces", [[1] * 9, [4, 0, 5], [8, 1]])
def test_a_streamed_block_is_the_whole(gated: bool, pieces: list[int]) -> None:
    block = CausalBlock(4, 3, dilation=2, gated=gated)
    inputs = torch.randn(2, 9, 4)
    whole, end = block(inputs)
    past, parts = block.start(2), []
    for piece in inputs.split(pieces, dim=1):
        output, past = block(piece, past)
        parts.append(output)
    close(torch.cat(parts, 1), whole, 1e-5)
    close(past, end, 1e-6)


@pytest.mark.parametrize("gated", [False, True])
def test_a_causal_block_sees_nothing_later_and_reaches_as_far_as_it_says(gated: bool) -> None:
    block = CausalBlock(16, 3, dilation=2, gated=gated).double()
    inputs = torch.randn(1, 9, 16, dtype=torch.float64, requires_grad=True)
    output, _ = block(inputs)
    (gradient,) = torch.autograd.grad(output[0, 6].sum(), inputs)
    seen = gradient[0].abs().sum(-1) > 0
    assert seen.nonzero()[:, 0].tolist() == [2, 4, 6]


@pytest.mark.parametrize("gated", [False, True])
def test_block_formulas(gated: bool) -> None:
    inputs = torch.randn(1, 5, 4, dtype=torch.float64)
    for block, seen in ((CausalBlock(4, 3, gated=gated), (-2, -1, 0)), (TextBlock(4, 3, gated=gated), (-1, 0, 1))):
        block = block.double()
        whole = block(inputs)
        output = whole[0] if isinstance(whole, tuple) else whole
        convolution = block.convolution.convolution if isinstance(block, CausalBlock) else block.convolution
        normed = torch.nn.functional.layer_norm(inputs[0], (4,))
        for t in range(5):
            total = sum(convolution.weight[..., i] @ normed[t + s] for i, s in enumerate(seen) if 0 <= t + s < 5)
            hidden = total[:4] * total[4:].sigmoid() if gated else total.clamp(min=0)
            close(output[0, t], inputs[0, t] + block.output.weight @ hidden, 1e-10)


@pytest.mark.parametrize("block", [CausalBlock(4, 3, dilation=2), TextBlock(4, 5)])
def test_padding_of_any_content_and_length_changes_nothing(block: torch.nn.Module) -> None:
    torch.nn.init.normal_(block.norm.bias)  # what the norm makes of padding is not zero
    inputs = torch.randn(2, 5, 4)
    expected = block(inputs)
    expected = expected[0] if isinstance(expected, tuple) else expected
    padded = torch.full((2, 11, 4), float("nan"))
    padded[:, 3:8] = inputs
    padded.requires_grad_()
    keep = torch.zeros(2, 11).bool()
    keep[:, 3:8] = True
    found = block(padded, keep=keep)
    found = (found[0] if isinstance(found, tuple) else found)[:, 3:8]
    close(found, expected, 1e-5)
    found.square().sum().backward()
    assert torch.isfinite(padded.grad).all()
    assert padded.grad[keep].any()
    assert all(torch.isfinite(parameter.grad).all() for parameter in block.parameters())


@pytest.mark.parametrize("gated", [False, True])
def test_gradients_twice(gated: bool) -> None:
    torch.manual_seed(3)
    block = CausalBlock(2, 2, gated=gated).double()
    inputs = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x)[0], inputs)
    assert torch.autograd.gradgradcheck(lambda x: block(x)[0], inputs)


@pytest.mark.usefixtures("unchecked")
def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match=r"(?s)2 problems.*`kernel_size`.*0.*`dropout_p`.*-1"):
        CausalBlock(4, 0, dropout_p=-1)
    with pytest.raises(ConfigError, match=r"`kernel_size` must be odd.*but is 4"):
        TextBlock(4, 4)
    with pytest.raises(ConfigError, match=r"`dilation` must be at least 1, but is 0"):
        CausalConvolution(1, 1, 1, dilation=0)
    with pytest.raises(
        ShapeError, match=r"`inputs` must be of shape \[batch, length, 4\], but is of shape \(1, 2, 5\)"
    ):
        TextBlock(4, 3)(torch.zeros(1, 2, 5))
    with pytest.raises(ShapeError, match=r"`keep` must be of shape \(1, 2\), but is of shape \(2, 1\)"):
        TextBlock(4, 3)(torch.zeros(1, 2, 4), torch.ones(2, 1).bool())
    with pytest.raises(ShapeError, match=r"`past` must be of shape \(1, 2, 4\), but is of shape \(1, 3, 4\)"):
        CausalBlock(4, 3)(torch.zeros(1, 2, 4), torch.zeros(1, 3, 4))
