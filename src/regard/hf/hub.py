"""A model's files on this machine: a folder, the hub's cache, or a download. Never a long wait without a network."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from regard.errors import ConfigError, message

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_NEEDED = ["*.json", "*.txt", "*.model", "*.safetensors"]
_SECONDS = 4.0


def local_copy(name_or_path: str) -> Path:
    """The folder that holds a model's files; downloads a hub model that is not here yet.

    Args:
        name_or_path: A folder, or a hub id such as ``prajjwal1/bert-tiny``.

    Returns:
        A folder with config.json, tokenizer and weights.

    Raises:
        ConfigError: There is no such folder, or the model is not cached and cannot be downloaded.
    """
    if not name_or_path.strip():
        problem = "the model must be minilm, e5-small, a folder or a hub id, but is empty."
        raise ConfigError(message("load", problem))
    try:
        path = Path(name_or_path).expanduser()
    except RuntimeError as error:
        raise ConfigError(message("load", f"there is no folder {name_or_path}: no such home directory.")) from error
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(message("load", f"the folder {name_or_path} must hold a model, but has no config.json."))
        return path
    if path.exists():
        raise ConfigError(message("load", f"the model {name_or_path} must be a folder or a hub id, but is a file."))
    if not _HUB_ID.fullmatch(name_or_path):
        raise ConfigError(message("load", f"there is no folder {name_or_path}, and it is not a hub id either."))
    return _cached(name_or_path) or _downloaded(name_or_path)


def _cached(hub_id: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(hub_id, "config.json")
    folder = Path(config).parent if isinstance(config, str) else None
    if folder is not None and (any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))):
        return folder
    return None


def _downloaded(hub_id: str) -> Path:
    from huggingface_hub import constants, snapshot_download

    host = urlsplit(constants.ENDPOINT).hostname or constants.ENDPOINT
    nowhere = f"there is no folder {hub_id}, the hub's cache does not hold it, and"
    if constants.HF_HUB_OFFLINE:
        raise ConfigError(message("load", f"{nowhere} HF_HUB_OFFLINE forbids a download."))
    if not _reachable(host):
        raise ConfigError(message("load", f"{nowhere} {host} cannot be reached."))
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=_NEEDED))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(hub_id, allow_patterns=[*_NEEDED, "pytorch_model*.bin"]))
    except (OSError, ValueError) as error:  # huggingface_hub's own errors are OSError or ValueError
        reason = str(error).strip().splitlines()[0][:160]
        raise ConfigError(message("load", f"{nowhere} it could not be downloaded from {host} ({reason}).")) from error
    return folder


def _reachable(host: str) -> bool:
    """Whether the hub answers at all: without a network its client would retry for half a minute."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    try:
        socket.create_connection((host, 443), timeout=_SECONDS).close()
    except OSError:
        return False
    return True
