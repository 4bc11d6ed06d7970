"""Convolutions over text: causal ones that can be streamed, and ones that see both sides."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import ShapeError, all_problems, message, must_be
from regard.nn.dropout import Dropout
from regard.nn.initial import reset_linear
from regard.nn.inputs import check_keep, check_sequence
from regard.nn.options import check_options


class CausalConvolution(nn.Module):
    """A dilated convolution that sees its own position and before.

        output_t = b + Σ_i W_i input_{t − dilation · (kernel_size − 1 − i)}

    Args:
        input_dim: Width of the inputs.
        output_dim: Width of the outputs.
        kernel_size: How many inputs each output sees.
        dilation: How far apart they are.

    Raises:
        ConfigError: a size is below 1.

    Source:
        van den Oord et al. 2016, arXiv:1609.03499, section 2.1.

    Example:
        >>> import torch
        >>> layer = CausalConvolution(3, 4, 2)
        >>> whole, _ = layer(torch.ones(1, 6, 3))
        >>> first, past = layer(torch.ones(1, 5, 3))
        >>> last, _ = layer(torch.ones(1, 1, 3), past)
        >>> torch.allclose(whole, torch.cat((first, last), dim=1))
        True
    """

    def __init__(self, input_dim: int, output_dim: int, kernel_size: int, *, dilation: int = 1) -> None:
        super().__init__()
        sizes = {"input_dim": input_dim, "output_dim": output_dim, "kernel_size": kernel_size, "dilation": dilation}
        check_options("CausalConvolution", sizes)
        self.convolution = nn.Conv1d(input_dim, output_dim, kernel_size, dilation=dilation)
        self.reach = (kernel_size - 1) * dilation
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew (see ``reset_convolution``)."""
        reset_convolution(self.convolution)

    def start(self, batch: int) -> Float[Tensor, "batch reach input_dim"]:
        """What stands before the first input: zeros."""
        return self.convolution.weight.new_zeros(batch, self.reach, self.convolution.in_channels)

    def forward(
        self,
        inputs: Float[Tensor, "batch length input_dim"],
        past: Float[Tensor, "batch reach input_dim"] | None = None,
    ) -> tuple[Float[Tensor, "batch length output_dim"], Float[Tensor, "batch reach input_dim"]]:
        """Convolve.

        Args:
            inputs: Batch first, always.
            past: The inputs before these, as the call before returned them; zeros by default.

        Returns:
            The outputs, and the last ``reach`` inputs, to go on from.

        Raises:
            ShapeError: a shape does not fit.
        """
        check_sequence("CausalConvolution", "inputs", inputs, self.convolution.in_channels, self.convolution.weight)
        past = inputs.new_zeros(inputs.shape[0], self.reach, inputs.shape[2]) if past is None else past
        expected = (inputs.shape[0], self.reach, inputs.shape[2])
        if tuple(past.shape) != expected:
            problem = must_be("past", f"of shape {expected}", f"of shape {tuple(past.shape)}")
            raise ShapeError(message("CausalConvolution", problem))
        joined = torch.cat((past.to(inputs.dtype), inputs), dim=1)
        if inputs.shape[1] == 0:
            return inputs.new_zeros(inputs.shape[0], 0, self.convolution.out_channels), joined
        return self.convolution(joined.mT).mT, joined[:, joined.shape[1] - self.reach :]


class CausalBlock(nn.Module):
    """A residual block of one causal convolution, for language models.

        plain  output = input + dropout(W relu(convolution(norm(input))))
        gated  output = input + dropout(W (a · σ(b))),   [a; b] = convolution(norm(input))

    Args:
        dim: Width of inputs and outputs.
        kernel_size: How many positions each sees.
        dilation: How far apart they are.
        gated: Gated linear units instead of rectified ones.
        dropout_p: Share of the numbers dropped before the residual in training.

    Raises:
        ConfigError: an option is out of range.

    Numerics:
        Positions are normalised one by one (LayerNorm), so neighbours and padding have no influence through the norm.

    Source:
        TCN: Bai, Kolter and Koltun 2018, arXiv:1803.01271, section 3 (weight norm there); gates: Dauphin et al. 2017,
        arXiv:1612.08083, and ConvS2S, Gehring et al. 2017, arXiv:1705.03122.
    """

    def __init__(
        self, dim: int, kernel_size: int, *, dilation: int = 1, gated: bool = False, dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        sizes = {"dim": dim, "kernel_size": kernel_size, "dilation": dilation}
        check_options("CausalBlock", sizes, shares={"dropout_p": dropout_p})
        self.gated = gated
        self.norm = nn.LayerNorm(dim)
        self.convolution = CausalConvolution(dim, 2 * dim if gated else dim, kernel_size, dilation=dilation)
        self.output = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the norm starts as the identity."""
        self.norm.reset_parameters()
        self.convolution.reset_parameters()
        reset_linear(self.output)

    def start(self, batch: int) -> Float[Tensor, "batch reach dim"]:
        """What stands before the first input: zeros."""
        return self.convolution.start(batch)

    def forward(
        self,
        inputs: Float[Tensor, "batch length dim"],
        past: Float[Tensor, "batch reach dim"] | None = None,
        *,
        keep: Bool[Tensor, "batch length"] | None = None,
    ) -> tuple[Float[Tensor, "batch length dim"], Float[Tensor, "batch reach dim"]]:
        """Compute the block.

        Args:
            inputs: Batch first, always.
            past: From the call before, to go on; the beginning by default.
            keep: True for real inputs; others are read as zeros, as what stands before the beginning is.

        Returns:
            The outputs, and the past to go on from.

        Raises:
            ShapeError: a shape does not fit.
        """
        check_sequence("CausalBlock", "inputs", inputs, self.output.in_features, self.output.weight)
        inputs = _zeroed("CausalBlock", inputs, keep)
        hidden, past = self.convolution(_zeroed("CausalBlock", self.norm(inputs), keep), past)
        hidden = functional.glu(hidden) if self.gated else hidden.relu()
        return inputs + self.dropout(self.output(hidden)), past


class TextBlock(nn.Module):
    """A residual block of one convolution that sees both sides, for encoders and classifiers.

        plain  output = input + dropout(W relu(convolution(norm(input))))
        gated  output = input + dropout(W (a · σ(b))),   [a; b] = convolution(norm(input))

    Args:
        dim: Width of inputs and outputs.
        kernel_size: How many positions each sees; odd.
        dilation: How far apart they are.
        gated: Gated linear units instead of rectified ones.
        dropout_p: Share of the numbers dropped before the residual in training.

    Raises:
        ConfigError: an option is out of range.

    Source:
        The encoder of ConvS2S, Gehring et al. 2017, arXiv:1705.03122, with the norm before the convolution.
    """

    def __init__(
        self, dim: int, kernel_size: int, *, dilation: int = 1, gated: bool = False, dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        sizes = {"dim": dim, "kernel_size": kernel_size, "dilation": dilation}
        check_options("TextBlock", sizes, shares={"dropout_p": dropout_p})
        if kernel_size % 2 == 0:
            raise all_problems("TextBlock", [must_be("kernel_size", "odd, to see as much on both sides", kernel_size)])
        self.gated = gated
        self.norm = nn.LayerNorm(dim)
        width = 2 * dim if gated else dim
        reach = (kernel_size - 1) // 2 * dilation
        self.convolution = nn.Conv1d(dim, width, kernel_size, dilation=dilation, padding=reach)
        self.output = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout_p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the norm starts as the identity."""
        self.norm.reset_parameters()
        reset_convolution(self.convolution)
        reset_linear(self.output)

    def forward(
        self, inputs: Float[Tensor, "batch length dim"], keep: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch length dim"]:
        """Compute the block.

        Args:
            inputs: Batch first, always.
            keep: True for real inputs; others are read as zeros, as what stands beyond the ends is.

        Returns:
            The outputs; at padding they mean nothing.

        Raises:
            ShapeError: a shape does not fit.
        """
        check_sequence("TextBlock", "inputs", inputs, self.output.in_features, self.output.weight)
        inputs = _zeroed("TextBlock", inputs, keep)
        hidden = self.convolution(_zeroed("TextBlock", self.norm(inputs), keep).mT).mT
        hidden = functional.glu(hidden) if self.gated else hidden.relu()
        output: Tensor = inputs + self.dropout(self.output(hidden))
        return output


def reset_convolution(convolution: nn.Conv1d) -> None:
    """Draw the weights of a convolution anew: normal, of the variance that keeps that of rectified outputs; zero bias.

    Source:
        He et al. 2015, arXiv:1502.01852, equation 10.
    """
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)


def _zeroed(caller: str, inputs: Tensor, keep: Tensor | None) -> Tensor:
    if keep is None:
        return inputs
    check_keep(caller, "keep", keep, tuple(inputs.shape[:2]))
    return inputs.masked_fill(~keep[..., None], 0)
