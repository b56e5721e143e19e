"""The label sets that the shipped models learnt from, by name.

    python experiments/labels.py make tsp100 --out FOLDER     # hours: solve again
    python experiments/labels.py pack FOLDER --file FILE      # keep: seed and tours
    python experiments/labels.py unpack tsp100 --out FOLDER   # seconds: as it was

Training sets have seed 1, validation sets 20000 + n, test sets 10000 + n (these are
shipped with the package: `renco.testsets`).
"""

import argparse
from pathlib import Path
from typing import Any

from renco.generate import generate
from renco.progress import ProgressBar

PACKED = Path(__file__).parent / "labels"

SETS: dict[str, dict[str, Any]] = {
    "tsp100": {
        "problem": "tsp", "n": 100, "count": 150_000, "seed": 1,
        "expert": "fast-tsp", "seconds": 0.02,
    },
    "cvrp100": {
        "problem": "cvrp", "n": 100, "count": 8_000, "seed": 1,
        "expert": "hygese", "seconds": 0.5, "capacity": 50,
    },
    "cvrp100-mixed": {
        "problem": "cvrp", "n": 100, "count": 4_000, "seed": 1, "first": 1_000_000,
        "expert": "hygese", "seconds": 0.5, "capacity": (20, 250),
    },
    "op100": {
        "problem": "op", "n": 100, "count": 6_000, "seed": 1,
        "expert": "auto", "seconds": 1.0,
    },
}  # fmt: skip


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["make"])
    parser.add_argument("name", help="a set, or a folder to pack")
    parser.add_argument("--out", type=Path, help="folder to write")
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    arguments = parser.parse_args()
    with ProgressBar(arguments.name) as bar:
        generate(
            out=arguments.out,
            workers=arguments.workers,
            progress=bar,
            **SETS[arguments.name],
        )


if __name__ == "__main__":
    main()
