"""Strict readers and writers of instances and solutions.

Instances: TSPLIB (`.tsp`), VRPLIB and CVRPLIB (`.vrp`), OPLIB (`.oplib`) and JSON. The
problem follows from the contents; the suffix tells JSON from the others. Solutions:
see `renco.formats.solutions`. Whatever is wrong with a file is one `FormatError`, one
line long, that names file, line and value.
"""

from pathlib import Path

from renco.formats.files import FormatError, failure, read_text
from renco.formats.jsonfile import read_json
from renco.formats.solutions import read_solution
from renco.formats.tsplib import read_lib
from renco.formats.writing import write, write_solution
from renco.problems import Problem

__all__ = [
    "FormatError",
    "read",
    "read_all",
    "read_json",
    "read_solution",
    "write",
    "write_solution",
]


def read(path: str | Path) -> Problem:
    """Returns the instance of a file.

    Args:
        path: A file of TSPLIB, VRPLIB, OPLIB, or JSON (suffix `.json`).

    Raises:
        FormatError: The file cannot be read, is malformed or not supported.
    """
    instances = read_all(path)
    if len(instances) != 1:
        what = f"has {len(instances)} instances where one is expected"
        raise failure(str(path), what)
    return instances[0]


def read_all(path: str | Path) -> list[Problem]:
    """Returns all instances of a file; only JSON can have more than one.

    Raises:
        FormatError: As for `read`.
    """
    source, text = str(path), read_text(path)
    if Path(path).suffix.lower() == ".json":
        return read_json(text, source)
    return [read_lib(text, source)]
