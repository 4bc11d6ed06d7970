"""Rotary positions: queries and keys turned by angles that grow with their positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, ShapeError, all_problems, message, must_be
from regard.nn.options import is_number, is_whole
from regard.ops.transforms import in_transform


class Turns(NamedTuple):
    """Cosines and sines of the angles of some positions.

    Args:
        cos: One for each pair of coordinates; [length, pairs], or [batch, 1, length, pairs].
        sin: The same.
    """

    cos: Float[Tensor, "... length pairs"]
    sin: Float[Tensor, "... length pairs"]


class Scaling:
    """How a model that was trained on short texts is stretched to longer ones: a change of its frequencies."""

    attention_factor: float = 1.0

    def frequencies(self, dim: int, base: float, longest: Int[Tensor, ""]) -> Float[Tensor, "pairs"]:
        """Angle per position of every pair, in float64.

        Args:
            dim: Width that is turned.
            base: How fast frequencies fall.
            longest: One more than the highest position of the call.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LinearScaling(Scaling):
    """All positions divided by a factor: frequency_i = base^(−2i / dim) / factor.

    Args:
        factor: How much longer texts are to be.

    Raises:
        ConfigError: if ``factor`` is less than 1.

    Source:
        Chen et al. 2023, "Extending Context Window of Large Language Models via Position Interpolation",
        arXiv:2306.15595.
    """

    factor: float

    def __post_init__(self) -> None:
        _need(type(self).__name__, {"factor": self.factor >= 1 or "at least 1"}, self)

    def frequencies(self, dim: int, base: float, longest: Tensor) -> Tensor:
        """Angle per position of every pair."""
        return _frequencies(dim, base, longest.device) / self.factor


@dataclass(frozen=True)
class DynamicScaling(Scaling):
    """A base that grows once a text is longer than those of training.

        base′ = base · (factor · length / max_len − (factor − 1))^(dim / (dim − 2))       for length > max_len

    With a cache, keys keep the angles of the call that brought them: beyond ``max_len`` decoding step by step differs
    from reading all at once.

    Args:
        factor: How much longer texts are to be.
        max_len: Longest text of training.

    Raises:
        ConfigError: if a number is out of range.

    Source:
        The "dynamic NTK" of r/LocalLLaMA, 2023, as transformers has it.
    """

    factor: float
    max_len: int

    def __post_init__(self) -> None:
        checks = {"factor": self.factor >= 1 or "at least 1", "max_len": self.max_len >= 1 or "at least 1"}
        _need(type(self).__name__, checks, self)

    def frequencies(self, dim: int, base: float, longest: Tensor) -> Tensor:
        """Angle per position of every pair."""
        length = longest.clamp(min=self.max_len).double()
        stretch = self.factor * length / self.max_len - (self.factor - 1)
        pair = torch.arange(dim // 2, device=longest.device, dtype=torch.float64)
        return (base * stretch ** (dim / (dim - 2))) ** (-2 * pair / dim)


@dataclass(frozen=True)
class YarnScaling(Scaling):
    """Fast pairs as they were, slow pairs divided by a factor, a ramp between; scores made a little sharper.

        frequency_i = base^(−2i / dim) · ((1 − ramp_i) + ramp_i / factor)

    ``ramp`` rises from 0, for pairs that turn ``beta_fast`` times within ``max_len``, to 1, for those that turn
    ``beta_slow`` times. Cosines and sines are multiplied by 0.1 · ln(factor) + 1.

    Args:
        factor: How much longer texts are to be.
        max_len: Longest text of training.
        beta_fast: Turns from which on a pair is left as it was.
        beta_slow: Turns up to which a pair is divided.

    Raises:
        ConfigError: if a number is out of range.

    Source:
        Peng et al. 2023, arXiv:2309.00071, section 3.
    """

    factor: float
    max_len: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def __post_init__(self) -> None:
        checks = {
            "factor": self.factor >= 1 or "at least 1",
            "max_len": self.max_len >= 1 or "at least 1",
            "beta_fast": self.beta_fast > self.beta_slow > 0 or f"above beta_slow ({self.beta_slow}), which is above 0",
        }
        _need(type(self).__name__, checks, self)

    @property
    def attention_factor(self) -> float:  # type: ignore[override]
        """What cosines and sines are multiplied by."""
        return 0.1 * math.log(self.factor) + 1

    def frequencies(self, dim: int, base: float, longest: Tensor) -> Tensor:
        """Angle per position of every pair."""
        plain = _frequencies(dim, base, longest.device)
        low = max(math.floor(self._pair_that_turns(self.beta_fast, dim, base)), 0)
        high = min(math.ceil(self._pair_that_turns(self.beta_slow, dim, base)), dim - 1)
        pair = torch.arange(dim // 2, device=longest.device, dtype=torch.float64)
        ramp = ((pair - low) / (high - low if high > low else 0.001)).clamp(0, 1)
        return plain * (1 - ramp) + plain / self.factor * ramp

    def _pair_that_turns(self, times: float, dim: int, base: float) -> float:
        return dim * math.log(self.max_len / (times * 2 * math.pi)) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3Scaling(Scaling):
    """Short waves as they were, long waves divided by a factor, a smooth change between.

    A pair whose wavelength is below ``max_len / high_freq_factor`` stays, one above ``max_len / low_freq_factor`` is
    divided by ``factor``.

    Args:
        factor: How much longer texts are to be.
        max_len: Longest text of training.
        low_freq_factor: Waves of training texts below which a pair is divided.
        high_freq_factor: Waves of training texts above which a pair stays.

    Raises:
        ConfigError: if a number is out of range.

    Source:
        Llama 3.1, as its authors' code has it.
    """

    factor: float
    max_len: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        above = self.high_freq_factor > self.low_freq_factor > 0
        checks = {
            "factor": self.factor >= 1 or "at least 1",
            "max_len": self.max_len >= 1 or "at least 1",
            "high_freq_factor": above or f"above low_freq_factor ({self.low_freq_factor}), which is above 0",
        }
        _need(type(self).__name__, checks, self)

    def frequencies(self, dim: int, base: float, longest: Tensor) -> Tensor:
        """Angle per position of every pair."""
        plain = _frequencies(dim, base, longest.device)
        waves = self.max_len * plain / (2 * math.pi)
        stay = ((waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return plain * stay + plain / self.factor * (1 - stay)


class Rotary(nn.Module):
    """Rotary position embedding: turns pairs of a head's coordinates by an angle that grows with the position.

        angle_i = position · base^(−2i / dim),   (x_i, x_{i + dim/2}) turned by angle_i      for i < dim/2

    Scores of rotated queries and keys depend on the difference of their positions only.

    Args:
        dim: Coordinates of a head that are turned; even. A head may be wider: the rest stays as it is.
        base: How fast frequencies fall.
        interleaved: Pair neighbours (x_{2i}, x_{2i+1}) instead of halves.
        scaling: A change of the frequencies for texts longer than those of training.

    Raises:
        ShapeError: if ``dim`` is odd.
        ConfigError: if ``base`` is not above 1, or ``scaling`` is none.

    Numerics:
        Angles in float64, sine and cosine rounded to float32: there is no buffer that ``module.to(bfloat16)`` could
        round.

    Source:
        Su et al. 2021, arXiv:2104.09864, equation 34.
    """

    def __init__(
        self, dim: int, *, base: float = 10_000.0, interleaved: bool = False, scaling: Scaling | None = None
    ) -> None:
        super().__init__()
        if not is_whole(dim) or dim < 2 or dim % 2:
            raise ShapeError(message("Rotary", must_be("dim", "even and at least 2", repr(dim))))
        if not is_number(base) or not base > 1:
            raise ConfigError(message("Rotary", must_be("base", "above 1", repr(base))))
        if not isinstance(scaling, Scaling | None):
            expected = "LinearScaling, DynamicScaling, YarnScaling, Llama3Scaling or None"
            raise ConfigError(message("Rotary", must_be("scaling", expected, f"a {type(scaling).__name__}")))
        if isinstance(scaling, DynamicScaling) and dim == 2:
            raise ShapeError(message("Rotary", must_be("dim", "at least 4 for DynamicScaling", dim)))
        self.dim, self.base, self.interleaved, self.scaling = dim, base, interleaved, scaling

    def forward(
        self,
        x: Float[Tensor, "batch heads length head_dim"],
        positions: Int[Tensor, "length"] | Int[Tensor, "batch length"],
    ) -> Float[Tensor, "batch heads length head_dim"]:
        """Rotate queries or keys.

        Args:
            x: Queries or keys.
            positions: Absolute position of each, one row for all batch rows or one each.

        Returns:
            The rotated tensor, in the dtype of ``x``.

        Raises:
            ShapeError: if the width is less than ``dim`` or positions do not fit.
        """
        if positions.dim() not in (1, 2) or positions.shape[-1] != x.shape[-2]:
            problem = must_be("positions", f"of length {x.shape[-2]}", f"of shape {tuple(positions.shape)}")
            raise ShapeError(message("Rotary", problem))
        return self.turn(x, self.turns(positions, torch.promote_types(x.dtype, torch.float32)))

    def turns(
        self, positions: Int[Tensor, "length"] | Int[Tensor, "batch length"], dtype: torch.dtype = torch.float32
    ) -> Turns:
        """Cosines and sines of positions, to turn queries and keys by the same ones."""
        if self.scaling is None:
            frequencies, factor = _frequencies(self.dim, self.base, positions.device), 1.0
        else:
            longest = positions.amax() + 1 if positions.numel() else positions.new_zeros(())
            frequencies = self.scaling.frequencies(self.dim, self.base, longest)
            factor = self.scaling.attention_factor
        angles = positions.double()[..., None] * frequencies
        angles = angles[:, None] if positions.dim() == 2 else angles
        return Turns((angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype))

    def turns_from(self, start: int, length: int, *, dtype: torch.dtype, device: torch.device) -> Turns:
        """``turns`` of consecutive positions; the last few are kept, as every layer of a model asks for the same."""
        dtype = torch.promote_types(dtype, torch.float32)
        if torch.compiler.is_compiling() or in_transform() or torch._C._len_torch_dispatch_stack() > 0:
            return self.turns(torch.arange(start, start + length, device=device), dtype)
        key = (self.dim, self.base, self.scaling)
        return _kept_turns(key, start, length, dtype, device, torch.is_inference_mode_enabled())

    def turn(
        self, x: Float[Tensor, "batch heads length head_dim"], turns: Turns
    ) -> Float[Tensor, "batch heads length head_dim"]:
        """Rotate by given angles.

        Raises:
            ShapeError: if the width is less than ``dim``.
        """
        if x.shape[-1] < self.dim:
            problem = must_be("x", f"of width {self.dim} or more", f"of shape {tuple(x.shape)}")
            raise ShapeError(message("Rotary", problem))
        cos, sin = turns
        wide = x[..., : self.dim].to(cos.dtype)
        if self.interleaved:
            first, second = wide[..., 0::2], wide[..., 1::2]
            turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
        else:
            first, second = wide.chunk(2, dim=-1)
            turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
        turned = turned.to(x.dtype)
        return turned if x.shape[-1] == self.dim else torch.cat((turned, x[..., self.dim :]), dim=-1)

    def extra_repr(self) -> str:
        """Show the settings in ``print(module)``."""
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"dim={self.dim}, base={self.base}, interleaved={self.interleaved}{scaling}"


@lru_cache(maxsize=16)
def _kept_turns(
    key: tuple[int, float, Scaling | None],
    start: int,
    length: int,
    dtype: torch.dtype,
    device: torch.device,
    inference: bool,
) -> Turns:
    """Cosines and sines of consecutive positions. They are never written to; ``inference`` tells modes apart."""
    dim, base, scaling = key
    with torch.no_grad():
        return Rotary(dim, base=base, scaling=scaling).turns(torch.arange(start, start + length, device=device), dtype)


def _frequencies(dim: int, base: float, device: torch.device) -> Float[Tensor, "pairs"]:
    pair = torch.arange(dim // 2, device=device, dtype=torch.float64)
    return base ** (-2 * pair / dim)


def _need(name: str, checks: Mapping[str, bool | str], values: object) -> None:
    """Raise one error for all checks that hold a reason in place of True."""
    wrong = {field: reason for field, reason in checks.items() if isinstance(reason, str)}
    if wrong:
        raise all_problems(name, [must_be(field, reason, getattr(values, field)) for field, reason in wrong.items()])
