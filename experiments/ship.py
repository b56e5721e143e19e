"""Puts trained models into the package.

    python experiments/ship.py RUN_FOLDER NAME [--default] [--base BASE_NAME]
    python experiments/ship.py --measured       # after experiments/run.py

Copies the weights of a run to `renco/weights/NAME`, with what `config.json` says about
their training. `--default` makes the model the one that `renco solve` takes for its
problem. `--base` also ships the base of a recurrent model, E and D alone: for models
whose parts were trained together. `--measured` writes the gaps that rows of results
have for the shipped weights into their `config.json`, where `renco models` finds them.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean

from rows import RESULTS, gap, read_table, tables

from renco.checkpoints import (
    CONFIG,
    SHIPPED,
    load,
    read_config,
    save_policy,
    shipped,
    write_json,
)
from renco.model import Policy

KEPT = ("training", "base", "init", "validation", "steps", "averaged")


def ship(run: Path, name: str, default: bool, base: str | None = None) -> None:
    """Writes the weights of a run into the package."""
    policy, config = load(run), read_config(run)
    info = {key: config[key] for key in KEPT if key in config}
    if base is not None:
        measured = config.get("validation", {})
        own = {key: measured[key] for key in ("val_ce", "val_gap") if key in measured}
        save_policy(alone(policy), SHIPPED / base, **info | {"validation": own})
        about = read_config(base)
        info["base"] = {key: about[key] for key in ("name", "sha256")}
    if default:
        for other in shipped():
            about = read_config(other)
            if about["policy"]["problem"] == policy.config.problem:
                retire(other)
        info["default"] = True
    save_policy(policy, SHIPPED / name, **info)
    print("tests refuse weights without rows: experiments/run.py, then --measured")


def alone(policy: Policy) -> Policy:
    """Returns E and D of a policy, without U."""
    found = Policy(replace(policy.config, recurrent=None))
    known = policy.state_dict()
    found.load_state_dict({name: known[name] for name in found.state_dict()})
    return found


def retire(name: str) -> None:
    """Makes a shipped model no longer the default."""
    config = read_config(name)
    if config.pop("default", False):
        save_policy(
            load(name), SHIPPED / name, **{k: config[k] for k in KEPT if k in config}
        )


def measured(sha256: str, folder: Path = RESULTS) -> dict[str, dict[str, float]]:
    """Returns the mean gaps of weights, by test set and by search.

    Constructions only, a recurrent model's with one base encoding (k = 1000).
    """
    found: dict[str, dict[str, list[float]]] = {}
    for path in tables(folder):
        for row in read_table(path):
            own = row["model_sha256"] and sha256.startswith(row["model_sha256"])
            usual = row["role"] != "recurrent" or row["k"] == "1000"
            if own and usual and row["cost"] and row["search"] in ("greedy", "beam"):
                search = "greedy" if row["width"] == "1" else f"beam {row['width']}"
                by_search = found.setdefault(path.stem, {})
                by_search.setdefault(search, []).append(gap(row))
    return {
        dataset: {name: round(mean(gaps), 3) for name, gaps in sorted(by.items())}
        for dataset, by in found.items()
    }


def state_gaps() -> None:
    """Writes the measured gaps of all shipped models into their configs."""
    for name in shipped():
        config = read_config(name)
        config.pop("gaps", None)
        if gaps := measured(config["sha256"]):
            config["gaps"] = gaps
        write_json(SHIPPED / name / CONFIG, config)


def main() -> None:
    """Ships one model, or states what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?", help="folder of a training run")
    parser.add_argument("name", nargs="?", help="name of the model")
    parser.add_argument("--measured", action="store_true", help="state the gaps")
    parser.add_argument("--default", action="store_true", help="use it by default")
    parser.add_argument("--base", help="name to ship the base alone by")
    given = parser.parse_args()
    if given.measured:
        state_gaps()
    elif given.name is None:
        parser.error("give the folder of a run and a name, or --measured")
    else:
        ship(given.run, given.name, given.default, given.base)


if __name__ == "__main__":
    main()
