"""torch.compile(fullgraph=True) and torch.export take the public functions (DESIGN §2, Backends; cases D7, H7)."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.compiling import cases_of, results_of

SCRIPT = Path(__file__).with_name("compiled.py")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
PYTHON_HEADER = Path(sysconfig.get_path("include"), "Python.h")


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    return results_of(SCRIPT)


@pytest.mark.parametrize("case", cases_of(SCRIPT))
def test_compiled(case: str, results: dict[str, str | None]) -> None:
    if case == "inductor" and not (COMPILER and PYTHON_HEADER.exists()):
        pytest.skip("needs a C++ compiler and Python's headers (g++, python3-dev)")
    assert results[case] is None, results[case]
