"""Thirty minutes of two cores, from scratch: how good is a model of the TSP then?

    python experiments/half_hour.py --data LABELS --val LABELS --out FOLDER

Three steps, trainings in processes of one thread: E, D and U of preset
`cpu` learn together from scratch for a third of the time (`train/half_hour_1.toml`); an
expert finishes what U begins on fresh instances (`renco correct`), and weighs what it
doubts on others (`renco weigh`); they go on, in part with these corrections and regrets
(`train/half_hour_2.toml`). The clock runs from the first command
to the end of the last, starts and validations included. Rows of `results/half_hour.csv`
are then measured on LABELS of the validation: greedy construction and beams of 16.
Nothing else may run meanwhile.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from time import monotonic

from renco.checkpoints import load
from renco.evaluate import append_row, evaluate
from renco.searches import ONCE, SearchOptions
from renco.testsets import open_data

HERE = Path(__file__).parent
TABLE = HERE / "results" / "half_hour.csv"
FIRST = 1 / 3
"""Part of the time before corrections."""
CORRECTED, WEIGHED = 512, 512
"""Fresh instances of which U begins solutions, and of which its doubts are weighed."""
START = 10
"""Seconds of a training that its own clock does not count."""
INSTANCES = {1: 256, 16: 64}
"""How many instances are measured, by beam width."""


def renco(*words: object, processes: int | None = None) -> None:
    """Runs a command, in several processes if asked for."""
    several = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    start = [*several, "-m", "renco"] if processes else ["renco"]
    command = [sys.executable, "-m", *start, *map(str, words)]
    print(" ".join(command[1:]), flush=True)
    subprocess.run(command, check=True)


def train(given: argparse.Namespace) -> float:
    """Runs the three steps and returns the minutes they took."""
    out, began = given.out, monotonic()
    several = given.processes
    known = ("--data", given.data, "--val", given.val, "--threads", 1)
    renco(
        *("train", "base", *known, "--out", out / "first"),
        *("--config", HERE / "train" / "half_hour_1.toml"),
        *("--minutes", FIRST * given.minutes),
        processes=several,
    )
    for name, count, seed, *how in (
        ("own", CORRECTED, 9301, "correct"),
        ("weighed", WEIGHED, 9302, "weigh", "--doubt", 0.2, "--rivals", 2),
    ):
        fresh = out / f"{name}-fresh"
        renco(
            *("generate", "tsp", "--n", 100, "--count", count, "--expert", "none"),
            *("--seed", seed, "--out", fresh),
        )
        renco(
            *(*how, "--model", out / "first", "--data", fresh),
            *("--out", out / name, "--workers", several),
        )
    left = given.minutes - (monotonic() - began + START) / 60
    renco(
        *("train", "base", *known, "--out", out / "last"),
        *("--config", HERE / "train" / "half_hour_2.toml", "--init", out / "first"),
        *("--corrections", out / "own", "--regrets", out / "weighed"),
        *("--minutes", left),
        processes=several,
    )
    return (monotonic() - began) / 60


def main() -> None:
    """Trains and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="labelled set of TSP100")
    parser.add_argument("--val", required=True, help="labelled set to measure on")
    parser.add_argument("--out", type=Path, required=True, help="folder of the models")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    took, val = train(given), open_data(given.val)
    trained = f"trained for {took:.1f} minutes on {given.processes} cores"
    for k in (ONCE, 1):
        for width, count in INSTANCES.items():
            found = evaluate(
                load(given.out / "last"),
                val,
                search="beam" if width > 1 else "greedy",
                options=SearchOptions(k=k, beam=width if width > 1 else None),
                limit=count,
                batch=64 // width,
                limits=trained,
            )
            append_row(TABLE, found.row())
            print(f"k {k}, {width} beams: {found.gap_mean:.2f} %", flush=True)


if __name__ == "__main__":
    main()
