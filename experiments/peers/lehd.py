"""LEHD: a light encoder that runs once, a heavy decoder that runs at every step.

    python experiments/peers/lehd.py --data LABELS --out FOLDER --minutes 60
    python experiments/run.py table1 --lehd FOLDER

After Luo et al., "Neural combinatorial optimization with heavy decoder: toward large
scale generalization" (2023), written anew from the blocks of renco: one layer embeds
the instance; the decoder takes the embeddings of the nodes that are left, marks where
we stand and where we must end, and runs all other layers. It is the scheme between
BQ, which embeds everything anew, and the usual static encoder (Algorithm 5 of our
paper). Random re-construction solves random segments again, greedily.

Training imitates the same labels with the same sampler, optimizer and schedule as the
models of renco. Each batch is embedded once, as at inference, and decoded at a few
random steps from there.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from peers import stored
from renco.construct import greedy
from renco.data import Trajectories
from renco.model import Block, EncoderConfig, Policy, PolicyConfig, align, view
from renco.model import run as run_blocks
from renco.optim import Average, optimizers, schedule, set_rate
from renco.problems import Problem, Routes
from renco.sampling import Sampler, Slices
from renco.searches import ONCE
from renco.segments import CutSettings, segments_of
from renco.state import State
from renco.testsets import open_data

WEIGHTS, ABOUT = "lehd.safetensors", "lehd.json"
SHORTEST = 4
"""Nodes of the smallest segment: two to swap between fixed ends."""


class LEHD(Policy):
    """A policy whose `score` is the heavy part."""

    def __init__(self, config: PolicyConfig, layers: int) -> None:
        """Builds an untrained one with that many layers in the decoder."""
        super().__init__(config)
        size = config.base
        self.start = nn.Linear(size.d, size.d)
        self.end = nn.Linear(size.d, size.d)
        # What changes from step to step: remaining capacity, remaining length.
        changing = config.features - 2
        self.changing = nn.Linear(changing, size.d) if changing else None
        self.blocks = nn.ModuleList(Block(size, config.geometry) for _ in range(layers))

    def update(
        self, h: Float[Tensor, "batch previous d"], state: State
    ) -> Float[Tensor, "batch node d"]:
        """Keeps the embeddings of the nodes that are left."""
        return align(h, state.origin)

    def score(
        self, h: Float[Tensor, "batch node d"], state: State
    ) -> Float[Tensor, "batch action"]:
        """Runs the decoder and returns the log-probability of each action."""
        seen = view(state, self.config)
        ends = self.start(h[:, :1]), self.end(h[:, -1:])
        h = torch.cat([ends[0], h[:, 1:-1], ends[1]], dim=1)
        if self.changing is not None:
            h = h + self.changing(seen.s[..., 2:])
        h = run_blocks([*self.blocks], h, seen, self.config.geometry)
        return super().score(h, state)


def loss(
    policy: LEHD,
    state: State,
    actions: Int[Tensor, "batch step"],
    rng: np.random.Generator,
    steps: int,
) -> Float[Tensor, ""]:
    """Returns the mean cross-entropy of a few random steps from one embedding."""
    h = policy.encode(state)
    kept = state.origin  # where the nodes that are left stood when embedded
    last = actions.shape[1]
    chosen = set(rng.choice(last, min(steps, last), replace=False).tolist())
    losses = []
    for t in range(max(chosen) + 1):
        if t:
            state = state.step(actions[:, t - 1])
            kept = kept.gather(1, state.origin)
        if t in chosen:
            scores = policy.score(align(h, kept), state)
            losses.append(-scores.gather(1, actions[:, t, None]).mean())
    return torch.stack(losses).mean()


def train(
    data: Trajectories,
    out: Path,
    *,
    minutes: float,
    layers: int = 6,
    size: EncoderConfig | None = None,
    steps: int = 4,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> LEHD:
    """Trains for some minutes and writes the averaged weights.

    Args:
        data: Labelled trajectories.
        out: Folder for weights and settings.
        minutes: Wall-clock time.
        layers: Of the decoder; the encoder has one.
        size: Width, heads and feed-forward of all layers.
        steps: Steps of each batch that are decoded.
        seed: Of initial weights and batches.
        say: Receives a line now and then.
    """
    size = size or EncoderConfig(1, 128, 8, 256)
    config = PolicyConfig.for_state(
        data.instances([0]).start(),
        problem=data.manifest.problem,
        base=size,
        zoom=True,
        relative=True,
        geometry=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        policy = LEHD(config, layers)
    average = Average(policy, 0.999)
    rules = optimizers(policy, "adamw", 1e-3, 0.01)
    sampler = Sampler([(data, np.arange(len(data)))], Slices(), seed)
    device, began, spoken = torch.device("cpu"), monotonic(), 0.0
    step, recent = 0, []
    while (progress := (monotonic() - began) / (60 * minutes)) < 1:
        set_rate(rules, schedule(progress, 0.02))
        state, actions, _ = sampler.batch(step, progress, device)
        value = loss(policy, state, actions, np.random.default_rng([seed, step]), steps)
        for rule in rules:
            rule.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        for rule in rules:
            rule.step()
        average.update(policy, step)
        step += 1
        recent.append(value.item())
        if not np.isfinite(recent[-1]):
            raise RuntimeError(f"loss is {recent[-1]} at step {step}")
        if monotonic() - spoken > 60:
            spoken = monotonic()
            say(f"{100 * progress:.0f} %, step {step}, loss {np.mean(recent):.3f}")
            recent = []
    average.swap(policy)
    about = {"minutes": minutes, "steps": step, "instances": len(data), "seed": seed}
    save(policy.eval(), out, about)
    return policy


def save(policy: LEHD, folder: Path, training: dict[str, Any]) -> None:
    """Writes weights and settings."""
    about = {
        "name": folder.name,
        "policy": asdict(policy.config),
        "layers": len(policy.blocks),
        "training": training,
    }
    stored.write(policy, folder / WEIGHTS, folder / ABOUT, about)


def read_about(folder: str | Path) -> dict[str, Any]:
    """Returns the settings of a trained model."""
    return stored.read_about(Path(folder) / ABOUT)


@lru_cache(maxsize=4)
def load(folder: str, device: torch.device) -> LEHD:
    """Loads a trained model.

    Raises:
        ValueError: The weights are not those of the settings.
    """
    about = read_about(folder)
    policy = LEHD(PolicyConfig.from_dict(about["policy"]), about["layers"])
    policy.load_state_dict(stored.read_weights(Path(folder) / WEIGHTS, about))
    return policy.to(device).eval().requires_grad_(False)


def construct(policy: LEHD, state: State) -> Int[np.ndarray, "batch step"]:
    """Returns greedy decisions; tours that end early stay at home."""
    found = greedy(policy, state, k=ONCE).decisions
    home = state.node[:, -1:].expand(-1, state.node.shape[1] - 2)
    return torch.cat([found, home[:, found.shape[1] :]], dim=1).cpu().numpy()


def solve(
    policy: LEHD, problem: Problem, iterations: int, seed: int, device: torch.device
) -> Routes:
    """Solves one instance, greedily and by random re-constructions."""
    built = greedy(policy, problem.start(device), k=ONCE).decisions.cpu()
    segments = segments_of(problem, problem.routes(built), device)
    rng = np.random.default_rng(seed)
    for _ in range(iterations):
        nodes = int(rng.integers(SHORTEST, max(SHORTEST, problem.n), endpoint=True))
        cut = segments.sample_subproblem(1, CutSettings(nodes, "random"), rng)
        if cut is None:
            break
        segments.update_solution(cut, construct(policy, cut.state))
    return segments.routes[0]


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="labels: folder or packed file")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--minutes", type=float, required=True, help="time to train")
    parser.add_argument("--layers", type=int, default=6, help="of the decoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train(
        open_data(given.data, partial=True),
        given.out,
        minutes=given.minutes,
        layers=given.layers,
        seed=given.seed,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    main()
