"""The written format: its version, names, sizes, and how older major versions become the current one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

FORMAT = "regard recording"
MAJOR = 1  # readers refuse a newer one
MINOR = 1  # grows when something is added that older readers may ignore

MANIFEST = "manifest.json"
CHUNK_NAME = re.compile(r"chunk-[0-9]{5,9}\.safetensors")
CHUNK_BYTES = 64 * 2**20
MANIFEST_BYTES = 2**30  # a manifest beyond this is refused unread

#: major version → what turns a manifest of that version into one of the next. Tensors keep their names and bits; a
#: migration that must change them belongs in the function that reads the manifest.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def migrate(manifest: dict[str, Any], major: int) -> dict[str, Any]:
    """Bring a manifest of an older major version to the current one, one version at a time."""
    for version in range(major, MAJOR):
        manifest = MIGRATIONS[version](manifest)
    return manifest


def chunk_name(number: int) -> str:
    """File name of a chunk."""
    return f"chunk-{number:05d}.safetensors"


def checksum(manifest: dict[str, Any]) -> str:
    """SHA-256 of a manifest's content, its own ``sha256`` entry left out; order and white space do not count."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
