"""How linear maps begin."""

from __future__ import annotations

from torch import nn


def reset_linear(*linears: nn.Linear) -> None:
    """Draw linear maps anew, in this order: Glorot-uniform weights, zero biases.

    Source:
        Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks", equation 16.
    """
    for linear in linears:
        nn.init.xavier_uniform_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
