"""Folders whose names are labels: which they are, and what else lies there, which is counted and not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.text._gathering import Gathering
from regard.text.examples import Place


def label_folders(folder: Path, gathering: Gathering[Any]) -> list[Path]:
    """The folders inside a folder by name; files beside them, and folders inside them, are skipped and counted.

    Args:
        folder: The folder.
        gathering: Is told what is skipped.
    """
    inner = folders_of(folder)
    for path in files_of(folder):
        gathering.skip("file beside the folders of labels", Place(str(path), 1))
    for child in inner:
        for deeper in folders_of(child):
            gathering.skip("folder inside that of a label", Place(str(deeper), 1))
    return inner


def folders_of(folder: Path) -> list[Path]:
    """The folders of a folder by name, without hidden ones."""
    return [child for child in sorted(folder.iterdir()) if child.is_dir() and not child.name.startswith(".")]


def files_of(folder: Path) -> list[Path]:
    """The files of a folder by name, without hidden ones."""
    return [child for child in sorted(folder.iterdir()) if child.is_file() and not child.name.startswith(".")]
