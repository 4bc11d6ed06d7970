"""Everything regard raises on purpose.

Error:
    ├── ShapeError(ValueError)              a shape does not fit its neighbours
    ├── DTypeError(TypeError)               a dtype that is not accepted here
    ├── ConfigError(ValueError)             wrong options; every problem is listed at once
    ├── FormatError(ValueError)             a file that is not what it should be, with file and line
    ├── UnsupportedError(NotImplementedError)   what was asked for cannot be done; says why
    └── BackendUnavailableError(RuntimeError)   a named backend cannot run on this machine

Messages follow one grammar: ``caller(): `argument` must be …, but is … .`` followed, where it helps, by one line per
argument and one ``hint:``. The builders below are the only places that know this grammar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Error(Exception):
    """Base of every error that regard raises on purpose."""


class ShapeError(Error, ValueError):
    """A shape does not fit its neighbours."""


class DTypeError(Error, TypeError):
    """A dtype that is not accepted here."""


class ConfigError(Error, ValueError):
    """Options that cannot work; lists all problems at once."""


class FormatError(Error, ValueError):
    """A file that is not what it should be."""


class UnsupportedError(Error, NotImplementedError):
    """What was asked for cannot be done, by a backend or in this form."""


class BackendUnavailableError(Error, RuntimeError):
    """A backend that was asked for by name cannot run on this machine."""


def message(caller: str, problem: str, *, arguments: Mapping[str, str] | None = None, hint: str | None = None) -> str:
    """Build the text of an error: the problem, one aligned line per argument, and a hint.

    Args:
        caller: The public function the person called, without parentheses.
        problem: One sentence: which argument, what it must be, what it is.
        arguments: Name to one-line description, shown aligned below the problem.
        hint: What to do instead, when that is known.

    Returns:
        The message, without the exception's name.
    """
    lines = [f"{caller}(): {problem}"]
    width = max((len(name) for name in arguments or ()), default=0)
    lines += [f"  {name:<{width}}  {text}" for name, text in (arguments or {}).items()]
    if hint is not None:
        lines.append(f"  hint: {hint}")
    return "\n".join(lines)


def must_be(argument: str, expected: str, actual: object) -> str:
    """Build the sentence of an error: the argument, what it must be, what it is.

    Args:
        argument: Its name.
        expected: What comes after "must be".
        actual: What comes after "but is".
    """
    return f"`{argument}` must be {expected}, but is {actual}."


def all_problems(caller: str, problems: Sequence[str]) -> ConfigError:
    """Build one ConfigError out of every problem found."""
    if len(problems) == 1:
        return ConfigError(message(caller, problems[0]))
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return ConfigError(f"{caller}(): {len(problems)} problems:{listed}")


def missing_extra(module: str, extra: str, purpose: str) -> BackendUnavailableError:
    """Build the one-line error for an optional dependency that is not installed.

    Args:
        module: The package that is missing.
        extra: The extra of regard that installs it.
        purpose: What needs it; begins the sentence.
    """
    return BackendUnavailableError(
        f"{purpose} needs the package `{module}`, which is not installed: pip install 'regard[{extra}]'."
    )
