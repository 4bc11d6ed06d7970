"""How torch.compile is tested: a script of cases in a process of its own, and the tests that read what it found.

The checks of tests/conftest.py (shape checker, poisoned buffers) break graphs, so cases cannot run where tests run;
and one process for all of them, because importing torch and its compiler takes longer than most cases.
A script registers functions with ``@case`` and ends in ``main()``; its tests ask ``cases_of`` and ``results_of``.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import Tensor

CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Register a case of the script that is running."""
    CASES[function.__name__] = function
    return function


def main() -> None:
    """Run every case; print one line of JSON: case → null, or what went wrong."""
    results: dict[str, str | None] = {}
    for name, function in CASES.items():
        try:
            function()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc(limit=-3)[-3000:]
    json.dump(results, sys.stdout)


def compare(function: Callable[..., Any], *args: Any, gradients: bool = False, backend: str = "aot_eager") -> None:
    """The compiled function, in one graph, gives what the function gives, forward and backward."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    if not gradients:
        torch.testing.assert_close(compiled(*args), function(*args))
        return
    results = []
    for run in (compiled, function):
        leaves = [a.detach().clone().requires_grad_() if is_float(a) else a for a in args]
        output = run(*leaves)
        wanted = [leaf for leaf in leaves if is_float(leaf)]
        results.append([output, *torch.autograd.grad(output.square().sum(), wanted)])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def is_float(value: Any) -> bool:
    """Whether a value can have a gradient."""
    return isinstance(value, Tensor) and value.is_floating_point()


def cases_of(script: Path) -> list[str]:
    """The cases of a script, without running it."""
    return [
        node.name
        for node in ast.parse(script.read_text()).body
        if isinstance(node, ast.FunctionDef) and any(getattr(mark, "id", "") == "case" for mark in node.decorator_list)
    ]


def results_of(script: Path) -> dict[str, str | None]:
    """Run a script: for each of its cases None, or what went wrong."""
    import regard

    paths = [str(Path(regard.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found
