"""Pytest plugin of .ci/run: a skipped test is a failed test, with the reason it gave for skipping.

Loaded by ``-p no_skips``. In an ordinary run a missing browser or compiler skips what needs it; on the machine that
decides about a change, nothing may be missing.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    where, line, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
    report.outcome = "failed"
    report.longrepr = f"{where}:{line}: no test may be skipped here. {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
