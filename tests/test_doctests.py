"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src"
MODULES = [
    ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    for path in sorted(SOURCES.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module_run(name: str) -> None:
    module = import_module(name)
    # The shape checker of the tests wraps functions; what it wraps still belongs to its module.
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"__name__": name})
    examples = [test for test in found if test.examples]
    assert examples, f"{name} has examples that doctest does not find"
    runner = doctest.DocTestRunner()
    for test in examples:
        report: list[str] = []
        assert runner.run(test, out=report.append).failed == 0, "".join(report)
