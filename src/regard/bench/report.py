"""What was found, as values and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from regard.bench.rows import Row, Target
from regard.bench.timing import Spread

SCHEMA = 1
"""Version of the JSON; grows when a field changes its meaning or goes."""

Status = Literal["measured", "disagrees", "refused", "skipped"]
"""measured: there are figures. disagrees: the result is wrong, so nothing is timed. refused: the backend that was asked
for cannot take the call. skipped: it cannot run here, or not now."""


@dataclass(frozen=True)
class PeerResult:
    """A peer of a row.

    Args:
        name: The peer.
        status: Whether there are figures.
        reason: Why not.
        seconds: Per call.
        speedup: The peer's time over regard's: of the medians, and the quartiles over the rounds.
        bytes: Per token and head, for memory rows.
    """

    name: str
    status: Status
    reason: str | None = None
    seconds: Spread | None = None
    speedup: Spread | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a target is met: the target, the limit that applies here, and what was measured."""

    target: Target
    limit: float
    value: float
    met: bool


@dataclass(frozen=True)
class RowResult:
    """A row of the table, measured.

    Args:
        row: What was asked.
        status: Whether there are figures of regard.
        reason: Why not.
        threads: Of torch.
        backend: Which served; the one that was asked for where none did.
        because: Why that one.
        rounds: How many samples each side gave.
        seconds: Per call of regard.
        bytes: Per token and head, for memory rows.
        peers: What regard is compared with.
        verdicts: One for each target that applies here and has a figure.
        other_cpu: CPUs that other processes used meanwhile; None where the system does not tell.
    """

    row: Row
    status: Status
    reason: str | None = None
    threads: int | None = None
    backend: str | None = None
    because: str | None = None
    rounds: int = 0
    seconds: Spread | None = None
    bytes: float | None = None
    peers: tuple[PeerResult, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    other_cpu: float | None = None

    @property
    def wrong(self) -> bool:
        """Whether some side computed something else."""
        return self.status == "disagrees" or any(peer.status == "disagrees" for peer in self.peers)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        fields = asdict(self)
        row = fields.pop("row")
        return {"name": self.row.name, **row, **fields}  # the threads that were used, not those the row fixes


@dataclass(frozen=True)
class Report:
    """A whole run: its setting and its rows."""

    setting: dict[str, Any]
    results: tuple[RowResult, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON; see docs/reference/bench.md for the fields."""
        return {"schema": SCHEMA, "setting": self.setting, "rows": [result.to_json() for result in self.results]}

    @property
    def wrong(self) -> bool:
        """Whether some side of some row computed something else."""
        return any(result.wrong for result in self.results)
