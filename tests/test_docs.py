"""The documentation's code runs: the Python blocks of one page, one after another, in a process of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if _BLOCK.search(path.read_text())]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_page_runs(path: Path, tmp_path: Path) -> None:
    code = "\n".join(_BLOCK.findall(path.read_text()))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_every_package_has_a_reference_page() -> None:
    root = DOCS.parent / "src" / "regard"
    packages = {child.name for child in root.iterdir() if (child / "__init__.py").exists()} - {"cli"}
    assert packages <= {path.stem for path in (DOCS / "reference").glob("*.md")}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    assert [
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if str(path.relative_to(DOCS)) not in navigation
    ] == []
