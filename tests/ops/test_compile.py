"""torch.compile(fullgraph=True) and torch.export take the public functions (DESIGN §2, Backends; cases D7, H7)."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compiled.py")
CASES = [
    node.name
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(getattr(mark, "id", "") == "case" for mark in node.decorator_list)
]


@pytest.fixture(scope="module")
def results() -> dict[str, str | None]:
    """One process for all cases: importing torch and its compiler takes longer than most of them."""
    import regard

    source = str(Path(regard.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.xdist_group("compile")
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, results: dict[str, str | None]) -> None:
    assert results[case] is None, results[case]
