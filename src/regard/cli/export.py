"""``regard export``: a trained model as one ONNX file."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def export(model: str, /, *, out: Annotated[str, Parameter(name=["--out", "-o"])]) -> int:
    """Write a trained model as ONNX, and check that the file computes the same.

    Parameters
    ----------
    model
        The folder that `regard train` made.
    out
        The file, ending in .onnx.
    """
    from regard.cli._progress import Progress
    from regard.tasks import export as write

    with Progress("exporting"):
        found = write(model, out)
    print(f"exported: {found}")
    return 0
