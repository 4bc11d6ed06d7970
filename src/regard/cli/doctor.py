"""``regard doctor``: what is installed, and whether it computes what it should."""

from __future__ import annotations


def doctor() -> int:
    """Say what is installed, and check that it computes what it should."""
    from regard.cli._checks import run

    return run()
