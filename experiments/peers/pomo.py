"""POMO as the library rl4co has it, trained here for as long as one likes.

    pip install rl4co
    python experiments/peers/pomo.py tsp --n 100 --out FOLDER --minutes 60
    python experiments/run.py table1 --pomo FOLDER

Kwon et al., "POMO: policy optimization with multiple optima for reinforcement learning"
(2020), with rl4co's model, environment and settings: no labels, so all of the time is
training. It answers with the best of one greedy tour per start node, or of eight
views of the instance times that. Its solutions are checked like all others.
"""

import argparse
import json
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from renco.files import sha256, write_atomic, write_json
from renco.problems import CVRP, Problem, Routes

WEIGHTS, ABOUT = "pomo.safetensors", "pomo.json"
PROBLEMS = ("tsp", "cvrp")
VIEWS = {"greedy": 1, "aug8": 8}
"""Searches, and how many symmetries of the square they look at."""


def environment(problem: str, n: int) -> Any:
    """Returns rl4co's environment of a problem.

    Raises:
        ModuleNotFoundError: rl4co is not installed.
        ValueError: POMO is not defined for the problem.
    """
    from rl4co.envs import CVRPEnv, TSPEnv

    if problem not in PROBLEMS:
        raise ValueError(f"POMO is for {', '.join(PROBLEMS)}, not for {problem}")
    kind = {"tsp": TSPEnv, "cvrp": CVRPEnv}[problem]
    return kind(generator_params={"num_loc": n})


def train(
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
        problem: `tsp` or `cvrp`.
        out: Folder for weights and settings.
        n: Size of the instances.
        minutes: Wall-clock time.
        batch: Instances per update.
        settings: Of the network; None for those of the paper.
        seed: Of weights and instances.
    """
    from rl4co.models import POMO
    from rl4co.utils import RL4COTrainer

    torch.manual_seed(seed)
    model = POMO(
        environment(problem, n),
        policy_kwargs=settings or {},
        batch_size=batch,
        train_data_size=16 * batch,
        val_data_size=batch,
        test_data_size=batch,
        dataloader_num_workers=0,
        optimizer_kwargs={"lr": 1e-4, "weight_decay": 1e-6},
    )
    trainer = RL4COTrainer(
        max_epochs=-1,
        max_time={"seconds": max(1.0, 60 * minutes)},
        accelerator="auto",
        devices=1,
        precision="32-true",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )
    began = monotonic()
    trainer.fit(model)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {k: t.detach().contiguous() for k, t in model.policy.state_dict().items()}
    write_atomic(out / WEIGHTS, save_tensors(tensors))
    about = {
        "problem": problem,
        "n": n,
        "settings": settings or {},
        "sha256": sha256(out / WEIGHTS),
        "training": {
            "minutes": (monotonic() - began) / 60,
            "steps": trainer.global_step,
            "batch": batch,
            "seed": seed,
        },
    }
    write_json(out / ABOUT, about)


def read_about(folder: str | Path) -> dict[str, Any]:
    """Returns the settings of a trained model."""
    text = (Path(folder) / ABOUT).read_text(encoding="utf-8")
    return dict(json.loads(text))


@lru_cache(maxsize=4)
def load(folder: str, device: torch.device) -> tuple[Any, Any]:
    """Loads a trained model: its environment and its policy.

    Raises:
        ValueError: The weights are not those of the settings.
    """
    from rl4co.models import POMO

    about, path = read_about(folder), Path(folder) / WEIGHTS
    if sha256(path) != about["sha256"]:
        raise ValueError(f"{path}: sha256 is not {about['sha256']}")
    env = environment(about["problem"], about["n"])
    policy = POMO(env, policy_kwargs=about["settings"]).policy
    policy.load_state_dict(load_tensors(path.read_bytes()))
    return env.to(device), policy.to(device).eval()


@torch.inference_mode()
def solve(
    model: tuple[Any, Any], problem: Problem, search: str, device: torch.device
) -> Routes:
    """Solves one instance, from every start and in one or eight views."""
    from tensordict import TensorDict

    env, policy = model
    xy = torch.from_numpy(problem.frame()[0]).to(device)
    views = torch.cat([view(xy, number) for number in range(VIEWS[search])])
    given = {"locs": views}
    if isinstance(problem, CVRP):
        load_of = problem.demands[:, 1:] / problem.capacity[:, None]
        demand = torch.from_numpy(load_of.astype(np.float32)).to(device)
        given = {
            "locs": views[:, 1:],
            "depot": views[:, 0],
            "demand": demand.expand(len(views), -1),
        }
    start = env.reset(TensorDict(given, batch_size=[len(views)], device=device))
    found = policy(
        start,
        env,
        phase="test",
        decode_type="multistart_greedy",
        num_starts=env.get_num_starts(start),
    )
    best = found["actions"][found["reward"].argmax()].tolist()
    if not isinstance(problem, CVRP):
        return [best]
    routes: Routes = [[]]
    for node in best:
        if node:
            routes[-1].append(node)
        else:
            routes.append([])
    return [route for route in routes if route]


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
        given.problem,
        given.out,
        n=given.n,
        minutes=given.minutes,
        batch=given.batch,
        seed=given.seed,
    )


if __name__ == "__main__":
    main()
