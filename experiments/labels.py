"""The label sets that the shipped models learnt from and are measured on, by name.

    python experiments/labels.py make cvrp100 --out FOLDER     # hours: what is missing
    python experiments/labels.py pack FOLDER --out FILE        # keep: seed and tours
    python experiments/labels.py unpack FILE --out FOLDER      # seconds: as it was
    python experiments/labels.py best FOLDER FOLDER --out NEW  # the better of labels
    python experiments/labels.py ship SETS --out renco/testsets  # all test sets there

Corrections, which `renco correct` wrote, are packed and unpacked alike: their folder
becomes a folder of files. Training sets have seed 1, test sets 10000 + n, validation
sets 20000 + n. The test sets are shipped with the package, in `renco/testsets`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from renco.dagger import Corrections
from renco.data import OWN, PARTS, Trajectories, write_set
from renco.files import write_atomic
from renco.generate import generate
from renco.packing import pack, unpack
from renco.progress import ProgressBar
from renco.storage import array_bytes, read_rows

PACKED = Path(__file__).parent / "labels"
NOTE = "one run of the expert per instance, on one core of a shared machine"
COUNTS = {100: 256, 200: 64, 500: 16, 1000: 8}
TEST_SECONDS = {
    "tsp": {100: 0.25, 200: 1.0, 500: 5.0, 1000: 10.0},
    "cvrp": {100: 1.5, 200: 5.0, 500: 10.0, 1000: 20.0},
    "op": {100: 1.5, 200: 3.0, 500: 5.0, 1000: 10.0},
}

SETS: dict[str, dict[str, Any]] = {
    "tsp100": {
        "problem": "tsp", "n": 100, "count": 27_605, "seed": 1,
        "expert": "fast-tsp", "seconds": 0.02,
    },
    "cvrp100": {
        "problem": "cvrp", "n": 100, "count": 6_551, "seed": 1,
        "expert": "hygese", "seconds": 0.15, "capacity": 50,
    },
    "cvrp100-mixed": {
        "problem": "cvrp", "n": 100, "count": 955, "seed": 1, "first": 1_000_000,
        "expert": "hygese", "seconds": 0.15, "capacity": (20, 250),
    },
    "op100": {
        "problem": "op", "n": 100, "count": 8_216, "seed": 1,
        "expert": "auto", "seconds": 0.35,
    },
    "cvrp100-more": {
        "problem": "cvrp", "n": 100, "count": 33_449, "seed": 1, "first": 6_551,
        "expert": "hygese", "seconds": 0.1, "capacity": 50,
    },
    "cvrp100-mixed-more": {
        "problem": "cvrp", "n": 100, "count": 19_045, "seed": 1, "first": 1_000_955,
        "expert": "hygese", "seconds": 0.1, "capacity": (20, 250),
    },
    "op100-more": {
        "problem": "op", "n": 100, "count": 21_784, "seed": 1, "first": 8_216,
        "expert": "auto", "seconds": 0.2,
    },
    "tsp100-more": {
        "problem": "tsp", "n": 100, "count": 472_395, "seed": 1, "first": 27_605,
        "expert": "fast-tsp", "seconds": 0.01,
    },
    "tsp200": {
        "problem": "tsp", "n": 200, "count": 8_000, "seed": 1,
        "expert": "fast-tsp", "seconds": 0.02,
    },
    "tsp100-val": {"problem": "tsp", "n": 100, "count": 512, "seconds": 0.05},
    "cvrp100-val": {"problem": "cvrp", "n": 100, "count": 128, "seconds": 1.0},
    "op100-val": {"problem": "op", "n": 100, "count": 128, "seconds": 1.0},
}  # fmt: skip
for _problem, _seconds in TEST_SECONDS.items():
    SETS[f"{_problem}100-val"]["seed"] = 20_000 + 100
    for _n, _count in COUNTS.items():
        SETS[f"{_problem}{_n}-test"] = {
            "problem": _problem,
            "n": _n,
            "count": _count,
            "seed": 10_000 + _n,
            "seconds": _seconds[_n],
            "note": NOTE,
        }


def make(name: str, out: Path, workers: int | None) -> None:
    """Makes a set, or continues it; what is packed already is not made again."""
    packed = PACKED / f"{name}.bin"
    if packed.exists() and not out.exists():
        begin(packed, out)
    with ProgressBar(name) as bar:
        generate(out=out, workers=workers, progress=bar, **SETS[name])


def begin(packed: Path, out: Path) -> None:
    """Restores the labels of a set that was packed before it was finished."""
    with TemporaryDirectory() as folder:
        data = unpack(packed, Path(folder) / "set")
        rows, chunk = data.records(slice(None)), data.manifest.chunk
        (out / PARTS).mkdir(parents=True)
        for start in range(0, len(rows), chunk):
            part = rows[start : start + chunk]
            name = f"{part['index'][0]:09d}.npy"
            write_atomic(out / PARTS / name, array_bytes(part))


def best(folders: Sequence[Path], out: Path, note: str) -> None:
    """Writes, for each instance, the cheapest of the labels of several sets."""
    sets = [Trajectories(folder) for folder in folders]
    if len({data.sha256 for data in sets}) != 1:
        raise SystemExit("the sets do not have the same instances")
    rows = np.stack([data.records(slice(None)) for data in sets])
    choice = rows["cost"].argmin(0)
    chosen = rows[choice, np.arange(rows.shape[1])]
    out.mkdir(parents=True)
    write_set(out, replace(sets[0].manifest, note=note), [chosen])
    wins = np.bincount(choice, minlength=len(sets))
    print(f"mean costs {[data.costs.mean() for data in sets]}, chosen {wins}")


def keep(source: Path, out: Path) -> None:
    """Packs a set, or all sets of a folder of corrections."""
    parts = sorted(path.parent for path in source.glob(f"*/{OWN}"))
    if not parts:
        pack(Trajectories(source, partial=True), out)
        return
    out.mkdir(parents=True)
    for part in parts:
        given = Corrections.read(part)
        pack(given.data, out / f"{part.name}.bin")
        write_atomic(out / f"{part.name}.{OWN}", array_bytes(given.own))


def restore(source: Path, out: Path) -> None:
    """Restores what was packed; of corrections as far as they had no gap."""
    if source.is_file():
        unpack(source, out)
        return
    for packed in sorted(source.glob("*.bin")):
        part = out / packed.stem
        count = len(unpack(packed, part))
        own = read_rows(packed.with_suffix(f".{OWN}"), np.dtype(np.int64))[:count]
        write_atomic(part / OWN, array_bytes(own))
        Corrections.read(part)


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["make", "pack", "unpack", "best", "ship"])
    parser.add_argument("source", nargs="+", help="name, folder or file")
    parser.add_argument("--out", type=Path, required=True, help="what to write")
    parser.add_argument("--workers", type=int, help="processes (default: all cores)")
    parser.add_argument("--note", default="", help="remark for the manifest of best")
    given = parser.parse_args()
    if given.command == "make":
        make(given.source[0], given.out, given.workers)
    elif given.command == "pack":
        keep(Path(given.source[0]), given.out)
    elif given.command == "unpack":
        restore(Path(given.source[0]), given.out)
    elif given.command == "ship":
        for name in sorted(SETS):
            folder = Path(given.source[0]) / name
            if name.endswith("-test") and (folder / "shard-00000.npy").exists():
                data = Trajectories(folder)
                data.verify()
                pack(data, given.out / f"{name}.bin")
                print(f"{name}: {len(data)} instances, mean {data.manifest.mean_cost}")
    else:
        best([Path(folder) for folder in given.source], given.out, given.note)


if __name__ == "__main__":
    main()
