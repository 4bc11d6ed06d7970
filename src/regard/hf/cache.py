"""Where regard keeps what it made once for later: folders that appear whole or not at all.

A folder is built under a temporary name beside its place and renamed when it is complete, with the SHA-256 of every
file inside. Two processes may build the same folder at once: one rename wins, the other finds the winner's folder and
uses it. Before a folder is used again its hashes are checked; a damaged one is moved away and built anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from regard.errors import ConfigError, message

_SEAL = "regard.json"
_ELSEWHERE = "set REGARD_CACHE to a folder that can be written to"


def cache_folder() -> Path:
    """``$REGARD_CACHE``, or the platform's folder for caches.

    Raises:
        ConfigError: The user has no home directory (a number without a name, in a container).
    """
    chosen = os.environ.get("REGARD_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "regard"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "regard" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "regard"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        problem = "converted models are kept in the home directory, but there is none."
        raise ConfigError(message("load", problem, hint=_ELSEWHERE)) from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def made_once(name: str, build: Callable[[Path], None]) -> Path:
    """A folder of the cache, built if it is not there or not whole.

    Args:
        name: Name of the folder; must change when what ``build`` writes changes.
        build: Fills an empty folder.

    Returns:
        The folder.

    Raises:
        ConfigError: The cache cannot be written to; says where else it may be.
    """
    root = cache_folder()
    place = root / name
    if is_whole(place):
        return place
    try:
        root.mkdir(parents=True, exist_ok=True)
        under_way = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=root))
    except OSError as error:
        raise _cannot_write(root, error) from error
    try:
        build(under_way)
        _seal(under_way)
        _put(under_way, place)
    except OSError as error:
        raise _cannot_write(root, error) from error
    finally:
        shutil.rmtree(under_way, ignore_errors=True)
    return place


def _cannot_write(root: Path, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    problem = f"converted models are kept in {root}, which cannot be written to: {reason}."
    return ConfigError(message("load", problem, hint=_ELSEWHERE))


def is_whole(folder: Path) -> bool:
    """Whether a folder of the cache is there and every file in it is as it was written."""
    try:
        hashes = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        return bool(hashes) and all(sha256_of(folder / name) == value for name, value in hashes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _seal(folder: Path) -> None:
    hashes = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    (folder / _SEAL).write_text(json.dumps(hashes, indent=1), encoding="utf-8")


def _put(under_way: Path, place: Path) -> None:
    """Rename into place; a damaged folder there goes away first, a whole one (another process was faster) stays."""
    under_way.chmod(0o755)
    for _ in range(3):
        try:
            under_way.rename(place)
            return
        except OSError:
            if is_whole(place):
                return
            if not place.exists():
                raise
        damaged = under_way.with_name(under_way.name + ".damaged")
        place.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    under_way.rename(place)
