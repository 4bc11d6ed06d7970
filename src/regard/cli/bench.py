"""``regard bench``: attention beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def bench(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    only: str | None = None,
    threads: int | None = None,
    backend: str = "auto",
    device: str = "cpu",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Measure attention beside its peers, in turn in one process, and print medians and quartiles.

    Both sides of a row must have computed the same before anything is timed. Exit code 1: some side did not.

    Parameters
    ----------
    quick
        The short rows only, without FlexAttention: ends in 40 seconds.
    only
        Rows whose name has this in it, such as causal, observed or bf16/*/1x12x2048.
    threads
        Threads of torch; as many as torch chooses by default.
    backend
        Who computes regard's side: auto (default), or a backend by name.
    device
        Where: cpu (default), or cuda.
    out
        Keep the figures as JSON in this file.
    """
    from regard.cli._benching import run

    return run(quick=quick, only=only, threads=threads, backend=backend, device=device, out=out)
