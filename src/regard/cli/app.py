"""The application: which commands there are, and how an error reaches a person.

Exit codes: 0 done; 1 it ran, but the answer is no; 2 the person must change something, and one line on stderr says
what; 130 interrupted. A traceback appears only with ``--debug``.
"""

from __future__ import annotations

import errno
import io
import os
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
    "train": "Train a model on your data: translate, classify, answer, summarize, generate, classify-image, caption.",
    "evaluate": "Say how good a trained model is.",
    "predict": "Use a trained model, and show where it looked.",
    "export": "Write a trained model as ONNX.",
    "bench": "Measure attention beside its peers: medians and quartiles, both sides equal first.",
    "doctor": "Say what is installed, and check that it computes what it should.",
}
_SHORTHANDS = ("translate", "classify", "answer", "summarize", "generate", "classify-image", "caption")
_NO_WRAPPING = 10_000
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS_NAMED = 5
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
    for name in _SHORTHANDS:
        app.command(f"regard.cli.shorthands:{name.replace('-', '_')}", name=name, help=f"Short for predict {name}.")
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
    _prepare_streams()
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


def _prepare_streams() -> None:
    """Make printing safe: a stream that was closed (``>&-``) swallows, an unknown character becomes an escape."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(error: Exception) -> str:
    """What a person must know of an error, in one line without control characters."""
    if isinstance(error, UnusedCliTokensError):
        text = _too_many(error.unused_tokens or [], look="look" in (error.command_chain or ()))
    elif isinstance(error, UnknownOptionError) and " " in (error.token.value or error.token.keyword or ""):
        text = "a text that begins with a dash goes behind two dashes, last of all: regard look [options] -- TEXT"
    elif isinstance(error, CycloptsError):
        text = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {(error.strerror or 'cannot be used').lower()}"
    elif isinstance(error, OSError) and error.errno in _FULL:
        text = f"the output cannot be written: {(error.strerror or str(error)).lower()}"
    else:
        # Library errors begin with the function that was called, and may list arguments: neither helps here.
        lines = (str(error) or type(error).__name__).split("\n")
        files = [line.split(maxsplit=1)[1] for line in lines[1:] if line.lstrip().startswith("file ")]
        hints = [line.strip().removeprefix("hint: ") for line in lines[1:] if line.strip().startswith("hint:")]
        problems = [line.strip() for line in lines[1:] if line.startswith("  - ")]
        problem = re.sub(r"^[\w.]+\(\): ", "", lines[0])
        text = " ".join([*(f"{file}:" for file in files), problem, *problems, *(f"({hint})" for hint in hints)])
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _too_many(words: Sequence[str], *, look: bool) -> str:
    """What to do about words that no argument takes."""
    shown = [repr(word) for word in words[:_WORDS_NAMED]] + ["…"] * (len(words) > _WORDS_NAMED)
    joint = ", " if len(words) > _WORDS_NAMED else " and "
    named = joint.join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
    what = "text" if look and any(" " in word for word in words) else "word"
    count = f"is one {what}" if len(words) == 1 else f"are {len(words)} {what}s"
    advice = "put quotes around a text of several words"
    if what == "text":
        advice = "a second text follows --pair"
    elif not look:
        advice = "a name with spaces goes in quotes"
    return f"{named} {count} too many; {advice}."
