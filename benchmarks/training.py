"""How fast training is: against a plain loop, and against the machine's peak.

    python benchmarks/training.py --data DIR [--threads 2] [--rounds 3]

The plain loop is what one writes first for the same network and the same slices:
separate projections, scores times softmax, norms and residuals as they stand in the
paper, AdamW parameter by parameter, and slices of all lengths padded to the longest
of their batch. `plain, no padding` has one length per batch, as our loop has. These
are in float32; `ours, bfloat16` has matrix products in bfloat16, in blocks that are
compiled where that is possible (`renco versions`). All are measured in turn, with the
same number of slices per batch. `joint` trains E, D and U together, through ten steps.
The last line is JSON; `peak` is the share of the fastest matrix product in float32 here
that the model's own matrix products amount to.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from renco.data import Trajectories
from renco.model import PLANS, EncoderConfig, Policy, PolicyConfig, View, view
from renco.optim import optimizers
from renco.sampling import Sampler, Slices
from renco.training import base_loss, preset, recurrent_losses


class PlainBlock(nn.Module):
    """The block of the paper, operation by operation."""

    def __init__(self, size: EncoderConfig) -> None:
        """Builds the block."""
        super().__init__()
        self.heads, d = size.heads, size.d
        self.norms = nn.ModuleList(nn.RMSNorm(d) for _ in range(2))
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, size.ff), nn.Linear(size.ff, d)
        self.alpha = nn.Parameter(torch.full((2,), 0.1))
        self.slope = nn.Parameter(torch.ones(size.heads, 1, 1))

    def forward(self, x: Tensor, square: Tensor, mask: Tensor) -> Tensor:
        """Returns x plus attention plus feed-forward."""
        batch, n, d = x.shape
        h = self.norms[0](x)
        q, k, v = (
            f(h).view(batch, n, self.heads, -1).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(d // self.heads)
        scores = scores - self.slope * square[:, None]
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, n, d)
        x = x + self.alpha[0] * self.out(mixed)
        return x + self.alpha[1] * self.down(torch.relu(self.up(self.norms[1](x))))


class Plain(nn.Module):
    """A base encoder and decoder made of plain blocks."""

    def __init__(self, policy: Policy) -> None:
        """Takes sizes and embedding from a policy."""
        super().__init__()
        size = policy.config.base
        self.init = policy.base.init
        self.blocks = nn.ModuleList(PlainBlock(size) for _ in range(size.layers))
        self.decoder = nn.Linear(size.d, 1)

    def loss(self, seen: Any, mask: Tensor) -> Tensor:
        """Returns the cross-entropy of the next node, always at position 1."""
        h = self.init(seen)
        square = torch.cdist(seen.xy, seen.xy).square()
        for block in self.blocks:
            h = block(h, square, mask)
        scores = self.decoder(h)[..., 0].masked_fill(~mask, -torch.inf)
        scores[:, 0] = -torch.inf
        return -scores.log_softmax(-1)[:, 1].mean()


def peak(seconds: float = 1.0) -> float:
    """Returns the fastest matrix product of this machine, in FLOP/s."""
    best = 0.0
    for n in (512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        ends = time.perf_counter() + seconds / 3
        while time.perf_counter() < ends:
            began = time.perf_counter()
            a @ b
            best = max(best, 2 * n**3 / (time.perf_counter() - began))
    return best


class Work(NamedTuple):
    """What a step of a loop has done."""

    samples: int
    nodes: int
    flops: float


def flops(size: EncoderConfig, nodes: int) -> float:
    """Returns the matrix products of one slice, forward and backward."""
    linear = 2 * nodes * (4 * size.d**2 + 2 * size.d * size.ff)
    attention = 4 * nodes**2 * size.d
    return 3.0 * size.layers * (linear + attention)


def padded(data: Trajectories, rows: int, config: PolicyConfig) -> Iterator[Any]:
    """Yields batches of slices of any length, padded to the longest of them."""
    rng = np.random.default_rng(0)
    while True:
        sizes = rng.integers(5, data.nodes, rows, endpoint=True)
        problem, decisions = data.batch(rng.integers(0, len(data), rows))
        parts = []
        for row, nodes in enumerate(sizes):
            state, _ = problem[row].slices(decisions[row : row + 1], int(nodes), rng)
            parts.append(view(state, config))
        longest = int(sizes.max())

        def filled(x: Tensor, longest: int = longest) -> Tensor:
            return nn.functional.pad(x, (0, 0, 0, longest - x.shape[1]))

        joined = View(
            s=torch.cat([filled(part.s) for part in parts]),
            xy=torch.cat([filled(part.xy) for part in parts]),
            unit=torch.cat([part.unit for part in parts]),
            scale=torch.cat([part.scale for part in parts]),
            n=torch.cat([part.n for part in parts]),
            mask=None,
        )
        mask = torch.arange(longest)[None] < torch.from_numpy(sizes)[:, None]
        yield joined, mask, sizes


def update(found: list[torch.optim.Optimizer], loss: Tensor, module: nn.Module) -> None:
    """Takes one step."""
    for optimizer in found:
        optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    for optimizer in found:
        optimizer.step()


def loops(data: Trajectories) -> dict[str, Callable[[], Work]]:
    """Returns loops by name; each call is one step."""
    # Plans of other algorithms take the same time in every loop.
    config = replace(preset("cpu", "base"), **dict.fromkeys(PLANS, False))
    start = data.instances([0]).start()
    wanted = PolicyConfig.for_state(
        start,
        base=config.base,
        zoom=config.zoom,
        relative=config.relative,
        neighbors=config.neighbors,
        geometry=config.geometry,
    )
    plain, unpadded = Plain(Policy(wanted)), Plain(Policy(wanted))
    how = Slices(curriculum=0.0)
    sampler = Sampler([(data, np.arange(len(data)))], how, 0)
    slow, middle = (
        [torch.optim.AdamW(p.parameters(), foreach=False)] for p in (plain, unpadded)
    )
    # As many slices as our batches have on average.
    rows = how.tokens // ((how.shortest + data.nodes) // 2)
    batches = padded(data, rows, wanted)
    steps = iter(range(1 << 30))

    def work(sizes: list[int]) -> Work:
        return Work(len(sizes), sum(sizes), sum(flops(config.base, n) for n in sizes))

    def our_step(precision: str) -> Callable[[], Work]:
        ours = Policy(wanted).mix(precision)
        fast = optimizers(ours, config.optimizer, 1e-3, 0.01)

        def step() -> Work:
            state, actions, _ = sampler.batch(next(steps), 1.0, torch.device("cpu"))
            update(fast, base_loss(ours, state, actions), ours)
            return work([state.node.shape[1]] * len(actions))

        return step

    def joint_step(precision: str) -> Callable[[], Work]:
        small = preset("cpu", "recurrent").recurrent
        ours = Policy(replace(wanted, recurrent=small)).mix(precision)
        fast = optimizers(ours, config.optimizer, 1e-3, 0.01)
        # Batches as small as those that U learns from.
        few = Sampler([(data, np.arange(len(data)))], replace(how, tokens=512), 0)

        def step() -> Work:
            state, actions, _ = few.batch(next(steps), 1.0, torch.device("cpu"))
            losses = recurrent_losses(ours, state, actions, config.k, through_base=True)
            update(fast, next(losses), ours)
            rows, n = state.node.shape
            later = [n - i for i in range(1, min(config.k + 1, actions.shape[1]))]
            own = flops(config.base, n) + sum(flops(small, size) for size in later)
            return Work(rows, rows * (n + sum(later)), rows * own)

        return step

    def plain_step() -> Work:
        seen, mask, sizes = next(batches)
        update(slow, plain.loss(seen, mask), plain)
        return work([int(size) for size in sizes])

    def unpadded_step() -> Work:
        state, *_ = sampler.batch(next(steps), 1.0, torch.device("cpu"))
        seen = view(state, wanted)
        mask = torch.ones(seen.s.shape[:2], dtype=torch.bool)
        update(middle, unpadded.loss(seen, mask), unpadded)
        return work([state.node.shape[1]] * len(mask))

    return {
        "ours": our_step("float32"),
        "ours, bfloat16": our_step("bfloat16"),
        "joint": joint_step("float32"),
        "joint, bfloat16": joint_step("bfloat16"),
        "plain": plain_step,
        "plain, no padding": unpadded_step,
    }


def main() -> None:
    """Measures, prints a table, and JSON on the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="labelled TSP set")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="per round and loop")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    most = peak()
    rates: dict[str, list[tuple[float, float, float]]] = {}
    for number in range(given.rounds + 1):
        for name, step in loops(Trajectories(given.data)).items():
            step()
            began, done = time.perf_counter(), []
            while (spent := time.perf_counter() - began) < given.seconds:
                done.append(step())
            samples, nodes, work = (sum(part) for part in zip(*done, strict=True))
            if number:  # the first round warms up
                found = (samples / spent, nodes / spent, work / spent / most)
                rates.setdefault(name, []).append(found)
    rows = []
    for name, values in rates.items():
        samples, nodes, share = (
            statistics.median(v) for v in zip(*values, strict=True)
        )
        rows.append(
            {"loop": name, "samples": samples, "nodes": nodes, "of_peak": share}
        )
        print(
            f"{name:18} {samples:7.0f} slices/s {nodes:8.0f} nodes/s "
            f"{100 * share:5.1f} % of peak"
        )
    print(json.dumps({"threads": given.threads, "peak": most, "rows": rows}))


if __name__ == "__main__":
    main()
