"""Where something may be written: asked before the work, so that no result is lost for want of a place."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from regard.errors import ConfigError, FormatError, message


def check_file_place(path: str | os.PathLike[str], *, caller: str, argument: str = "`path`") -> None:
    """Refuse a place that no single file can be written to.

    Args:
        path: Where; a file that is there may be replaced, unless it is a recording.
        caller: The function to name in errors.
        argument: What to call the path in errors.

    Raises:
        ConfigError: It is no name of a file, its folder is missing or cannot be written to, or a folder, a device or
            a recording is there.
    """
    from regard.records._load import is_recording

    target = _resolved(path, caller=caller, argument=argument)
    if os.path.isdir(target):
        raise ConfigError(message(caller, f"{argument} must name a file, but {path} is a folder."))
    if str(path).endswith(("/", os.sep)):
        raise ConfigError(message(caller, f"{argument} must name a file, but {path} names a folder."))
    if os.path.lexists(target) and not os.path.isfile(target):
        raise ConfigError(message(caller, f"{argument} must name a file, but {path} is something else."))
    if os.path.isfile(target) and is_recording(target):
        raise ConfigError(message(caller, f"{argument} must not replace a recording, but {path} is one."))
    _check_folder(path, target, caller=caller, argument=argument)


def check_recording_place(path: str | os.PathLike[str], *, caller: str, argument: str = "`path`") -> None:
    """Refuse a place that no recording can be written to.

    Args:
        path: Where; an earlier recording may be replaced, nothing else.
        caller: The function to name in errors.
        argument: What to call the path in errors.

    Raises:
        ConfigError: It is no name, or its folder is missing or cannot be written to.
        FormatError: Something is there that is not a recording.
    """
    from regard.records._load import is_recording

    target = _resolved(path, caller=caller, argument=argument)
    if os.path.lexists(target) and not is_recording(target):
        hint = "Choose another path, or remove what is there."
        problem = f"{argument} must be free or an earlier recording, but {path} is something else."
        raise FormatError(message(caller, problem, hint=hint))
    if os.path.isdir(target) and not os.access(target, os.W_OK | os.X_OK):
        raise ConfigError(message(caller, f"{argument} {path} cannot be replaced: permission denied."))
    _check_folder(path, target, caller=caller, argument=argument)


def beside(target: Path) -> Path:
    """A name for what is being written, in the target's folder; short, so that any name the target may have fits."""
    return target.parent / f".regard.{secrets.token_hex(6)}.part"


def named_after(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The same error about the path a person gave, not about a file that was written beside it."""
    return OSError(error.errno, error.strerror, os.fspath(path))


def _resolved(path: str | os.PathLike[str], *, caller: str, argument: str) -> Path:
    if not os.fspath(path):
        raise ConfigError(message(caller, f"{argument} must be a path, but is empty."))
    if "\0" in os.fspath(path):
        raise ConfigError(message(caller, f"{argument} must be a path, but is {os.fspath(path)!r}."))
    return Path(os.path.realpath(path))


def _check_folder(path: str | os.PathLike[str], target: Path, *, caller: str, argument: str) -> None:
    """A file is written beside the target and removed: permissions do not tell of disks that are read-only or full."""
    from regard.records._load import is_recording

    parent = target.parent
    named = Path(path).parent if not os.path.islink(path) else parent
    if not os.path.isdir(parent):
        raise ConfigError(message(caller, f"{argument} must lie in a folder that exists, but there is no {named}."))
    if is_recording(parent):
        raise ConfigError(message(caller, f"{argument} must not lie in a recording, but {named} is one."))
    trial = beside(target)
    try:
        with suppress(FileNotFoundError):
            target.lstat()  # a name may be too long for its folder
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        reason = (error.strerror or "cannot be used").lower()
        raise ConfigError(message(caller, f"{argument} {path} cannot be written: {reason}.")) from error
