"""What is gathered where nobody chose."""

from __future__ import annotations

from regard.ops import Entropy, FirstKeys, HeatMap, KeyMass, Probe, Rows, TopK

SHORT = 128  # up to this many tokens the exact weights are kept


def usual_probes(length: int, *, total: int | None = None) -> tuple[Probe, ...]:
    """Exact rows of a short text, a map and the largest weights of a long one.

    Args:
        length: How many tokens there are, or will be.
        total: For generation: the length the map must be ready for.
    """
    if length <= SHORT:
        return (Rows(), Entropy(), FirstKeys(1), KeyMass(), TopK(min(16, length)))
    return (Entropy(), TopK(16), FirstKeys(1), KeyMass(), HeatMap(256, 256, length=total))
