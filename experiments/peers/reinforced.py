"""POMO, MDAM and EAS as the library rl4co has them, trained for as long as one likes.

    pip install rl4co
    python experiments/peers/reinforced.py pomo tsp --n 100 --out FOLDER --minutes 60
    python experiments/run.py table1 --rl FOLDER

Kwon et al., "POMO: policy optimization with multiple optima for reinforcement learning"
(2020): the best of one greedy tour per start node, or of eight views of the instance
times that. Hottung et al., "Efficient active search for combinatorial optimization
problems" (2022): goes on from POMO, and adapts it to the instance at hand. Xin et al.,
"Multi-decoder attention model" (2021): the best of five greedy decoders. Models,
environments and settings are rl4co's. They need no labels, so all of the time is
training. Their solutions are checked like all others.
"""

import argparse
import copy
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch

from peers import stored
from renco.problems import CVRP, Problem, Routes

WEIGHTS, ABOUT = "reinforced.safetensors", "reinforced.json"
PROBLEMS = ("tsp", "cvrp")
SEARCHES = {"pomo": ("greedy", "aug8", "eas10"), "mdam": ("greedy",)}
"""Models, and how each is asked; `eas10` has ten rounds of active search."""
VIEWS = 8
"""Symmetries of the square."""


class Loaded(NamedTuple):
    """A trained model and where it acts."""

    method: str
    env: Any
    policy: Any


def environment(problem: str, n: int) -> Any:
    """Returns rl4co's environment of a problem.

    Raises:
        ModuleNotFoundError: rl4co is not installed.
        ValueError: The methods are not defined for the problem.
    """
    from rl4co.envs import CVRPEnv, TSPEnv

    if problem not in PROBLEMS:
        raise ValueError(f"rl4co is used for {', '.join(PROBLEMS)}, not for {problem}")
    kind = {"tsp": TSPEnv, "cvrp": CVRPEnv}[problem]
    return kind(generator_params={"num_loc": n})


def _build(method: str, env: Any, settings: dict[str, Any], **more: Any) -> Any:
    from rl4co.models import MDAM, POMO

    kinds = {"pomo": POMO, "mdam": MDAM}
    if method not in kinds:
        raise ValueError(f"method must be {' or '.join(kinds)}, got {method!r}")
    return kinds[method](env, policy_kwargs=settings, **more)


def _trainer(**limits: Any) -> Any:
    from rl4co.utils import RL4COTrainer

    return RL4COTrainer(
        accelerator="auto",
        devices=1,
        precision="32-true",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        **limits,
    )


def train(
    method: str,
    problem: str,
    out: Path,
    *,
    n: int,
    minutes: float,
    batch: int = 64,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
) -> None:
    """Trains for some minutes and writes the weights.

    Args:
        method: `pomo` or `mdam`.
        problem: `tsp` or `cvrp`.
        out: Folder for weights and settings.
        n: Size of the instances.
        minutes: Wall-clock time.
        batch: Instances per update.
        settings: Of the network; None for those of the paper.
        seed: Of weights and instances.
    """
    torch.manual_seed(seed)
    model = _build(
        method,
        environment(problem, n),
        settings or {},
        batch_size=batch,
        train_data_size=16 * batch,
        val_data_size=batch,
        test_data_size=batch,
        dataloader_num_workers=0,
        optimizer_kwargs={"lr": 1e-4, "weight_decay": 1e-6},
    )
    trainer = _trainer(max_epochs=-1, max_time={"seconds": max(1.0, 60 * minutes)})
    began = monotonic()
    trainer.fit(model)
    about = {
        "method": method,
        "problem": problem,
        "n": n,
        "settings": settings or {},
        "training": {
            "minutes": (monotonic() - began) / 60,
            "steps": trainer.global_step,
            "batch": batch,
            "seed": seed,
        },
    }
    stored.write(model.policy, out / WEIGHTS, out / ABOUT, about)


def read_about(folder: str | Path) -> dict[str, Any]:
    """Returns the settings of a trained model."""
    return stored.read_about(Path(folder) / ABOUT)


@lru_cache(maxsize=4)
def load(folder: str, device: torch.device) -> Loaded:
    """Loads a trained model.

    Raises:
        ValueError: The weights are not those of the settings.
    """
    about = read_about(folder)
    env = environment(about["problem"], about["n"])
    policy = _build(about["method"], env, about["settings"]).policy
    policy.load_state_dict(stored.read_weights(Path(folder) / WEIGHTS, about))
    return Loaded(about["method"], env.to(device), policy.to(device).eval())


def solve(
    model: Loaded, problem: Problem, search: str, seed: int, device: torch.device
) -> Routes:
    """Solves one instance by one of the searches of its model."""
    if search.startswith("eas"):
        rounds = int(search.removeprefix("eas"))
        best = _active_search(model, problem, rounds, seed, device)
    elif model.method == "mdam":
        best = _decoders(model, problem, device)
    else:
        best = _starts(model, problem, VIEWS if search == "aug8" else 1, device)
    if not isinstance(problem, CVRP):
        return [best[: problem.n]]
    routes: Routes = [[]]
    for node in best:
        if node:
            routes[-1].append(node)
        else:
            routes.append([])
    return [route for route in routes if route]


def _given(problem: Problem, views: int, device: torch.device) -> Any:
    """Returns an instance as rl4co wants it, so many times, seen differently."""
    from tensordict import TensorDict

    xy = torch.from_numpy(problem.frame()[0]).to(device)
    seen = torch.cat([view(xy, number) for number in range(views)])
    given = {"locs": seen}
    if isinstance(problem, CVRP):
        load_of = problem.demands[:, 1:] / problem.capacity[:, None]
        demand = torch.from_numpy(load_of.astype(np.float32)).to(device)
        given = {
            "locs": seen[:, 1:],
            "depot": seen[:, 0],
            "demand": demand.repeat(views, 1),
            "capacity": torch.ones(views, 1, device=device),
        }
    return TensorDict(given, batch_size=[views], device=device)


@torch.inference_mode()
def _starts(
    model: Loaded, problem: Problem, views: int, device: torch.device
) -> list[int]:
    """Returns the best greedy tour of POMO, from every start and in every view."""
    start = model.env.reset(_given(problem, views, device))
    found = model.policy(
        start,
        model.env,
        phase="test",
        decode_type="multistart_greedy",
        num_starts=model.env.get_num_starts(start),
    )
    return list(found["actions"][found["reward"].argmax()].tolist())


@torch.inference_mode()
def _decoders(model: Loaded, problem: Problem, device: torch.device) -> list[int]:
    """Returns the best of MDAM's decoders.

    Its policy returns the actions of the last decoder only; but all of them are
    handed to the environment, to be rewarded.
    """
    env, seen = copy.copy(model.env), []

    def rewarded(state: Any, actions: torch.Tensor) -> torch.Tensor:
        seen.append((actions, model.env.get_reward(state, actions)))
        return seen[-1][1]

    env.get_reward = rewarded
    start = model.env.reset(_given(problem, 1, device))
    model.policy(start, env, phase="test", decode_type="greedy")
    actions, _ = max(seen, key=lambda one: float(one[1]))
    return list(actions[0].tolist())


def _active_search(
    model: Loaded, problem: Problem, rounds: int, seed: int, device: torch.device
) -> list[int]:
    """Returns what EAS finds by adapting the keys of the nodes, in eight views."""
    from rl4co.data.dataset import TensorDictDataset
    from rl4co.models.zoo.eas import EASEmb

    torch.manual_seed(seed)
    # Twice the same: rl4co takes the dimensions of a batch of one for others.
    twice = torch.cat([_given(problem, 1, device)] * 2)
    search = EASEmb(
        model.env,
        copy.deepcopy(model.policy),
        TensorDictDataset(twice),
        batch_size=2,
        max_iters=rounds,
        augment_size=VIEWS,
        dataloader_num_workers=0,
    )
    _trainer(max_epochs=1).fit(search)
    solutions = search.instance_solutions.reshape(2, -1)
    return list(solutions[search.instance_rewards.argmax()].tolist())


def view(xy: torch.Tensor, number: int) -> torch.Tensor:
    """Returns the instance in one of the eight symmetries of the square."""
    if number & 1:
        xy = xy.flip(-1)
    flip = torch.tensor([bool(number & 2), bool(number & 4)], device=xy.device)
    return torch.where(flip, 1 - xy, xy)


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=SEARCHES)
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--n", type=int, default=100, help="nodes of the instances")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--minutes", type=float, required=True, help="time to train")
    parser.add_argument("--batch", type=int, default=64, help="instances per update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train(
        *(given.method, given.problem, given.out),
        n=given.n,
        minutes=given.minutes,
        batch=given.batch,
        seed=given.seed,
    )


if __name__ == "__main__":
    main()
