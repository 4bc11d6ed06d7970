"""Dropout whose mask comes from a counter instead of a serial generator: as fast as the arithmetic around it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, message, must_be

_BLOCK = 64  # elements that share a threshold: eight words of eight bytes
_STEP = -7046029254386353131  # odd, close to 2⁶⁴ / golden ratio: what the counter advances by
_MIXERS = ((30, -4658895280553007687), (27, -7723592293110705685), (31, None))


class Dropout(nn.Module):
    """Zero each element with probability p in training, and scale the others by 1 / (1 − p).

    Args:
        p: Share that is dropped.

    Raises:
        ConfigError: if ``p`` is not between 0 and 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        _check(p)
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Drop in training; in evaluation return ``x`` itself."""
        return dropout(x, self.p, training=self.training)

    def extra_repr(self) -> str:
        """Show the share in ``print(module)``."""
        return f"p={self.p}"


def dropout(
    x: Float[Tensor, "..."], p: float, *, training: bool = True, seed: Int[Tensor, ""] | None = None
) -> Float[Tensor, "..."]:
    """Zero each element with probability p, and scale the others by 1 / (1 − p).

        output = x · keep / (1 − p),   keep = byte of hash(seed, element) ≥ threshold

    Args:
        x: Any shape.
        p: Share that is dropped.
        training: Otherwise ``x`` is returned as it is.
        seed: One int64; the same seed drops the same elements of the same shape. By default one number drawn from
            torch's generator, so that ``torch.manual_seed`` reproduces a run and checkpointing replays a mask.

    Returns:
        In the dtype of ``x``.

    Raises:
        ConfigError: if ``p`` is not between 0 and 1.

    Numerics:
        A byte is compared with a threshold that is ⌊256 p⌋ or one more, chosen for each block of 64 elements so that
        every element is dropped with probability p, to 2⁻²⁴. Elements of a block thereby have a correlation below 5e-5.

    Cost:
        One word hashed for eight elements; the mask is kept as floats for the gradient.
        ``torch.nn.functional.dropout`` draws every element in turn, on one thread.

    Source:
        Steele et al. 2014, "Fast Splittable Pseudorandom Number Generators" (the mixing function of SplitMix64).
    """
    _check(p)
    if not training or p == 0:
        return x
    if p == 1:
        return x * 0
    if seed is None:
        seed = torch.randint(2**62, (), device=x.device)
    keep = _keep(x.numel(), p, seed).view(x.shape)
    if x.dtype in (torch.float32, torch.float64):
        return x * keep.mul_(1 / (1 - p)).to(x.dtype)
    return x * keep.to(x.dtype) * (1 / (1 - p))  # one rounding of the scale would bias every element alike


def _keep(count: int, p: float, seed: Tensor) -> Float[Tensor, "count"]:
    """1.0 where an element stays, 0.0 where it is dropped."""
    blocks = (count + _BLOCK - 1) // _BLOCK
    words = torch.arange(blocks * (_BLOCK // 8), device=seed.device).mul_(_STEP).add_(seed)
    words = _mixed(words)
    low = int(p * 256)
    chance = _mixed(words[:: _BLOCK // 8] ^ _STEP) & 0xFFFF
    threshold = (chance < (p * 256 - low) * 65536) + float(low)
    bytes_ = words.view(torch.uint8).view(blocks, _BLOCK).to(torch.float32)
    return bytes_.ge_(threshold[:, None]).view(-1)[:count]


def _mixed(words: Tensor) -> Tensor:
    """A bijection on 64-bit words, in place, whose output bits look independent of the input's."""
    for shift, factor in _MIXERS:
        high = (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)
        words.bitwise_xor_(high)
        if factor is not None:
            words.mul_(factor)
    return words


def _check(p: float) -> None:
    if not isinstance(p, int | float) or isinstance(p, bool) or not 0 <= p <= 1:
        raise ConfigError(message("Dropout", must_be("p", "between 0 and 1", p)))
