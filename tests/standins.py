"""Experts for tests: quick, deterministic, and faulty where a test wants it.

Workers import them by path, `standins:nearest`, as users would their own.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from renco.labeller import expert_seed
from renco.manifest import Manifest
from renco.problems import CVRP, OP, PROBLEMS, Problem, Routes

SEED = 5
FAULTS = ("exit", "hang", "twice", "short", "flood", "raise", "nothing")


def expert(function: Callable[..., Routes]) -> Any:
    """Gives a function the attributes of an expert."""
    values: Any = function
    values.name, values.version = function.__name__, "1"
    values.problems = tuple(PROBLEMS)
    return values


@expert
def nearest(instance: Problem, *, seconds: float, seed: int) -> Routes:
    """Goes to the nearest node that is left and fits."""
    points = instance.coords[0]
    left = set(range(1, len(points)))
    routes: Routes = [[]]
    here, load, length = 0, 0.0, 0.0
    while left:
        node = min(
            left, key=lambda i: (float(np.hypot(*(points[i] - points[here]))), i)
        )
        left.remove(node)
        if isinstance(instance, OP):
            leg = float(np.hypot(*(points[node] - points[here])))
            home = float(np.hypot(*(points[node] - points[0])))
            if length + leg + home > instance.limit[0]:
                continue
            length += leg
        if isinstance(instance, CVRP):
            load += instance.demands[0, node]
            if load > instance.capacity[0]:
                routes.append([])
                load = instance.demands[0, node]
        routes[-1].append(node)
        here = node
    return [[0, *routes[0]]] if instance.name == "tsp" else routes


@expert
def slow(instance: Problem, *, seconds: float, seed: int) -> Routes:
    """Takes the time it is given."""
    time.sleep(seconds)
    return nearest(instance, seconds=seconds, seed=seed)


@expert
def faulty(instance: Problem, *, seconds: float, seed: int) -> Routes:
    """Fails at the first try of each instance, each time in another way."""
    routes = nearest(instance, seconds=seconds, seed=seed)
    first_tries = {expert_seed(SEED, i, 0): fault for i, fault in enumerate(FAULTS)}
    match first_tries.get(seed):
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(1000)
        case "twice":
            routes[0][-1] = routes[0][-2]
        case "short":
            routes[0].pop()
        case "flood":
            for _ in range(2000):
                os.write(1, b"progress of a chatty solver\n" * 10)
            sys.stdout.write('{"decisions": [1], "cost": 0.0}\n')
            sys.stdout.flush()
        case "raise":
            raise RuntimeError("no luck")
        case "nothing":
            return []
    return routes


@expert
def stubborn(instance: Problem, *, seconds: float, seed: int) -> Routes:
    """Never solves instance 2, unless the environment says so; counts its calls."""
    tries = {expert_seed(SEED, 2, attempt) for attempt in range(3)}
    with Path(os.environ["STANDIN_CALLS"]).open("a") as file:
        file.write(f"{seed}\n")
    if seed in tries and "STANDIN_CURED" not in os.environ:
        raise RuntimeError("too hard")
    return nearest(instance, seconds=seconds, seed=seed)


def labelled(manifest: Manifest) -> np.ndarray:
    """Returns records labelled by `nearest`, without any worker."""
    instances = manifest.draw(manifest.first, manifest.count)
    index = manifest.first + np.arange(manifest.count)
    rows = manifest.rows(index, instances)
    for i in range(len(rows)):
        routes = nearest(instances[i], seconds=1.0, seed=0)
        decisions = instances[i].decisions([routes])[0].numpy()
        rows["decisions"][i, : len(decisions)] = decisions
        rows["cost"][i] = instances[i].cost([routes])[0]
    return rows


def plan(problem: str, *, n: int = 12, count: int = 10, **values: Any) -> Manifest:
    """Returns the manifest of a small set labelled by `nearest`."""
    settings = {
        "tsp": {},
        "cvrp": {"capacity": 20, "demand": [1, 9]},
        "op": {"limit": 2.0},
    }[problem]
    known: dict[str, Any] = {"seed": SEED, "settings": settings, "expert": "nearest"}
    return Manifest(problem=problem, n=n, count=count, **known | values)
