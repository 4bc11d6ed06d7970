"""Tables as the page shows them: of each row the largest numbers, or all of them where their order means something."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.records import Table

SHOWN = 6  # parts of a source that a row of several lists
_DIGITS = 4


def written(table: Table) -> dict[str, Any]:
    """A table for the payload.

    ``cells`` has for each row pairs [column, value]: every column in order where that means something, as with the
    patches of an image; else the largest ones first, without zeros, and those that the model chose.
    """
    whole = table.ordered or table.grid is not None
    return {
        "name": table.name,
        "note": table.note,
        "rows": list(table.rows),
        "columns": list(table.columns),
        "cells": [_all(row) if whole else _largest(row, table.chosen) for row in table.values],
        "ordered": table.ordered,
        "chosen": list(table.chosen),
        "grid": None if table.grid is None else list(table.grid),
    }


def _all(row: np.ndarray) -> list[tuple[int, float]]:
    return [(column, _rounded(value)) for column, value in enumerate(row)]


def _largest(row: np.ndarray, chosen: tuple[int, ...]) -> list[tuple[int, float]]:
    order = np.argsort(-row, kind="stable")
    kept = {*order[:SHOWN].tolist(), *chosen}
    return [(column, _rounded(row[column])) for column in order.tolist() if column in kept and row[column] > 0]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
