"""The public names are a promise: a change shows up here as a change of one file."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import regard

GOLDEN = Path(__file__).parent / "golden" / "public_names.txt"


def _public() -> list[str]:
    """Every name in ``__all__`` of regard and its packages, at any depth, as ``package.name``."""
    return sorted(
        f"{package}.{name}"
        for package in _packages("regard")
        for name in getattr(import_module(package), "__all__", [])
    )


def _packages(name: str) -> Iterator[str]:
    """A package or module and, if it is a package, all it holds that is public."""
    yield name
    inside = getattr(import_module(name), "__path__", ())
    for found in pkgutil.iter_modules(inside):
        if not found.name.startswith("_"):
            yield from _packages(f"{name}.{found.name}")


def test_public_names_are_the_promised_ones() -> None:
    # After a wanted change: python tests/test_public_names.py rewrites the file; CHANGELOG.md says why.
    assert _public() == GOLDEN.read_text().split()


def test_every_public_name_exists() -> None:
    missing = [
        name for name in _public() if not hasattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
    ]
    assert missing == []


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(regard.__file__ or "").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: f"{statement.module}.{alias.name}"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == {name: f"{home}.{name}" for name, home in regard._HOME_OF.items()}


def test_dir_lists_names_that_are_not_loaded_yet() -> None:
    assert set(regard.__all__) <= set(dir(regard))


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{name}\n" for name in _public()))
