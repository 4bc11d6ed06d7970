"""README.md in this folder names, for every case, the tests that hold its right answer: all of them exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("README.md")
TESTS = LIST.parents[1]
HANDED = {
    "A": (
        *(1, 2, 5, 6, 7, 8, 10, 11, 12, 14, 16, 18, 19, 20, 22, 23, 25, 26, 28),
        *range(31, 39), 40, *range(42, 47), 48, 49,
    ),
    "B": (2, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17),
    "C": (2, 3, 4, 5, 7, 9, 11, 13, 15, 17, 18, 19, 22, 23, 24, 25, 26, 31),
    "D": (1, 2, 4, 5, 8, 10, 11, 12, 13, 15, 16, 18, 22, 23, 26, 27, 29, 30),
    "F": (1, 3, 4, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20),
}  # fmt: skip
ROWS = {"A": 13, "B": 8, "C": 5, "D": 7, "E": 8, "F": 11, "G": 9, "H": 9, "I": 7, "J": 7}
WITHOUT_A_TEST = {"Handed cases": set(), "Rows of the table": {"H9"}}


def sections() -> dict[str, list[tuple[str, list[str], str]]]:
    """Per section: id, the tests named, and the remark."""
    found: dict[str, list[tuple[str, list[str], str]]] = {}
    title = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
            found[title] = []
        elif line.startswith("- "):
            name, _, rest = line.removeprefix("- ").partition(":")
            names, _, remark = rest.partition(" — ")
            found[title].append((name, re.findall(r"`([^`]+::[^`]+)`", names), remark))
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    """The tests of a file, and the cases of a script that a test runs."""
    marked = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        node.name
        for node in marked
        if node.name.startswith("test_") or any(getattr(mark, "id", "") == "case" for mark in node.decorator_list)
    )


def test_every_case_has_its_line() -> None:
    found = {title: [name for name, _, _ in lines] for title, lines in sections().items()}
    assert found == {
        "Handed cases": [f"{group}{number:02}" for group, numbers in HANDED.items() for number in numbers],
        "Rows of the table": [f"{section}{n}" for section, count in ROWS.items() for n in range(1, count + 1)],
    }


@pytest.mark.parametrize("title", WITHOUT_A_TEST)
def test_every_named_test_exists(title: str) -> None:
    wrong = []
    for name, tests, remark in sections()[title]:
        for test in tests:
            file, _, function = test.partition("::")
            if not (TESTS / file).is_file() or function not in functions(TESTS / file):
                wrong.append(f"{name}: there is no {test}")
        if not tests and (name not in WITHOUT_A_TEST[title] or not remark):
            wrong.append(f"{name}: neither a test nor a reason")
    assert wrong == []
