"""The READMEs: their code runs, their links lead somewhere, and both languages say the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
page = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())


def _blocks(path: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def _without_comments(code: str) -> list[str]:
    return [line for text in code.splitlines() if (line := re.sub(r"\s*#.*", "", text))]


@page
def test_the_example_runs(path: Path, tmp_path: Path) -> None:
    (code,) = _blocks(path, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    shape, mass = result.stdout.splitlines()
    assert shape.startswith("torch.Size([1, 4, 6]) tensor([")
    assert float(re.findall(r"tensor\(([\d.]+)\)", mass)[0]) == pytest.approx(24, abs=1e-4)


def test_both_languages_show_the_same_code() -> None:
    english, chinese = (
        [_without_comments(block) for language in ("sh", "python") for block in _blocks(path, language)]
        for path in PAGES.values()
    )
    # The Chinese page shows one thing more: how to install the model that reads Chinese.
    assert [block for block in chinese if "[zh]" not in block[0]] == english
    assert len(chinese) == len(english) + 1


def test_both_languages_have_the_same_sections() -> None:
    english, chinese = (re.findall(r"^#+ ", path.read_text(), flags=re.MULTILINE) for path in PAGES.values())
    assert english == chinese


@page
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    assert targets
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


@page
def test_the_tree_is_the_tree(path: Path) -> None:
    (tree,) = _blocks(path, "")
    *lines, last = tree.splitlines()
    folders = {line.split()[0] for line in lines[1:] if line.startswith("  ")}
    packages = {f"{child.name}/" for child in (ROOT / "src" / "regard").iterdir() if (child / "__init__.py").exists()}
    assert folders == packages
    top = {line.split()[0] for line in lines[1:] if not line.startswith("  ")} | set(last.split())
    assert [name for name in top if not (ROOT / name).is_dir()] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("given", ["argument", "environment"])
def test_make_look_passes_any_text_unchanged(given: str, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for program, does in (("scripts/bootstrap", ""), (".venv/bin/python", "printf '%s|' \"$@\"")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    text = "--it costs $5, $HOME, $(shell echo no), `ls`, \"q\", 'q', 天气 👨\u200d👩 # \\ %"
    command = ["make", "--silent", "--file", str(ROOT / "Makefile"), "look"]
    argument, environment = ([f"TEXT={text}"], {}) if given == "argument" else ([], {"TEXT": text})
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "TEXT")}
    result = subprocess.run(
        [*command, *argument], cwd=tmp_path, env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    assert result.stdout == f"-m|regard|look|--|{text}|"


@page
def test_the_commands_are_targets_of_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = re.findall(r"^make (\w+)", "".join(_blocks(path, "sh")), flags=re.MULTILINE)
    assert {"look", "test"} <= set(commands) <= targets
