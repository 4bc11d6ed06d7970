"""How long ``import regard`` and ``regard --help`` take.

Import is the time inside the interpreter, start-up of Python taken off; help is the whole process. Runs alternate.

    python benchmarks/start_up.py [--repeats 20]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from setting import setting, write

IMPORT = "import time; start = time.perf_counter(); import regard; print(time.perf_counter() - start)"


def import_seconds() -> float:
    """Seconds of ``import regard`` in a fresh interpreter."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True).stdout)


def help_seconds() -> float:
    """Seconds of the whole process ``regard --help``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "regard", "--help"], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure both in turn and keep medians and quartiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    measures = {"import_regard": import_seconds, "regard_help": help_seconds}
    found: dict[str, list[float]] = {name: [] for name in measures}
    for measure in measures.values():
        measure()  # fill the file cache and write bytecode
    for _ in range(options.repeats):
        for name, measure in measures.items():
            found[name].append(measure())
    figures = {
        name: dict(zip(("quarter", "median", "three_quarters"), statistics.quantiles(times, n=4), strict=True))
        for name, times in found.items()
    }
    write("start_up", {**setting(repeats=options.repeats), "seconds": figures})


if __name__ == "__main__":
    main()
