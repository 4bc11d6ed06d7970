"""Where the commands may write: a place that will not do is refused before the model runs, by its option and name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.cli import _observe
from regard.records import Model, Recording

LONG = "n" * 300
WRONG_PAGES = {
    "in no folder": ("none/page.html", "--out must lie in a folder that exists, but there is no none."),
    "in a file": ("mine.txt/a.html", "--out must lie in a folder that exists, but there is no mine.txt."),
    "a folder": (".", "--out must name a file, but . is a folder."),
    "the name of a folder": ("page/", "--out must name a file, but page/ names a folder."),
    "no name": ("", "--out must be a path, but is empty."),
    "a pipe": ("pipe", "--out must name a file, but pipe is something else."),
    "a link to a pipe": ("link", "--out must name a file, but link is something else."),
    "too long a name": (LONG, f"--out {LONG} cannot be written: file name too long."),
    "no character of a name": ("a\0b", "--out must be a path, but is 'a\\x00b'."),
    "a recording": ("run.zip", "--out must not replace a recording, but run.zip is one."),
    "in a recording": ("run.regard/page.html", "--out must not lie in a recording, but run.regard is one."),
}
WRONG_SAVES = {
    "in no folder": ("none/a.regard", "--save must lie in a folder that exists, but there is no none."),
    "in a file": ("mine.txt/a", "--save must lie in a folder that exists, but there is no mine.txt."),
    "no name": ("", "--save must be a path, but is empty."),
    "too long a name": (LONG, f"--save {LONG} cannot be written: file name too long."),
    "a text": ("mine.txt", "--save must be free or an earlier recording, but mine.txt is something else. (Choose"),
    "a folder": (".", "--save must be free or an earlier recording, but . is something else. (Choose"),
    "in a recording": ("run.regard/a", "--save must not lie in a recording, but run.regard is one."),
    "the page": ("./attention.html", "--out and --save must be two places, but both are attention.html."),
}


@pytest.fixture
def filled(place, monkeypatch):
    """A folder with a person's things in it, and a model that must not run."""

    def never(*_, **__):
        raise AssertionError("the model ran")

    (place.folder / "mine.txt").write_text("mine")
    recording = Recording(model=Model("made"), sequences=(), calls=())
    recording.save("run.zip")
    recording.save("run.regard")
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    monkeypatch.setattr(_observe, "observe", never)
    place.before = place.files
    return place


def refused(filled, line: str, *arguments: str) -> None:
    assert filled.run(*arguments) == 2
    assert filled.out == ""
    assert filled.err.startswith(f"regard: {line}")
    assert filled.err.count("\n") == 1
    assert filled.files == filled.before
    assert (filled.folder / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", WRONG_PAGES)
@pytest.mark.parametrize("command", [("look", "x"), ("view", "run.regard")], ids=["look", "view"])
def test_a_page_that_cannot_be_written(filled, command, name):
    path, line = WRONG_PAGES[name]
    refused(filled, line.replace("\0", " "), *command, "-o", path)


@pytest.mark.parametrize("name", WRONG_SAVES)
def test_a_recording_that_cannot_be_saved(filled, name):
    path, line = WRONG_SAVES[name]
    refused(filled, line, "look", "x", "--save", path)


def test_what_is_read_is_not_replaced(filled):
    line = "--out must not replace what is read, but both are ./mine.txt."
    refused(filled, line, "look", "--file", "mine.txt", "-o", "./mine.txt")
    line = "--save must be free or an earlier recording, but mine.txt is something else."
    refused(filled, line, "look", "--file", "mine.txt", "--save", "mine.txt")


@pytest.mark.parametrize("option", ["--out", "--save"])
def test_a_folder_that_takes_no_file(filled, monkeypatch, option):
    touch = Path.touch

    def refuse(self, **options):  # not chmod: root may write anywhere
        if self.parent.name == "theirs":
            raise OSError(30, "Read-only file system", str(self))
        touch(self, **options)

    os.mkdir("theirs")
    filled.before = filled.files
    monkeypatch.setattr(Path, "touch", refuse)
    line = f"{option} theirs/a cannot be written: read-only file system."
    refused(filled, line, "look", "x", option, "theirs/a")
    assert os.listdir("theirs") == []


@pytest.mark.parametrize("option", ["--out", "--save"])
def test_a_disk_that_runs_full_is_told_by_the_path_that_was_given(place, writer, monkeypatch, option):
    def full(*_):
        raise OSError(28, "No space left on device")

    arguments = ["look", "abc", "--model", writer, option, "big.regard"]
    monkeypatch.setattr("os.replace" if option == "--out" else "os.rename", full)
    assert place.run(*arguments) == 2
    assert place.err == f"regard: {option} big.regard cannot be written: no space left on device.\n"
    assert place.files == []


def test_a_name_as_long_as_a_name_may_be_is_written(place, writer):
    assert place.run("look", "abc", "--model", writer, "-o", "n" * 255, "--save", "r" * 255) == 0
    assert place.files == ["n" * 255, "r" * 255]
