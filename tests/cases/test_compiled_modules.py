"""torch.compile(fullgraph=True) and torch.export take modules that use regard (row H7 of the table of confusions)."""

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
    """One process for all cases, without shape checker and poisoned buffers: both break graphs."""
    import regard

    paths = [str(Path(regard.__file__).parents[1]), str(SCRIPT.parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.xdist_group("compile")
@pytest.mark.parametrize("case", CASES)
def test_compiled(case: str, results: dict[str, str | None]) -> None:
    assert results[case] is None, results[case]
