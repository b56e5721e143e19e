"""Puts trained models into the package.

    python experiments/ship.py RUN_FOLDER NAME [--default]

Copies the weights of a run to `renco/weights/NAME`, with what `config.json` says about
their training. `--default` makes the model the one that `renco solve` takes for its
problem.
"""

import argparse
from pathlib import Path

from renco.checkpoints import SHIPPED, load, read_config, save_policy, shipped

KEPT = ("training", "base", "init", "validation", "steps")


def ship(run: Path, name: str, default: bool) -> None:
    """Writes the weights of a run into the package."""
    policy, config = load(run), read_config(run)
    info = {key: config[key] for key in KEPT if key in config}
    if default:
        for other in shipped():
            about = read_config(other)
            if about["policy"]["problem"] == policy.config.problem:
                retire(other)
        info["default"] = True
    save_policy(policy, SHIPPED / name, **info)


def retire(name: str) -> None:
    """Makes a shipped model no longer the default."""
    config = read_config(name)
    if config.pop("default", False):
        save_policy(
            load(name), SHIPPED / name, **{k: config[k] for k in KEPT if k in config}
        )


def main() -> None:
    """Ships one model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("name", help="name of the model")
    parser.add_argument("--default", action="store_true", help="use it by default")
    given = parser.parse_args()
    ship(given.run, given.name, given.default)


if __name__ == "__main__":
    main()
