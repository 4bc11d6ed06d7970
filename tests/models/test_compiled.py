"""torch.compile, torch.export and ONNX take every model; one script of cases for each half of them."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.compiling import cases_of, results_of

SCRIPTS = tuple(Path(__file__).with_name(name) for name in ("compiled.py", "compiled_recurrent.py"))
found = cache(results_of)


@pytest.mark.parametrize(("script", "case"), [(script, case) for script in SCRIPTS for case in cases_of(script)])
def test_compiled(script: Path, case: str) -> None:
    if case.startswith("onnx") and find_spec("onnxruntime") is None:
        pytest.skip("needs onnx, onnxscript and onnxruntime")
    assert found(script)[case] is None, found(script)[case]
