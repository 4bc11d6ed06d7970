"""The layers of the tree hold, and the contracts that say so can fail."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LINT = (
    "import sys; from importlinter.cli import lint_imports; "
    "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True, no_logo=True))"
)


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts on the package in ``folder``/src, whatever regard is installed."""
    # -S: without site, an editable install cannot put its own source first.
    path = os.pathsep.join([str(folder / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    return subprocess.run(
        [sys.executable, "-S", "-c", _LINT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "static"))
    return tmp_path


def test_what_is_forbidden_is_forbidden_for_every_package() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    by_id = {contract["id"]: contract for contract in contracts}
    packages = {f"regard.{path.parent.name}" for path in (ROOT / "src" / "regard").glob("*/__init__.py")}
    assert packages - set(by_id["view"]["forbidden_modules"]) == {"regard.records", "regard.view"}
    assert packages - set(by_id["transformers"]["source_modules"]) == {
        "regard.cli",
        "regard.hf",
        "regard.tasks",
        "regard.train",
    }


def _intrusions(source: Path) -> list[str]:
    """Imports of private modules, or private names, of another package."""
    found = []
    for path in sorted(source.rglob("*.py")):
        home = list(path.relative_to(source).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None or not node.module.startswith("regard"):
                continue
            words = [*node.module.split("."), *(alias.name for alias in node.names)]
            private = any(word.startswith("_") and not word.startswith("__") for word in words)
            if private and words[:2] != home[:2]:
                found.append(f"{'/'.join(home)}: {node.module}")
    return found


def test_no_package_reaches_into_the_private_modules_of_another(copy: Path) -> None:
    assert _intrusions(copy / "src") == []
    intruder = copy / "src" / "regard" / "nn" / "intruder.py"
    intruder.write_text("from regard.ops._call import Call\nfrom regard.ops import _tiles\n")
    assert _intrusions(copy / "src") == ["regard/nn/intruder.py: regard.ops._call", "regard/nn/intruder.py: regard.ops"]


def test_the_layers_hold(copy: Path) -> None:
    result = _lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "code", "broken"),
    [
        ("ops/intruder.py", "import regard.lens", "Imports go downwards only"),
        ("text/intruder.py", "import regard.nn\nimport regard.view", "Imports go downwards only"),
        ("surprise/__init__.py", "", "Imports go downwards only"),
        ("view/intruder.py", "import regard.ops", "view knows records and errors only"),
        ("view/intruder.py", "import torch", "view knows records and errors only"),
        ("lens/intruder.py", "import transformers", "Nothing below hf imports transformers"),
        ("records/intruder.py", "import torch", "records need numpy only"),
        ("ops/_backends/intruder.py", "import regard.ops._backends.native_library", "Backends never import each other"),
    ],
)
def test_an_import_across_the_layers_is_found(copy: Path, module: str, code: str, broken: str) -> None:
    path = copy / "src" / "regard" / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'"""Where it must not be."""\n{code}\n')
    result = _lint(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert any(broken in line and "BROKEN" in line for line in result.stdout.splitlines()), result.stdout
