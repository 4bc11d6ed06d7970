"""The documentation's code runs: the Python blocks of one page, one after another, in a process of their own.

A block of text after them is what they print. What needs the Chinese model stands at the end of its page and does not
need what comes before.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_CHINESE = 'load("e5-small")'


def parts() -> dict[str, list[tuple[str, str]]]:
    """What is run together: the blocks of a page, as (language, content)."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        blocks = _BLOCK.findall(path.read_text(encoding="utf-8"))
        chinese = next((i for i, (_, block) in enumerate(blocks) if _CHINESE in block), len(blocks))
        name = path.relative_to(DOCS).with_suffix("").as_posix()  # whole: pages in two folders may be named alike
        found |= {name: blocks[:chinese], f"{name}-chinese": blocks[chinese:]}
    return {name: blocks for name, blocks in found.items() if any(language == "python" for language, _ in blocks)}


PARTS = parts()


@pytest.mark.parametrize("name", PARTS)
def test_code_runs_and_prints_what_the_page_shows(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name.endswith("-chinese"):
        request.getfixturevalue("chinese_model")
    code = "\n".join(block for language, block in PARTS[name] if language == "python")
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    printed = result.stdout
    for language, block in PARTS[name]:
        if language == "text":
            assert block in printed
            printed = printed[printed.index(block) + len(block) :]


def test_no_page_with_code_is_left_out() -> None:
    with_code = [path for path in DOCS.rglob("*.md") if "```python\n" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(DOCS).with_suffix("")) for path in with_code} | {"tutorials/steps-chinese"} == set(
        PARTS
    )


def test_every_package_has_a_reference_page() -> None:
    root = DOCS.parent / "src" / "regard"
    packages = {child.name for child in root.iterdir() if (child / "__init__.py").exists()} - {"cli"}
    assert packages <= {path.stem for path in (DOCS / "reference").glob("*.md")}


def test_functions_named_like_their_module_are_in_the_reference() -> None:
    """mkdocstrings finds the module under such a name, and leaves both out: the page names the function itself."""
    root, missing = DOCS.parent / "src" / "regard", []
    for page in (DOCS / "reference").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        package = root / page.stem / "__init__.py"
        names = re.findall(r'^    "(\w+)",$', package.read_text(), flags=re.MULTILINE) if package.exists() else []
        for name in names:
            if (package.parent / f"{name}.py").exists() and f"::: regard.{page.stem}.{name}.{name}\n" not in text:
                missing.append(f"{page.stem}: {name}")
    assert missing == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    assert [
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if str(path.relative_to(DOCS)) not in navigation
    ] == []
