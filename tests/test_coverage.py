"""docs/coverage.md: every idea has its row, and every file and test that a row names exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
IDEAS = (
    "query, key, value",
    "scaled scores",
    "softmax and weighted sum",
    "padding mask",
    "causal mask",
    "several heads",
    "order needs positions",
    "encoder",
    "decoder",
    "encoder–decoder, cross-attention",
    "recurrent models",
    "convolutional models",
    "text generation",
    "question answering",
    "vision",
    "image captions",
    "interpretability: seeing",
    "interpretability: how far to trust it",
    "translation, summarisation, sentiment",
    "recurrent and convolutional limits",
    "speech",
    "agents",
)
NOT_YET = IDEAS[-5:]


def rows() -> dict[str, tuple[str, str]]:
    """Idea → (code, test), without backquotes."""
    lines = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.replace(r"\|", "/").strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    return {idea: (code.strip("`"), test.strip("`")) for idea, _, code, test in cells[2:]}


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def test_every_idea_has_its_row_and_what_is_missing_is_said() -> None:
    assert set(IDEAS) <= set(rows())
    assert {idea for idea, (code, test) in rows().items() if "not yet" in (code, test)} == set(NOT_YET)


def test_every_file_and_test_exists() -> None:
    wrong = []
    for idea, (code, test) in rows().items():
        if code == test == "not yet":
            continue
        file, _, name = test.partition("::")
        if not (ROOT / code).is_file():
            wrong.append(f"{idea}: there is no {code}")
        if not (ROOT / file).is_file() or name not in functions(ROOT / file):
            wrong.append(f"{idea}: there is no {test}")
    assert wrong == []
