"""What ``regard bench`` runs: attention beside its peers, in one process, equal before it is timed."""

from regard.bench.report import PeerResult, Report, RowResult, Verdict
from regard.bench.rows import ROWS, Row, Shape, Target, select
from regard.bench.runner import QUICK_SECONDS, Plan, measure_rows
from regard.bench.setting import setting
from regard.bench.table import print_report
from regard.bench.timing import BUSY, OtherProcesses, Spread, interleave

__all__ = [
    "BUSY",
    "QUICK_SECONDS",
    "ROWS",
    "OtherProcesses",
    "PeerResult",
    "Plan",
    "Report",
    "Row",
    "RowResult",
    "Shape",
    "Spread",
    "Target",
    "Verdict",
    "interleave",
    "measure_rows",
    "print_report",
    "select",
    "setting",
]
