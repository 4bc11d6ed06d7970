"""Numbers between parts that a person can name: which words of a source each word of a translation came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """What a page shows first.

    Rows are parts of what was written or asked, columns parts of what was read.

    Args:
        name: What it shows, such as ``"Word alignment"``.
        note: How the numbers were made.
        rows: Names of the rows, such as the words that were written.
        columns: Names of the columns, such as the words that were read.
        values: One number for each row and column, 0 or more; float32 or float64.
        ordered: Whether all columns are to be shown in their order, such as the sentences of a text; else, of each row,
            the largest.
        chosen: Columns that the model chose, such as the sentences of a summary.
        grid: Rows and columns of an image's patches, where the columns are those, row by row.
    """

    name: str
    note: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float[np.ndarray, "rows columns"]
    ordered: bool = False
    chosen: tuple[int, ...] = ()
    grid: tuple[int, int] | None = None

    def problems(self) -> Iterator[str]:
        """What contradicts something else in it, as sentences."""
        wanted = (len(self.rows), len(self.columns))
        if self.values.dtype.name not in ("float32", "float64") or self.values.shape != wanted:
            shown = f"{self.values.dtype} {self.values.shape}"
            yield f"values must be float32 or float64 of the shape {wanted}, but is {shown}"
        elif not (np.isfinite(self.values) & (self.values >= 0)).all():
            yield "values must be finite and not negative, but some are not"
        if wrong := [column for column in self.chosen if not 0 <= column < len(self.columns)]:
            yield f"chosen must name columns from 0 to {len(self.columns) - 1}, but names {wrong}"
        if self.grid is not None and (min(self.grid) < 1 or self.grid[0] * self.grid[1] != len(self.columns)):
            yield f"grid must hold {len(self.columns)} patches, but is {self.grid[0]} by {self.grid[1]}"
