"""What each idea of the training is worth, at equal time (experiments/LOG.md).

    python experiments/ablate.py base --data DIR --val DIR --minutes 5 [VARIANT ...]
    python experiments/ablate.py recurrent --base MODEL --data DIR --val DIR --minutes 5

Trains each variant for the same wall-clock time, one after the other in random order,
and appends a row to `experiments/results/ablations.csv`. The first variant is the
preset `cpu`; every other one differs from it in what its name says. Nothing else may
run on the machine's cores; with one thread each, two commands may share two cores.
"""

import argparse
import csv
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from renco.evaluate import commit, hardware
from renco.model import PLANS, EncoderConfig
from renco.sampling import Slices
from renco.testsets import open_data
from renco.training import PRESETS, TrainConfig, preset, train

RESULTS = Path(__file__).parent / "results" / "ablations.csv"
_U = PRESETS["cpu"].recurrent or EncoderConfig()
JOINT = {"joint": True, "recurrent": _U, "slices": Slices(tokens=512)}
NONE = dict.fromkeys(("zoom", "relative", "neighbors", *PLANS, "geometry"), False)
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "base": {
        "cpu": {},
        "paper": NONE | {"slices": Slices(curriculum=0.0)},
        "no zoom": {"zoom": False},
        "no relative": {"relative": False},
        "no neighbors": {"neighbors": False},
        "no trees": {"trees": False},
        "no savings": {"savings": False},
        "no insertions": {"insertions": False},
        "no geometry": {"geometry": False},
        "muon": {"optimizer": "muon"},
        "no curriculum": {"slices": Slices(curriculum=0.0)},
        "rotate": {"slices": Slices(rotate=1.0)},
        "links 0.5": {"links": 0.5},
        "joint": JOINT,
        "joint, four windows": JOINT | {"windows": 4},
        "joint, ten windows": JOINT | {"windows": 10},
        "joint, ten windows, no neighbors": JOINT | {"windows": 10, "neighbors": False},
        "no average": {"average": 0.0},
        "half the batch": {"slices": Slices(tokens=1024)},
        "all layers from the start": {"grow": 0.0},
        "rate 2e-3": {"learning_rate": 2e-3},
        "four layers": {"base": replace(PRESETS["cpu"].base, layers=4)},
    },
    "recurrent": {
        "cpu": {},
        "muon": {"optimizer": "muon"},
        "four times the batch": {"slices": Slices()},
        "distill 0.5": {"distill": 0.5},
        "k 5": {"k": 5},
        "k 20": {"k": 20},
        "ten windows": {"windows": 10},
        "one layer": {"recurrent": replace(_U, layers=1)},
        "four layers": {"recurrent": replace(_U, layers=4)},
    },
}
COLUMNS = (
    *(
        "stage",
        "variant",
        "problem",
        "labels",
        "base",
        "init",
        "minutes",
        "threads",
        "seed",
    ),
    *("samples", "val_ce", "val_gap", "val_ce_recurrent", "val_gap_recurrent"),
    *("gap_instances", "commit", "hardware"),
)


def measure(name: str, config: TrainConfig, given: argparse.Namespace) -> None:
    """Trains one variant and writes its row."""
    data = open_data(given.data)
    with tempfile.TemporaryDirectory() as folder:
        policy = train(
            *(given.stage, config),
            data=data,
            val=open_data(given.val),
            base=given.base,
            init=given.init,
            corrections=given.corrections,
            out=Path(folder) / "run",
        )
        last = (Path(folder) / "run" / "log.jsonl").read_text().splitlines()[-1]
        record = json.loads(last)
    row = {
        "stage": given.stage,
        "variant": name + " + corrections" * bool(given.corrections),
        "problem": data.manifest.problem + str(data.n),
        "labels": len(data),
        "base": given.base and Path(given.base).name,
        "init": given.init and Path(given.init).name,
        "minutes": given.minutes,
        "threads": given.threads,
        "seed": config.seed,
        "gap_instances": config.gap_instances,
        "commit": commit(),
        "hardware": hardware(policy),
        **{key: record[key] for key in COLUMNS if key in record},
    }
    append(row)


def append(row: dict[str, Any]) -> None:
    """Adds a row to the results."""
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def chosen(stage: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the variants asked for, or all."""
    known = VARIANTS[stage]
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown variant {name!r}: there are {', '.join(known)}")
    return {name: known[name] for name in names or known}


def main() -> None:
    """Trains the variants of one stage."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=[*VARIANTS])
    parser.add_argument("variants", nargs="*", help="default: all")
    parser.add_argument("--data", required=True, help="labelled set")
    parser.add_argument("--val", required=True, help="labelled set to validate on")
    parser.add_argument("--base", help="base model of stage recurrent")
    parser.add_argument("--init", help="model to begin with")
    parser.add_argument("--corrections", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_intermixed_args()
    torch.set_num_threads(given.threads)
    todo = [*chosen(given.stage, given.variants).items()]
    random.shuffle(todo)
    start = replace(
        preset("cpu", given.stage),
        minutes=given.minutes,
        seed=given.seed,
        validate_every=60.0 * given.minutes,
        gap_instances=128,
    )
    for name, changes in todo:
        print(f"{given.stage}, {name}: {given.minutes} minutes", flush=True)
        measure(name, replace(start, **changes), given)


if __name__ == "__main__":
    main()
