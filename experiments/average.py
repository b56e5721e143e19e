"""Averages the weights of a model and of one that was trained on from it.

    python experiments/average.py BEFORE AFTER OUT

Where a training has moved a model to other instances, the mean of both often keeps what
each is good at (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022). OUT
says of its training what AFTER says, and which weights were averaged.
"""

import argparse
from pathlib import Path

import torch

from renco.checkpoints import load, read_config, save_policy
from renco.model import Policy


@torch.no_grad()
def average(before: Policy, after: Policy) -> None:
    """Moves the weights of a policy half-way back to those of another.

    Raises:
        ValueError: They are not of the same kind.
    """
    if before.config != after.config:
        raise ValueError(f"{before.name} and {after.name} have different settings")
    known = before.state_dict()
    for name, value in after.state_dict().items():
        value.lerp_(known[name], 0.5)


def main() -> None:
    """Averages two models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", help="name or folder of a model")
    parser.add_argument("after", help="the same of the one that was trained on")
    parser.add_argument("out", type=Path, help="folder of the new model")
    given = parser.parse_args()
    policy = load(given.after)
    configs = [read_config(name) for name in (given.before, given.after)]
    average(load(given.before), policy)
    kept = {key: configs[1][key] for key in ("training", "init", "steps")}
    averaged = [config["sha256"] for config in configs]
    save_policy(policy, given.out, **kept, averaged=averaged)


if __name__ == "__main__":
    main()
