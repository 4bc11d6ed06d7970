"""``python -m regard``, and the command ``regard``."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line of this process.

    Returns:
        The exit code; 130 when interrupted, also while the first modules are still being read.
    """
    try:
        from regard.cli.app import main

        return main()
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr or sys.stdout)
        return 130


if __name__ == "__main__":
    sys.exit(run())
