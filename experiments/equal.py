"""Equal minutes of training from scratch: BQ's scheme, ours, LEHD, POMO and MDAM.

    python experiments/equal.py --data LABELS --minutes 10 --out FOLDER

Trains one after the other on one thread, each for the same time: the base model alone,
which is BQ's scheme; a base model for half of the time and a recurrent encoder on top
of it for the other half; LEHD; and POMO and MDAM, which need no labels, if rl4co is
installed.
What is in FOLDER already is not trained again. Then all of them solve instances of the
test set in turn; rows go to `results/equal.csv`, and `render.py` shows them.
"""

import argparse
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch
from methods import Bench, Model, lehd_method, reinforced_method
from peers import lehd, reinforced
from protocol import Method, Plan, Stamp
from rows import RESULTS, Row, gap

from renco.checkpoints import read_config
from renco.data import Trajectories
from renco.searches import ONCE
from renco.testsets import open_data
from renco.training import LOG, SNAPSHOT, Stage, preset, train

TABLE = RESULTS / "equal.csv"
WIDTHS = (1, 16)


def imitate(
    stage: Stage, out: Path, data: Trajectories, minutes: float, base: Path | None
) -> Model:
    """Trains one of our models, or goes on with its training."""
    config = replace(preset("cpu", stage), minutes=minutes)
    unfinished = (out / SNAPSHOT).exists()
    if unfinished or not (out / LOG).exists():
        train(stage, config, data=data, out=out, base=base, resume=unfinished)
        (out / SNAPSHOT).unlink()
    size = config.recurrent or config.base
    k = ONCE if config.recurrent else 1
    return Model(str(out), stage, read_config(out)["sha256"], k, size.name)


def trained(data: Trajectories, minutes: float, out: Path) -> list[Method]:
    """Trains what is missing and returns all methods."""

    def folder(name: str) -> Path:
        return out / f"{name}-{minutes:g}min"

    bq = imitate("base", folder("base"), data, minutes, None)
    imitate("base", folder("half"), data, minutes / 2, None)
    ours = imitate(
        *("recurrent", folder("recurrent"), data, minutes / 2), folder("half")
    )
    found = [
        model.method("greedy" if width == 1 else "beam", width=width)
        for model in (ours, bq)
        for width in WIDTHS
    ]
    if not (folder("lehd") / lehd.ABOUT).exists():
        layers = preset("cpu").base.layers - 1
        lehd.train(data, folder("lehd"), minutes=minutes, layers=layers)
    found += [lehd_method(str(folder("lehd")), how) for how in ("greedy", "rrc10")]
    problem = data.manifest.problem
    if problem not in reinforced.PROBLEMS or find_spec("rl4co") is None:
        print(f"rl4co is left out: not installed, or it does not know {problem}")
        return found
    for name, searches in reinforced.SEARCHES.items():
        place = folder(name)
        if not (place / reinforced.ABOUT).exists():
            # Fewer instances than on a GPU: an update must not take a minute.
            reinforced.train(
                *(name, problem, place), n=data.n, minutes=minutes, batch=16
            )
        found += [reinforced_method(str(place), how) for how in searches]
    return found


def main() -> None:
    """Trains and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="labelled set")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each training")
    parser.add_argument("--out", type=Path, required=True, help="folder of the models")
    parser.add_argument("--instances", type=int, default=16)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data(given.data)
    methods = trained(data, given.minutes, given.out)
    name, device = f"{data.manifest.problem}{data.n}-test", torch.device("cpu")
    stamp = Stamp.here(device)
    plan = Plan(open_data(name), name, given.instances, methods, stamp, TABLE)
    plan.run(Bench(device), say)


def say(row: Row) -> None:
    """Prints how one measurement went."""
    words = [row[name] for name in ("dataset", "instance", "model", "search", "width")]
    print(" ".join(words), f"{gap(row):.2f} % {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
