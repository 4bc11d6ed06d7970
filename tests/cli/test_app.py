import os
import re
import resource
import subprocess
import sys

import pytest

from regard import __version__
from regard.cli import app
from regard.errors import ConfigError, FormatError, all_problems, message

ESCAPES_AND_BOXES = re.compile(r"[\x1b\u2500-\u257f]")
HEAVY = ("torch", "transformers", "regard.ops", "regard.view", "regard.lens")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, encoding="utf-8", env=environment, check=False
    )


def test_help_is_quick():
    def seconds() -> float:
        """Of the processor: what else the machine does must not fail this test."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert python("-m", "regard", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # One of ten: a second thread on the same core makes a processor's second worth half as much.
    assert any(seconds() < 0.5 for _ in range(10))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["look", "--help"],
        ["view", "--help"],
        ["doctor", "--help"],
        ["bench", "--help"],
        ["look"],
        ["train", "--help"],
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(arguments):
    code = (
        "import sys; from regard.cli.app import main; code = main(sys.argv[1:]);"
        f"print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    )
    assert "heavy: []" in python("-c", code, *arguments).stdout


def test_help_into_a_pipe_is_plain():
    shown = python("-m", "regard", "look", "--help").stdout
    assert "--layers" in shown
    assert not ESCAPES_AND_BOXES.search(shown)


def test_the_commands_are_these(capsys):
    assert app.main(["--help"]) == 0
    names = re.findall(r"^  (\w[\w-]*): ", capsys.readouterr().out, flags=re.MULTILINE)
    commands = ["bench", "doctor", "evaluate", "export", "look", "predict", "train", "view"]
    assert names == sorted(
        [*commands, "answer", "caption", "classify", "classify-image", "generate", "summarize", "translate"]
    )


def test_version(capsys):
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lok"], 'Unknown command "lok". Did you mean "look"?'),
        (["look", "--nope"], "Unknown option: --nope."),
        (["look", "the", "bank"], "'bank' is one word too many; put quotes around a text of several words."),
        (["look", "The", "words", "here"], "'words' and 'here' are 2 words too many; put quotes around a text of sev"),
        (["look", "a", "b", "c", "d"], "'b', 'c' and 'd' are 3 words too many; put quotes around"),
        (["look", "a", *"bcdefgh"], "'b', 'c', 'd', 'e', 'f', … are 7 words too many; put quotes around"),
        (["look", "a text", "and another"], "'and another' is one text too many; a second text follows --pair."),
        (["view", "a", "b"], "'b' is one word too many; a name with spaces goes in quotes."),
        (["look", "-5 degrees"], "a text that begins with a dash goes behind two dashes"),
        (["look", "x", "--generate", "many"], "Invalid value for --generate"),
        (["view"], "requires an argument"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(arguments, line, capsys):
    assert app.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("regard: ")
    assert line in shown.err
    assert shown.err.count("\n") == 1


def raising(error, monkeypatch):
    def fail(words):
        raise error

    monkeypatch.setattr(app, "application", lambda: fail)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError(message("load", "`a` must be b, but is c.", hint="try d")), "`a` must be b, but is c. (try d)"),
        (FormatError(message("Recording.load", "too new.", arguments={"file": "x.regard"})), "x.regard: too new."),
        (all_problems("watch", ["one is wrong.", "two is wrong."]), "2 problems: - one is wrong. - two is wrong."),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), "a.txt: no such file or directory"),
        (OSError("disk is full"), "disk is full"),
        (OSError(28, "No space left on device"), "the output cannot be written: no space left on device"),
        (ConfigError("evil\x1b[2J\rtext"), "evil [2J text"),
    ],
)
def test_errors_are_one_line_without_control_characters(error, line, monkeypatch, capsys):
    raising(error, monkeypatch)
    assert app.main([]) == 2
    assert capsys.readouterr().err == f"regard: {line}\n"


def test_debug_shows_the_traceback(monkeypatch):
    raising(ConfigError("wrong"), monkeypatch)
    with pytest.raises(ConfigError):
        app.main(["--debug"])


def test_debug_behind_two_dashes_is_text(monkeypatch):
    seen = []
    monkeypatch.setattr(app, "application", lambda: lambda words: seen.append(words))
    app.main(["look", "--debug", "--", "--debug"])
    assert seen == [["look", "--", "--debug"]]


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    raising(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        app.main([])


def test_an_interruption_is_clean(monkeypatch, capsys):
    raising(KeyboardInterrupt(), monkeypatch)
    assert app.main([]) == 130
    assert capsys.readouterr().err == "regard: interrupted\n"


def test_the_answer_no_is_1(monkeypatch):
    monkeypatch.setattr(app, "application", lambda: lambda words: 1)
    assert app.main([]) == 1


def run_script(arguments, **options):
    return subprocess.run([sys.executable, "-m", "regard", *arguments], capture_output=True, check=False, **options)


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    result = run_script(["look", "The bank 天", "--layers", "0"], cwd=tmp_path, env=environment)
    assert (result.returncode, b"Traceback" in result.stderr) == (0, False)
    assert b"\\xb7" in result.stdout


def test_the_page_is_written_for_a_reader_of_the_first_line_only(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "regard", "look", "The bank", "--layers", "0"]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (tmp_path / "attention.html").exists()


def through_shell(command, folder, **options):
    """Run a command line that redirects streams, with ``regard`` for this regard."""
    command = command.replace("regard", f"exec '{sys.executable}' -m regard", 1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(closed, tmp_path):
    result = through_shell(f"regard look 'The bank' --layers 0 {closed}", tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "attention.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_mistake_with_both_streams_closed_is_still_2(tmp_path):
    assert through_shell("regard look >&- 2>&-", tmp_path).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--help", "doctor"])
def test_an_output_that_is_full_is_one_line(command, tmp_path):
    result = through_shell(f"regard {command} >/dev/full", tmp_path)
    line = "regard: the output cannot be written: no space left on device\n"
    assert (result.returncode, result.stderr) == (2, line)


def test_an_interruption_is_clean_from_the_first_import_on(tmp_path):
    """The interrupt comes while the argument parser is imported, before the application exists."""
    (tmp_path / "cyclopts.py").write_text("raise KeyboardInterrupt\n")
    result = through_shell(f"PYTHONPATH='{tmp_path}':$PYTHONPATH; regard look x", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "regard: interrupted\n")
