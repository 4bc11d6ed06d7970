"""docs/coverage.md: every idea has its row, what a row names exists, and only what is listed here is "not yet"."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "coverage.md"
IDEAS = (
    "self-attention in steps",
    "query, key and value",
    "scaling",
    "softmax",
    "weighted sum",
    "padding mask",
    "causal mask",
    "window mask",
    "prefix and document masks",
    "several heads",
    "grouped heads",
    "cross-attention",
    "attention sinks",
    "additive attention (Bahdanau)",
    "dot attention (Luong)",
    "dropout",
    "order needs positions",
    "sinusoidal positions",
    "learned positions",
    "rotary positions",
    "ALiBi",
    "relative biases",
    "residuals and norms",
    "feed-forward",
    "encoder",
    "decoder",
    "encoder–decoder",
    "masked-LM pre-training",
    "teaching code",
    "text generation",
    "key–value cache",
    "beam search",
    "complexity and linear memory",
    "recurrent models",
    "convolutional models",
    "recurrent limits",
    "convolutional limits",
    "translation",
    "summarisation",
    "sentiment",
    "question answering",
    "vision",
    "image captioning",
    "speech",
    "agents",
    "interpretability",
    "attention as explanation",
)
NOT_YET = {
    "recurrent limits",
    "translation",
    "sentiment",
    "speech",
    "agents",
}


class Row(NamedTuple):
    """One line of a table: the idea, the sentence, (name, link) pairs of the code, and tests."""

    idea: str
    sentence: str
    code: list[tuple[str, str]]
    tests: list[str]
    not_yet: bool


def rows(page: str) -> list[Row]:
    found = []
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("| idea |"):
            idea, sentence, code, shown = (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))
            links = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", code)
            tests = re.findall(r"`([^`]+)`", shown)
            found.append(Row(idea, sentence, links, tests, shown == "not yet"))
    return found


@cache
def defined(path: Path) -> frozenset[str]:
    """Functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, kinds))


def problems(page: str) -> list[str]:
    """What is wrong with a page, one line each."""
    found, wrong = rows(page), []
    ideas = [row.idea for row in found]
    wrong += [f"{idea}: no row" for idea in IDEAS if idea not in ideas]
    wrong += [f"{idea}: not in the list of this test" for idea in ideas if idea not in IDEAS]
    wrong += [f"{idea}: twice" for idea in set(ideas) if ideas.count(idea) > 1]
    for row in found:
        if row.not_yet != (row.idea in NOT_YET):
            wrong.append(f"{row.idea}: not yet, or yet? this test says otherwise")
        if not row.sentence:
            wrong.append(f"{row.idea}: no sentence")
        if not row.not_yet and not (row.code and row.tests):
            wrong.append(f'{row.idea}: neither code and a test nor "not yet"')
        for name, link in row.code:
            path = (DOCS / link).resolve()
            if not path.is_file() or name not in defined(path):
                wrong.append(f"{row.idea}: there is no {name} in {link}")
        for test in row.tests:
            file, _, name = test.partition("::")
            path = DOCS.parent / file
            if not path.is_file() or not name.startswith("test_") or name not in defined(path):
                wrong.append(f"{row.idea}: there is no {test}")
    return wrong


def test_every_idea_has_its_row_and_every_row_is_true() -> None:
    assert problems(PAGE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("said", "instead", "wrong"),
    [
        ("| softmax |", "| softmaxx |", "softmax: no row"),
        ("::test_rows_of_weights_sum_to_one_less_the_sinks_share", "::test_nothing", "softmax: there is no tests/ops"),
        (
            "tests/ops/test_oracle.py::test_reference",
            "tests/ops/test_oracles.py::test_reference",
            "there is no tests/ops",
        ),
        ("[`Causal`](../src/regard/ops/masks.py)", "[`Casual`](../src/regard/ops/masks.py)", "no Casual in"),
        ("(../src/regard/nn/rotary.py)", "(../src/regard/nn/rotation.py)", "rotary positions: there is no Rotary in"),
        ("| not yet | not yet |", "| not yet | soon |", "not yet, or yet?"),
    ],
)
def test_what_is_wrong_is_found(said: str, instead: str, wrong: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert said in page
    found = problems(page.replace(said, instead, 1))
    assert any(wrong in line for line in found)
