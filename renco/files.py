"""Files that are either whole or not there."""

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes) -> None:
    """Writes a file so that a crash leaves the old one or the new one, whole.

    Raises:
        OSError: The disk is full or the folder cannot be written; the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power failure, where that is possible."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Writes readable JSON, atomically."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomic(path, text.encode())


def sha256(path: Path) -> str:
    """Returns the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
