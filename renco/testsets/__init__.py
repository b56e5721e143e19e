"""The test sets that come with the package, by name: `tsp100-test`, `op1000-test`, ...

Each is a packed set (`renco.packing`): the instances are drawn again from their seed,
10000 + n, which no training set uses, and compared with a hash. The solutions are the
best that a freely available expert found in the time that the manifest states; they
are references, not proven optima.
"""

import os
import re
from functools import lru_cache
from pathlib import Path

from renco.data import OWN, Trajectories
from renco.manifest import MANIFEST
from renco.packing import open_packed

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Returns the names of all shipped test sets, by problem and size."""
    found = [path.stem for path in _FOLDER.glob("*.bin")]
    return sorted(found, key=lambda name: (re.sub(r"\d", "", name), len(name), name))


@lru_cache(maxsize=4)
def load_testset(name: str) -> Trajectories:
    """Opens a shipped test set.

    Raises:
        ValueError: There is no test set of that name.
        DamagedData: The file was altered.
    """
    if name not in names():
        known = ", ".join(names())
        raise ValueError(f"unknown test set {name!r}: there are {known}")
    return open_packed(_FOLDER / f"{name}.bin")


def open_data(source: str | os.PathLike[str], *, partial: bool = False) -> Trajectories:
    """Opens a folder, a packed file, or a shipped test set by its name.

    Args:
        source: Path or name; a path that exists wins.
        partial: Also open a folder that is still being made.

    Raises:
        FileNotFoundError: It is neither a path nor the name of a test set.
        DamagedData: Files are altered or missing.
    """
    path = Path(source)
    if path.is_dir():
        return Trajectories(path, partial=partial)
    if path.is_file():
        return open_packed(path)
    if str(source) in names():
        return load_testset(str(source))
    known = ", ".join(names())
    raise FileNotFoundError(f"{source} is no folder, and no test set: {known}")


def open_sets(source: str | os.PathLike[str]) -> list[Trajectories]:
    """Opens what `open_data` does, or all sets in a folder of sets.

    Corrections are left out: not all of their decisions are an expert's.

    Raises:
        FileNotFoundError: There is nothing to open.
        DamagedData: Files are altered or missing.
    """
    inside = sorted(path.parent for path in Path(source).glob(f"*/{MANIFEST}"))
    sets = [Trajectories(path) for path in inside if not (path / OWN).exists()]
    return sets or [open_data(source)]
