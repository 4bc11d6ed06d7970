"""What a newcomer's first command says when something is missing: one line, exit status 2, nothing half-made."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("constraints.txt", "pyproject.toml", "CMakeLists.txt", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("scripts", "native"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def _bootstrap(checkout: Path, python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "scripts/bootstrap", "look"],
        cwd=checkout,
        env={**os.environ, "PYTHON": python, "TORCH_INDEX": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _interpreter(folder: Path, body: str) -> str:
    """Write a stand-in for python3 that answers by this shell code; $2 is the code it is asked to run."""
    path = folder / "python-stand-in"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _refused(result: subprocess.CompletedProcess[str], said: str, checkout: Path) -> None:
    assert result.returncode == 2
    assert result.stderr.splitlines() == [f"regard: {said}"]
    assert not (checkout / ".venv").exists()


def _wanted(checkout: Path) -> bytes:
    """What a stamp holds when everything is installed."""
    line = next(
        line for line in (checkout / "scripts/bootstrap").read_text().splitlines() if line.startswith("wanted=")
    )
    return subprocess.run(
        ["bash", "-c", f'{line}; printf "%s\\n" "$wanted"'],
        cwd=checkout,
        capture_output=True,
        check=True,
    ).stdout


def test_no_python(checkout: Path) -> None:
    result = _bootstrap(checkout, "no-such-python")
    _refused(result, "no-such-python is missing: sudo apt install python3 python3-venv", checkout)


def test_python_too_old(checkout: Path) -> None:
    python = _interpreter(checkout, 'case "$2" in *version_info*) exit 1 ;; *python_version*) echo 3.9.2 ;; esac')
    said = f"Python 3.11 or newer is needed, {python} is 3.9.2: set PYTHON=/path/to/python3.11"
    _refused(_bootstrap(checkout, python), said, checkout)


def test_no_venv(checkout: Path) -> None:
    python = _interpreter(checkout, 'case "$2" in *ensurepip*) echo "No module named ensurepip" >&2; exit 1 ;; esac')
    _refused(_bootstrap(checkout, python), "python3-venv is missing: sudo apt install python3-venv", checkout)


def test_no_network(checkout: Path) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    result = _bootstrap(checkout, sys.executable, **offline)
    assert result.returncode == 2
    said = "regard: pip could not install PyTorch (its message is above); is there a network?"
    assert result.stderr.splitlines()[-1] == f"{said} run the same command again to go on"
    assert not list((checkout / ".venv").glob(".installed-*"))


def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    """A stamp of the same content ends the script before it looks for Python; of other content it does not."""
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed-ci").write_bytes(_wanted(checkout))  # the richest level serves the others
    assert _bootstrap(checkout, "no-such-python").returncode == 0
    with (checkout / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    assert _bootstrap(checkout, "no-such-python").returncode == 2


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
def test_a_second_one_waits_for_the_first(checkout: Path) -> None:
    """Two terminals, one checkout: the second must not clear the .venv that the first is filling."""
    first = os.open(checkout, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    second = subprocess.Popen(
        ["bash", "scripts/bootstrap", "look"],
        cwd=checkout,
        env={**os.environ, "PYTHON": "no-such-python"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert second.stdout is not None
    assert second.stdout.readline() == "regard: another command is installing into .venv; waiting for it\n"
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed-look").write_bytes(_wanted(checkout))
    os.close(first)
    assert second.communicate(timeout=60) == ("", "")
    assert second.returncode == 0


def test_text_reaches_the_command_as_it_was_typed(checkout: Path) -> None:
    """``make look`` with quotes and shell signs in TEXT, with a stand-in for the installed regard."""
    (checkout / "scripts" / "bootstrap").write_text("#!/bin/sh\n")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    python.chmod(0o755)
    text = 'it\'s "the" `bank`; 銀行 & more'
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    result = subprocess.run(  # as typed in a shell, though these tests may run under make themselves
        ["make", "look", f"TEXT={text}"], cwd=checkout, env=own, capture_output=True, text=True, check=True
    )
    assert result.stdout == f"-m|regard|look|--|{text}|"
