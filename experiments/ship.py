"""Puts trained models into the package.

    python experiments/ship.py RUN_FOLDER NAME [--default] [--base BASE_NAME]

Copies the weights of a run to `renco/weights/NAME`, with what `config.json` says about
their training. `--default` makes the model the one that `renco solve` takes for its
problem. `--base` also ships the base of a recurrent model, E and D alone: for models
whose parts were trained together.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from renco.checkpoints import SHIPPED, load, read_config, save_policy, shipped
from renco.model import Policy

KEPT = ("training", "base", "init", "validation", "steps")


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


def main() -> None:
    """Ships one model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("name", help="name of the model")
    parser.add_argument("--default", action="store_true", help="use it by default")
    parser.add_argument("--base", help="name to ship the base alone by")
    given = parser.parse_args()
    ship(given.run, given.name, given.default, given.base)


if __name__ == "__main__":
    main()
