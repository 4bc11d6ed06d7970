"""Positions for attention: rotations of queries and keys, and biases that grow with distance."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError, message, must_be


class Rotary(nn.Module):
    """Rotary position embedding: turns pairs of a head's coordinates by an angle that grows with the position.

        angle_i = position · base^(−2i / dim),   (x_i, x_{i + dim/2}) turned by angle_i      for i < dim/2

    Scores of rotated queries and keys depend on the difference of their positions only.

    Args:
        dim: Width of a head; even.
        base: How fast frequencies fall.
        interleaved: Pair neighbours (x_{2i}, x_{2i+1}) instead of halves.

    Raises:
        ShapeError: if ``dim`` is odd.
        ConfigError: if ``base`` is not above 0.

    Numerics:
        Angles in float64, sine and cosine rounded to float32: there is no buffer that ``module.to(bfloat16)`` could
        round.

    Source:
        Su et al. 2021, arXiv:2104.09864, equation 34.
    """

    def __init__(self, dim: int, *, base: float = 10_000.0, interleaved: bool = False) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ShapeError(message("Rotary", must_be("dim", "even and at least 2", dim)))
        if not base > 0:
            raise ConfigError(message("Rotary", must_be("base", "above 0", base)))
        self.dim, self.base, self.interleaved = dim, base, interleaved

    def forward(
        self, x: Float[Tensor, "batch heads length dim"], positions: Int[Tensor, "length"] | Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch heads length dim"]:
        """Rotate queries or keys.

        Args:
            x: Queries or keys.
            positions: Absolute position of each, one row for all batch rows or one each.

        Returns:
            The rotated tensor, in the dtype of ``x``.

        Raises:
            ShapeError: if the width is not ``dim`` or positions do not fit.
        """
        if x.shape[-1] != self.dim:
            raise ShapeError(message("Rotary", must_be("x", f"of width {self.dim}", f"of shape {tuple(x.shape)}")))
        if positions.shape[-1] != x.shape[-2]:
            problem = must_be("positions", f"of length {x.shape[-2]}", f"of shape {tuple(positions.shape)}")
            raise ShapeError(message("Rotary", problem))
        dtype = torch.promote_types(x.dtype, torch.float32)
        pair = torch.arange(self.dim // 2, device=x.device, dtype=torch.float64)
        angles = positions.double()[..., None] * self.base ** (-2 * pair / self.dim)
        angles = angles[:, None] if positions.dim() == 2 else angles
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        wide = x.to(dtype)
        if self.interleaved:
            first, second = wide[..., 0::2], wide[..., 1::2]
            turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
        else:
            first, second = wide.chunk(2, dim=-1)
            turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
        return turned.to(x.dtype)

    def extra_repr(self) -> str:
        """Show the settings in ``print(module)``."""
        return f"dim={self.dim}, base={self.base}, interleaved={self.interleaved}"


def alibi_slopes(num_heads: int) -> Float[Tensor, "num_heads"]:
    """How steeply each head's bias falls with distance.

        2^(−8/n), 2^(−16/n), … for n heads, n a power of two; otherwise the slopes of the power of two below, then
        every second slope of the power of two above.

    Args:
        num_heads: At least 1.

    Returns:
        One slope per head, float32.

    Raises:
        ConfigError: if ``num_heads`` is less than 1.

    Source:
        Press et al. 2021, arXiv:2108.12409, section 3, and the authors' code for other head counts.
    """
    if num_heads < 1:
        raise ConfigError(message("alibi_slopes", must_be("num_heads", "at least 1", num_heads)))
    below = 1 << int(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    above = [2 ** (-8 * (head + 1) / (2 * below)) for head in range(0, 2 * below, 2)]
    return torch.tensor(slopes + above[: num_heads - below], dtype=torch.float32)


class ALiBi(nn.Module):
    """Attention with linear biases: the farther a key, the lower its score.

        bias[h, i, j] = −slope_h · |i − j|

    Args:
        num_heads: Any count of at least 1.

    Raises:
        ConfigError: if ``num_heads`` is less than 1.

    Numerics:
        In float32, whatever the model was cast to: there is no buffer that ``module.to(bfloat16)`` could round, and
        distances above 256 stay distinct.

    Source:
        Press et al. 2021, arXiv:2108.12409.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        alibi_slopes(num_heads)  # refuses what it must before the first call
        self.num_heads = num_heads

    def forward(
        self, q_positions: Int[Tensor, "q_len"], k_positions: Int[Tensor, "kv_len"]
    ) -> Float[Tensor, "1 num_heads q_len kv_len"]:
        """The bias for ``attend``.

        Args:
            q_positions: Absolute position of each query.
            k_positions: Absolute position of each key.

        Returns:
            A dense bias in float32: quadratic memory.
        """
        distance = (q_positions[:, None] - k_positions[None]).abs()
        slopes = alibi_slopes(self.num_heads).to(distance.device)
        return (-slopes[:, None, None] * distance)[None]

    def extra_repr(self) -> str:
        """Show the heads in ``print(module)``."""
        return f"num_heads={self.num_heads}"
