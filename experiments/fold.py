"""Multiplies the ReZero factors of a model into its matrices.

    python experiments/fold.py MODEL OUT

The function stays the same and all factors are one. Muon leaves small factors before
large matrices; AdamW, whose steps do not depend on the gradient's scale, would then
hardly move the product of both. For models that go on with another optimizer.
"""

import argparse
from pathlib import Path

import torch

from renco.checkpoints import load, save_policy
from renco.model import Block, Policy


@torch.no_grad()
def fold(policy: Policy) -> None:
    """Makes every factor one and scales the matrix behind it."""
    for block in policy.modules():
        if isinstance(block, Block):
            block.out.weight *= block.alpha_attention
            block.down.weight *= block.alpha_ff
            block.alpha_attention.fill_(1.0)
            block.alpha_ff.fill_(1.0)


def main() -> None:
    """Folds one model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="name or folder of a model")
    parser.add_argument("out", type=Path, help="folder of the new model")
    given = parser.parse_args()
    policy = load(given.model)
    fold(policy)
    save_policy(policy, given.out)


if __name__ == "__main__":
    main()
