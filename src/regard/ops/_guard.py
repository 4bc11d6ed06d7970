"""Keeps NaN and Inf behind the mask: products in which a masked pair contributes nothing at all.

In a plain matrix product a masked weight of 0 times a NaN value is NaN. Here a pair that is not allowed contributes
exactly 0, whatever it holds, and a pair that is allowed contributes what it is, NaN included.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def masked_product(
    left: Float[Tensor, "b h m n"], right: Float[Tensor, "b h n e"], allowed: Bool[Tensor, "#b #h m n"]
) -> Float[Tensor, "b h m e"]:
    """Σ_n left[m, n] · right[n, e] over the pairs (m, n) that are allowed.

    ``left`` must already be 0 where a pair is not allowed. Cost: a matrix product, and one outer product for each row
    of ``right`` that is not finite.
    """
    bad = ~right.isfinite().all(dim=3)
    product = left @ right.masked_fill(bad[..., None], 0)
    for n in bad.any(dim=0).any(dim=0).nonzero().flatten().tolist():
        part = left[..., n, None] * right[..., n, None, :]
        use = allowed[..., n, None] & bad[..., n, None, None]
        product = product + part.masked_fill(~use, 0)
    return product
