"""The part of a layer that works on every position by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import ConfigError, ShapeError, message, must_be
from regard.nn.dropout import Dropout
from regard.nn.initial import reset_linear
from regard.nn.options import check_options

Activation = Literal["relu", "gelu", "silu"] | Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class FeedForward(nn.Module):
    """Two linear maps with a bend between them, the same at every position.

        plain   output = W₂ · dropout(activation(W₁ x))
        gated   output = W₂ · dropout(activation(W₁ x) · (W₃ x))

    Args:
        d_model: Width of input and output.
        ff_dim: Width in between.
        activation: "relu", "gelu", "silu", or any function of a tensor.
        gated: Whether a second map of the input multiplies the first.
        bias: Whether the maps add a bias.
        dropout_p: Share of the inner features dropped in training.

    Raises:
        ConfigError: if the activation is not known, or ``dropout_p`` is not between 0 and 1.

    Source:
        Vaswani et al. 2017, equation 2; gated: Shazeer 2020, arXiv:2002.05202.
    """

    def __init__(
        self,
        d_model: int,
        ff_dim: int,
        *,
        activation: Activation = "gelu",
        gated: bool = False,
        bias: bool = True,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        check_options("FeedForward", {"d_model": d_model, "ff_dim": ff_dim}, shares={"dropout_p": dropout_p})
        self.activation = _activation(activation)
        self.wide = nn.Linear(d_model, ff_dim, bias=bias)
        self.gate = nn.Linear(d_model, ff_dim, bias=bias) if gated else None
        self.dropout = Dropout(dropout_p)
        self.narrow = nn.Linear(ff_dim, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every map anew: Glorot-uniform weights, zero biases."""
        reset_linear(*(linear for linear in (self.wide, self.gate, self.narrow) if linear is not None))

    def forward(self, x: Float[Tensor, "*batch length d_model"]) -> Float[Tensor, "*batch length d_model"]:
        """Map every position.

        Raises:
            ShapeError: if the width is not ``d_model``.
        """
        if x.shape[-1] != self.wide.in_features:
            problem = must_be("x", f"of width {self.wide.in_features}", f"of shape {tuple(x.shape)}")
            raise ShapeError(message("FeedForward", problem))
        inner = self.activation(self.wide(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        output: Tensor = self.narrow(self.dropout(inner))
        return output


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        expected = "a function or one of " + ", ".join(f'"{name}"' for name in ACTIVATIONS)
        raise ConfigError(message("FeedForward", must_be("activation", expected, repr(activation))))
    return ACTIVATIONS[activation]
