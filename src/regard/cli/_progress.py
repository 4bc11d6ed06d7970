"""Progress for anything that takes more than two seconds, with the time left, on stderr."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_PATIENCE = 2.0
_EVERY_ON_SCREEN = 0.2
_EVERY_IN_PIPE = 10.0


class Progress:
    """Counts steps of one piece of work; silent while it is quick.

    On a terminal one line is rewritten; into a pipe a plain line is printed every ten seconds.

        with Progress("layers", total=6) as progress:
            progress.step()

    Args:
        what: What the steps are.
        total: How many there will be; None when that is not known (then the time spent is shown).
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._screen = sys.stderr.isatty()
        self._finished = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Progress:
        self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        self._teller.join()

    def step(self, count: int = 1) -> None:
        """Say that ``count`` more steps are done."""
        self._done += count

    def line(self, now: float) -> str:
        """What is shown ``now`` seconds after the beginning."""
        if self._total is None or self._done == 0:
            return f"{self._what}: {now:.0f} s"
        left = now / self._done * max(self._total - self._done, 0)
        return f"{self._what}: {self._done} of {self._total}, about {left:.0f} s left"

    def _tell(self) -> None:
        began = time.monotonic()
        wait = _PATIENCE
        while not self._finished.wait(wait):
            text = self.line(time.monotonic() - began)
            sys.stderr.write(f"\r{text}\x1b[K" if self._screen else f"{text}\n")
            sys.stderr.flush()
            wait = _EVERY_ON_SCREEN if self._screen else _EVERY_IN_PIPE
        if self._screen and wait != _PATIENCE:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
