"""A report as a person reads it: a table on a terminal, aligned plain lines into a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from regard.bench.report import PeerResult, Report, RowResult, Verdict
from regard.bench.timing import BUSY, Spread

HEADER = ("row", "served by", "regard", "peer", "peer's", "speed-up", "target")
_SIGNS = {"speedup": "≥", "time": "≤", "overhead_us": "≤", "bytes": "≤"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print a report; without frames, colours and line breaks when the output is not a terminal."""
    console = console or Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        for line in lines(report):
            console.print(line)
        return
    console.print(_title(report), style="bold")
    table = Table(*HEADER, header_style="dim")
    for cells, result in _rows(report.results):
        short = any(not verdict.met for verdict in result.verdicts)
        table.add_row(*cells, style="red" if result.wrong else "yellow" if short else None)
    console.print(table)
    for line in _notes(report):
        console.print(line, style="dim")


def lines(report: Report) -> list[str]:
    """A report as plain lines: title, aligned columns, notes."""
    rows = [HEADER, *(cells for cells, _ in _rows(report.results))]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [_title(report), *table, *_notes(report)]


def _title(report: Report) -> str:
    where = report.setting
    parts = [
        where["device"] if where["device"] != "cpu" else where["processor"] or where["machine"],
        f"kernels {where['isa']}" if where["isa"] else None,
        f"{where['threads']} threads",
        f"torch {where['torch']}",
        f"regard {where['regard']}" + (f" ({where['commit']})" if where["commit"] else ""),
    ]
    return " · ".join(part for part in parts if part)


def _rows(results: Sequence[RowResult]) -> Iterator[tuple[tuple[str, ...], RowResult]]:
    for result in results:
        head = (result.row.name, result.backend or "–", _own(result))
        own = [verdict for verdict in result.verdicts if not verdict.target.peer]
        if not result.peers:
            yield (*head, "", "", "", _targets(own)), result
        for number, peer in enumerate(result.peers):
            verdicts = [verdict for verdict in result.verdicts if verdict.target.peer == peer.name]
            cells = (
                peer.name,
                _theirs(peer),
                _ratio(peer.speedup),
                _targets([*(own if number == 0 else []), *verdicts]),
            )
            yield (*(head if number == 0 else ("", "", "")), *cells), result


def _own(result: RowResult) -> str:
    if result.bytes is not None:
        return _bytes(result.bytes)
    return _time(result.seconds) if result.seconds is not None else _why(result)


def _theirs(peer: PeerResult) -> str:
    if peer.bytes is not None:
        return _bytes(peer.bytes)
    return _time(peer.seconds) if peer.seconds is not None else _why(peer)


def _why(result: RowResult | PeerResult) -> str:
    return f"{result.status}: {result.reason}"


def _time(seconds: Spread) -> str:
    unit, factor = next((unit for unit in _UNITS if seconds.median * unit[1] >= 1), _UNITS[-1])
    quarter, median, three = (
        _three(number * factor) for number in (seconds.quarter, seconds.median, seconds.three_quarters)
    )
    return f"{median} {unit} ({quarter}–{three})"


_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def _ratio(speedup: Spread | None) -> str:
    if speedup is None:
        return "–"
    return f"{_three(speedup.median)}× ({_three(speedup.quarter)}–{_three(speedup.three_quarters)})"


def _three(number: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _bytes(count: float) -> str:
    return f"{count:.0f} B per token and head"


def _targets(verdicts: Sequence[Verdict]) -> str:
    return ", ".join(map(_target, verdicts))


def _target(verdict: Verdict) -> str:
    measure, limit = verdict.target.measure, verdict.limit
    units = {
        "speedup": f"{limit:g}×",
        "time": f"{limit:g}× its time",
        "overhead_us": f"{limit:g} µs over",
        "bytes": f"{limit:g} B",
    }
    found = {"speedup": f"{verdict.value:.2f}×", "time": f"{verdict.value:.2f}×"}.get(measure, f"{verdict.value:.0f}")
    return f"{_SIGNS[measure]} {units[measure]}: {found} {'met' if verdict.met else 'short'}"


def _notes(report: Report) -> list[str]:
    busy = [
        f"other processes used {result.other_cpu:.2f} CPU during {result.row.name}: its times are doubtful"
        for result in report.results
        if result.other_cpu is not None and result.other_cpu > BUSY
    ]
    return ["median per call (quartiles); speed-up: the peer's time over regard's (quartiles over the rounds)", *busy]
