"""Importing regard is cheap, and its light packages stay light."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import regard


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    return set(json.loads(_python(code)))


def test_regard_loads_nothing_heavy() -> None:
    assert _loaded_by("import regard; dir(regard); regard.__version__").isdisjoint(
        {"torch", "numpy", "transformers", "rich", "cyclopts", "jaxtyping"}
    )


def test_the_check_above_sees_torch_when_a_name_needs_it() -> None:
    assert "torch" in _loaded_by("import regard; regard.Causal")


LIGHT = ["regard.errors", "regard.records", "regard.text", "regard.view", "regard.train.metrics"]


@pytest.mark.parametrize("package", LIGHT)
def test_light_packages_do_not_load_torch(package: str) -> None:
    assert _loaded_by(f"import {package}").isdisjoint({"torch", "transformers"})


def test_watching_does_not_load_transformers() -> None:
    assert "transformers" not in _loaded_by("import regard; regard.watch")


def test_import_takes_milliseconds() -> None:
    # Processor time, and the least of several fresh processes: other work on the machine can only add to it.
    code = "import time; start = time.process_time(); import regard; print(time.process_time() - start)"
    assert min(float(_python(code)) for _ in range(5)) < 0.05


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'atend'"):
        regard.atend  # noqa: B018
