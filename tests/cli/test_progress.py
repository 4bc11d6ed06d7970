import io
import time

import pytest

from regard.cli import _progress
from regard.cli._progress import Progress


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(_progress, "_PATIENCE", 0.05)
    monkeypatch.setattr(_progress, "_EVERY_ON_SCREEN", 0.02)
    monkeypatch.setattr(_progress, "_EVERY_IN_PIPE", 0.02)


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_quick_work_is_silent(capsys):
    with Progress("layers", 3) as progress:
        progress.step(3)
    assert capsys.readouterr().err == ""


def test_the_time_left_is_told():
    progress = Progress("layers", 6)
    assert progress.line(3.0) == "layers: 3 s"
    progress.step(2)
    assert progress.line(4.0) == "layers: 2 of 6, about 8 s left"
    progress.step(5)
    assert progress.line(4.0) == "layers: 7 of 6, about 0 s left"


def test_a_pipe_gets_plain_lines(quick, capsys):
    with Progress("layers", 6) as progress:
        progress.step()
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("layers: 1 of 6, about ") for line in lines)


def test_a_screen_gets_one_line_that_is_wiped(quick, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with Progress("loading"):
        time.sleep(0.2)
    assert "\n" not in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_errors_pass_through(quick):
    with pytest.raises(ValueError, match="inside"), Progress("loading"):
        raise ValueError("inside")
