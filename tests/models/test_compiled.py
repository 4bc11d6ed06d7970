"""torch.compile(fullgraph=True) takes every recurrent and convolutional model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiling import cases_of, results_of

SCRIPT = Path(__file__).with_name("compiled.py")


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return results_of(SCRIPT)


@pytest.mark.parametrize("case", cases_of(SCRIPT))
def test_compiled(case: str, results: dict[str, str | None]) -> None:
    assert results[case] is None, results[case]
