"""The application: which commands there are, and how an error reaches a person.

Exit codes: 0 done; 1 it ran, but the answer is no; 2 the person must change something, and one line on stderr says
what; 130 interrupted. A traceback appears only with ``--debug``.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, UnknownOptionError, UnusedCliTokensError
from rich.console import Console

from regard import __version__
from regard.errors import Error

_COMMANDS = {
    "look": "Observe a model on a text: print a summary, write one page that shows where attention went.",
    "view": "Write the page of a recording.",
    "doctor": "Say what is installed, and check that it computes what it should.",
}
_NO_WRAPPING = 10_000
_EPILOGUE = "--debug shows tracebacks. Exit codes: 0 done, 1 the answer is no, 2 something must be changed."


def application() -> App:
    """The commands; each is imported when it is run or its help is asked for."""
    screen = sys.stdout.isatty()
    app = App(
        name="regard",
        help="Attention that can be looked into.",
        help_epilogue=_EPILOGUE,
        version=__version__,
        help_format="plaintext",
        help_formatter="default" if screen else "plain",
        # A pipe has no width: one option, one line.
        console=None if screen else Console(width=_NO_WRAPPING, no_color=True, highlight=False),
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    for name, text in _COMMANDS.items():
        app.command(f"regard.cli.{name}:{name}", name=name, help=text)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        arguments: What follows the program's name; the process's own by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    before_text = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in before_text
    if debug:
        words.remove("--debug")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character the terminal does not know is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        result = application()(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (regard … | head): nothing is wrong, and nobody is left to tell.
        sys.stderr.close()
        return 0
    except (Error, OSError, CycloptsError) as error:
        if debug:
            raise
        print(f"regard: {one_line(error)}", file=sys.stderr)
        return 2
    return result if isinstance(result, int) else 0


def one_line(error: Exception) -> str:
    """What a person must know of an error, in one line without control characters."""
    if isinstance(error, UnusedCliTokensError):
        words = " ".join(error.unused_tokens or ())
        text = f"{words!r} is one word too many; put quotes around a text of several words."
    elif isinstance(error, UnknownOptionError) and " " in (error.token.value or error.token.keyword or ""):
        text = "a text that begins with a dash goes behind two dashes, last of all: regard look [options] -- TEXT"
    elif isinstance(error, CycloptsError):
        text = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {(error.strerror or 'cannot be used').lower()}"
    else:
        # Library errors begin with the function that was called, and may list arguments: neither helps here.
        lines = (str(error) or type(error).__name__).split("\n")
        files = [line.split(maxsplit=1)[1] for line in lines[1:] if line.lstrip().startswith("file ")]
        hints = [line.strip().removeprefix("hint: ") for line in lines[1:] if line.strip().startswith("hint:")]
        problems = [line.strip() for line in lines[1:] if line.startswith("  - ")]
        problem = re.sub(r"^[\w.]+\(\): ", "", lines[0])
        text = " ".join([*(f"{file}:" for file in files), problem, *problems, *(f"({hint})" for hint in hints)])
    return "".join(character if character.isprintable() else " " for character in text).strip()
