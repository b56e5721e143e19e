"""Records in `.npy` files, which say so when they are damaged."""

import io
from pathlib import Path

import numpy as np
from numpy import ndarray

from renco.files import sha256


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


def file_hash(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    try:
        return sha256(path)
    except OSError as error:
        raise DamagedData(f"{path}: {error.strerror}") from None
