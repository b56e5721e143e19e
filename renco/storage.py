"""Files that are whole or absent, and that say so when they are damaged."""

import hashlib
import io
import os
import secrets
from pathlib import Path

import numpy as np
from numpy import ndarray


class DamagedData(ValueError):
    """Files of a set are missing, truncated or altered; the message names them."""


def read_rows(path: Path, layout: np.dtype, *, mmap: bool = False) -> ndarray:
    """Reads records, refusing files that are truncated or of another layout."""
    try:
        rows = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DamagedData(f"{path}: {error}") from None
    if rows.dtype != layout or rows.ndim != 1:
        raise DamagedData(f"{path}: not {layout.itemsize}-byte records of this set")
    return np.asarray(rows)


def array_bytes(rows: ndarray) -> bytes:
    """Returns an array as the bytes of an `.npy` file."""
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    return buffer.getvalue()


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that is either there completely or not at all.

    Raises:
        OSError: It cannot be written; a file that was there before is unchanged.
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


def file_hash(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedData(f"{path}: {error.strerror}") from None
