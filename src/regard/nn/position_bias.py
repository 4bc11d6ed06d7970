"""Positions as biases: what attention adds to its scores for how far apart query and key are."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, all_problems, message, must_be
from regard.nn.options import check_options, is_whole, size_problems
from regard.ops import ALiBi as AlibiRule


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
        check_options("ALiBi", {"num_heads": num_heads})
        self.num_heads = num_heads

    def forward(
        self, q_positions: Int[Tensor, "*batch q_len"], k_positions: Int[Tensor, "*batch kv_len"]
    ) -> Float[Tensor, "batch_or_1 num_heads q_len kv_len"]:
        """The bias for ``attend``.

        Args:
            q_positions: Absolute position of each query, one row for all batch rows or one each.
            k_positions: Absolute position of each key, the same.

        Returns:
            A dense bias in float32: quadratic memory.
        """
        distance = _offsets(q_positions, k_positions).abs()
        slopes = alibi_slopes(self.num_heads).to(distance.device)
        return -slopes[:, None, None] * distance[:, None]

    def rule(self, device: torch.device | str = "cpu") -> AlibiRule:
        """The same bias as a rule, which ``attend`` need not write out."""
        return AlibiRule(alibi_slopes(self.num_heads).to(device))

    def extra_repr(self) -> str:
        """Show the heads in ``print(module)``."""
        return f"num_heads={self.num_heads}"


class RelativeBias(nn.Module):
    """A learned number per head for how far, and on which side of the query, a key stands.

        bias[h, i, j] = table[bucket(j − i), h]

    Near distances have a bucket each; farther ones share buckets that widen with the logarithm of the distance, up to
    ``max_distance``, beyond which all share the last. Both ways half of the buckets are for keys after the query;
    otherwise keys after the query share the bucket of distance 0.

    Args:
        num_heads: At least 1.
        num_buckets: Rows of the table; even if ``bidirectional``.
        max_distance: From where on distances are not told apart; more than the distances that have a bucket each.
        bidirectional: Whether keys after the query are told from those before.

    Raises:
        ConfigError: if a size does not fit.

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 2.1, and the authors' code for the buckets.
    """

    def __init__(
        self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        sizes = {"num_heads": num_heads, "num_buckets": num_buckets, "max_distance": max_distance}
        if not all(map(is_whole, sizes.values())):
            check_options("RelativeBias", sizes)
        own = num_buckets // 2 if bidirectional else num_buckets
        problems = size_problems({"num_heads": num_heads})
        if own < 2 or (bidirectional and num_buckets % 2):
            expected = "even and at least 4" if bidirectional else "at least 2"
            problems.append(must_be("num_buckets", expected, num_buckets))
        elif max_distance <= own // 2:
            problems.append(must_be("max_distance", f"more than {own // 2}", max_distance))
        if problems:
            raise all_problems("RelativeBias", problems)
        self.num_heads = num_heads
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = nn.Embedding(num_buckets, num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(
        self, q_positions: Int[Tensor, "*batch q_len"], k_positions: Int[Tensor, "*batch kv_len"]
    ) -> Float[Tensor, "batch_or_1 num_heads q_len kv_len"]:
        """The bias for ``attend``.

        Args:
            q_positions: Absolute position of each query, one row for all batch rows or one each.
            k_positions: Absolute position of each key, the same.

        Returns:
            A dense bias in the dtype of the table: quadratic memory.
        """
        bias: Tensor = self.table(self._buckets(_offsets(q_positions, k_positions)))
        return bias.permute(0, 3, 1, 2)

    def _buckets(self, offset: Int[Tensor, "rows q_len kv_len"]) -> Int[Tensor, "rows q_len kv_len"]:
        own = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        after = (offset > 0).long() * own if self.bidirectional else torch.zeros_like(offset)
        distance = offset.abs() if self.bidirectional else (-offset).clamp(min=0)
        near = own // 2
        share = (distance.clamp(min=1).float() / near).log() / math.log(self.max_distance / near)
        far = (near + (share * (own - near)).long()).clamp(max=own - 1)
        return after + torch.where(distance < near, distance, far)

    def extra_repr(self) -> str:
        """Show the buckets in ``print(module)``."""
        return f"num_buckets={self.num_buckets}, max_distance={self.max_distance}, bidirectional={self.bidirectional}"


def _offsets(
    q_positions: Int[Tensor, "*batch q_len"], k_positions: Int[Tensor, "*batch kv_len"]
) -> Int[Tensor, "batch_or_1 q_len kv_len"]:
    """How far after each query each key stands."""
    offsets = k_positions[..., None, :] - q_positions[..., :, None]
    return offsets if offsets.dim() == 3 else offsets[None]
