"""The rows of results: one per instance and method, in `results/SET.csv`.

Needs neither torch nor renco, so that tables can be rendered anywhere.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

METHOD = (
    *("role", "model", "size", "model_sha256", "version"),
    *("search", "k", "width", "n_sub", "limit"),
)
"""What was run: see `Method`."""
STAMP = ("run", "commit", "hardware", "threads", "torch", "peak", "seed")
"""In which run, and where: see `Stamp`."""
COLUMNS = (
    *("date", *STAMP, "dataset", "dataset_sha256", "instance", *METHOD),
    *("cost", "reference", "seconds", "inside", "gflop", "history", "fault"),
)
KEY = (
    *("hardware", "threads", "seed", "dataset", "dataset_sha256", "instance"),
    *METHOD,
)
"""What makes two measurements the same one."""

Row = dict[str, str]


def cell(value: Any) -> str:
    """Returns a value as it stands in a table; nothing for None."""
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def read_table(path: Path) -> list[Row]:
    """Returns the rows of a file; none if there is no file.

    Raises:
        ValueError: It has other columns.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: expected columns {', '.join(COLUMNS)}")
        return list(reader)


def append(path: Path, row: Mapping[str, str]) -> None:
    """Adds a row in one write: rows of parallel runs do not mix."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerow(row)
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text.getvalue())


def key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what tells a measurement from all others."""
    return tuple(row[name] for name in KEY)


def gap(row: Mapping[str, str]) -> float:
    """Returns the relative gap of section 4.1, in percent of the reference."""
    cost, reference = float(row["cost"]), float(row["reference"])
    return 100 * (cost - reference) / abs(reference)


def history(row: Mapping[str, str]) -> list[tuple[float, float]]:
    """Returns when which gap was reached."""
    reference = float(row["reference"])
    points = (point.split(":") for point in row["history"].split())
    return [
        (float(s), 100 * (float(c) - reference) / abs(reference)) for s, c in points
    ]


def tables(folder: Path) -> Iterable[Path]:
    """Returns the files of rows in a folder, by problem and size."""
    found = folder.glob("*-test.csv")
    return sorted(found, key=lambda path: (*problem_and_size(path.stem),))


def problem_and_size(dataset: str) -> tuple[str, int]:
    """Returns problem and size of a test set by its name, `tsp100-test`."""
    match = re.fullmatch(r"([a-z]+)(\d+)-test", dataset)
    if match is None:
        raise ValueError(f"expected a name like tsp100-test, got {dataset!r}")
    return match[1], int(match[2])
