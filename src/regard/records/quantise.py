"""Weights in one byte each: maps of bin means, on a logarithmic scale."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from regard.errors import ShapeError, message, must_be

FLOOR_LOG2 = -24
STEP = 24 / 254  # so that 255 is exactly 1

#: |decoded − w| ≤ RELATIVE_ERROR · w for w in [2^FLOOR_LOG2, 1]; smaller positive weights decode to 2^FLOOR_LOG2.
RELATIVE_ERROR = 2 ** (STEP / 2) - 1


def quantise(weights: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    """Weights of [0, 1] in one byte each.

        0 ↔ exactly 0;    v > 0 ↔ 2^(FLOOR_LOG2 + (v − 1) · STEP)

    Numerics:
        Within ``RELATIVE_ERROR`` (3.4 %) from 2^FLOOR_LOG2 to 1; a smaller positive weight becomes 1, never 0. What
        rounding put above 1 becomes 255. NaN, for which a byte has no room, becomes 0: whoever calls says so.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.rint((np.log2(weights.astype(np.float64)) - FLOOR_LOG2) / STEP) + 1
    levels: np.ndarray = np.where(weights > 0, np.clip(level, 1, 255), 0).astype(np.uint8)
    return levels


def restore(levels: UInt8[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """The weights that bytes stand for."""
    table = np.exp2(FLOOR_LOG2 + (np.arange(256) - 1.0) * STEP)
    table[0] = 0
    values: np.ndarray = table.astype(np.float32)[levels]
    return values


def pool(weights: Float[np.ndarray, "*batch q k"], *, rows: int, cols: int) -> Float64[np.ndarray, "*batch rows cols"]:
    """A small map of exact weights, as the ``HeatMap`` probe defines it.

        map[r, c] = mean over queries i in bin r of (sum over keys j in bin c of w[i, j]),
        query i in bin ⌊i · rows / q⌋, key j in bin ⌊j · cols / k⌋

    A row of the map sums to the mean mass of its queries. Bins without queries are 0.

    Args:
        weights: Exact weights.
        rows: Query bins.
        cols: Key bins.

    Raises:
        ShapeError: ``rows`` or ``cols`` is less than 1.
    """
    if rows < 1 or cols < 1:
        raise ShapeError(message("pool", must_be("rows and cols", "at least 1", f"{rows} and {cols}")))
    by_key = _sum_bins(weights.astype(np.float64), cols, axis=-1)
    return _mean_bins(by_key, np.ones(weights.shape[-2]), rows)


def pool_map(
    heat_map: Float[np.ndarray, "*batch r c"], *, q_len: int, rows: int, cols: int
) -> Float64[np.ndarray, "*batch rows cols"]:
    """A smaller map of a map: exact where ``rows`` divides r and ``cols`` divides c, else up to one old bin off.

    Args:
        heat_map: A map of ``q_len`` queries.
        q_len: How many queries it holds; tells how many lie in each bin.
        rows: Query bins of the result.
        cols: Key bins of the result.

    Raises:
        ShapeError: The new sizes are larger than the old, or less than 1.
    """
    old_rows, old_cols = heat_map.shape[-2:]
    if not (1 <= rows <= old_rows and 1 <= cols <= old_cols):
        expected = f"from 1 to {old_rows} and {old_cols}"
        raise ShapeError(message("pool_map", must_be("rows and cols", expected, f"{rows} and {cols}")))
    counts = np.bincount(np.arange(q_len) * old_rows // max(q_len, 1), minlength=old_rows).astype(np.float64)
    return _mean_bins(_sum_bins(heat_map.astype(np.float64), cols, axis=-1), counts, rows)


def _sum_bins(values: Float64[np.ndarray, "*shape"], bins: int, *, axis: int) -> Float64[np.ndarray, "*binned"]:
    """Sums over ``bins`` even bins along an axis; bins without entries are 0."""
    length = values.shape[axis]
    edges = -(
        -np.arange(bins + 1) * length // bins
    )  # first index of every bin: the least j with ⌊j · bins / length⌋ = bin
    filled = edges[:-1] < edges[1:]
    shape = list(values.shape)
    shape[axis] = bins
    result = np.zeros(shape)
    if length:
        np.moveaxis(result, axis, 0)[filled] = np.moveaxis(
            np.add.reduceat(values, edges[:-1][filled], axis=axis), axis, 0
        )
    return result


def _mean_bins(
    values: Float64[np.ndarray, "*batch q c"], counts: Float64[np.ndarray, "q"], bins: int
) -> Float64[np.ndarray, "*batch bins c"]:
    """Means over ``bins`` even bins of the rows, each row counting for ``counts`` queries."""
    total = _sum_bins(counts, bins, axis=0)
    used = np.where(counts[:, None] > 0, values * counts[:, None], 0)  # an empty row counts for nothing, NaN or not
    means: np.ndarray = _sum_bins(used, bins, axis=-2) / np.maximum(total, 1)[:, None]
    return means
