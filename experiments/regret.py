"""Where does greedy construction lose? An expert finishes it, from every step on.

    python experiments/regret.py --data tsp100-test --instances 24

The best that can follow the first t decisions is what the expert finds from there, or
from any later step: what follows more decisions follows fewer too. By how much a
decision worsens that best is its regret. All regrets add up to the gap (to the best
solution known, should an answer beat the reference). They are summed by quarters of the
steps, and by how sure the policy was; rows go to `results/regret.csv`, where they
replace those of the same set.
"""

import argparse
import csv
import io
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy import ndarray
from protocol import SHOWN, now
from rows import RESULTS

from renco.checkpoints import load, read_config
from renco.construct import greedy
from renco.dagger import COMPLETE, LEAST_LEFT, SECONDS
from renco.evaluate import commit
from renco.experts import Solver, find
from renco.files import write_atomic
from renco.model import Policy
from renco.problems import Problem
from renco.solver import default_model
from renco.testsets import open_data

TABLE = RESULTS / "regret.csv"
COLUMNS = (
    *("date", "commit", "model", "model_sha256", "dataset", "k", "expert", "seconds"),
    "instances",
    *("by", "low", "high", "decisions", "regret"),
)
BOUNDS = {"step": (0.0, 0.25, 0.5, 0.75, 1.0), "sureness": (0.0, 0.5, 0.7, 0.9, 1.0)}


def rolled_out(
    policy: Policy, problem: Problem, k: int
) -> tuple[list[list[int]], ndarray]:
    """Returns the policy's decisions on each instance, and their probabilities."""
    found = greedy(policy, problem.start(), k=k)
    # An orienteering tour that is home has zeros at its end.
    decisions = [[d for d in row if d] for row in found.decisions.tolist()]
    return decisions, found.sure.numpy()


def regrets(
    one: Problem, decisions: list[int], reference: float, expert: Solver, seconds: float
) -> ndarray:
    """Returns the regret of each decision, in percent of the reference."""
    costs = [reference]
    for t in range(1, len(decisions) + 1):
        whole = decisions
        if t <= len(decisions) - LEAST_LEFT:
            whole = expert.complete(one, decisions[:t], seconds=seconds)
        costs.append(one.cost(one.routes(torch.tensor([whole])))[0])
    best = np.minimum.accumulate(costs[::-1])[::-1]
    return 100 * np.diff(best) / abs(reference)


def summed(
    values: dict[str, ndarray], regret: ndarray, instances: int
) -> Iterator[dict[str, object]]:
    """Yields the regret per instance between all bounds."""
    for by, bounds in BOUNDS.items():
        place = np.searchsorted(bounds[1:-1], values[by], side="right")
        for i, (low, high) in enumerate(pairwise(bounds)):
            here = place == i
            yield {
                **{"by": by, "low": low, "high": high},
                "decisions": f"{here.mean():.4f}",
                "regret": f"{regret[here].sum() / instances:.4f}",
            }


def main() -> None:
    """Measures one model on one set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a shipped model or a run; default: the best")
    parser.add_argument("--data", default="tsp100-test")
    parser.add_argument("--instances", type=int, default=24)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="of the expert per answer")
    given = parser.parse_args()
    data = open_data(given.data)
    problem = data.instances(slice(given.instances))
    model = given.model or default_model(problem.name)
    policy = load(model)
    expert = find(COMPLETE[problem.name], problem.name)
    seconds = given.seconds or SECONDS[problem.name]
    decisions, sure = rolled_out(policy, problem, given.k)
    found: dict[str, list[float]] = {"step": [], "sureness": [], "regret": []}
    for i, steps in enumerate(decisions):
        found["step"] += (np.arange(len(steps)) / len(steps)).tolist()
        found["sureness"] += sure[i, : len(steps)].tolist()
        one = problem[i : i + 1]
        found["regret"] += regrets(one, steps, data.costs[i], expert, seconds).tolist()
        print(f"{i + 1}/{len(decisions)}", end="\r", flush=True)
    about = {
        **{"date": now(), "commit": commit(), "model": policy.name},
        "model_sha256": read_config(model)["sha256"][:SHOWN],
        **{"dataset": given.data, "k": given.k},
        **{"expert": f"{expert.name} {expert.version}", "seconds": seconds},
        "instances": len(problem),
    }
    values = {name: np.array(column) for name, column in found.items()}
    rows = [about | row for row in summed(values, values["regret"], len(problem))]
    write(rows, given.data)
    for row in rows:
        print(*(f"{name} {row[name]}" for name in COLUMNS[-5:]), sep=", ")


def write(rows: list[dict[str, object]], dataset: str) -> None:
    """Puts the rows of a set in the place of older ones."""
    kept: list[dict[str, object]] = []
    if TABLE.exists():
        with TABLE.open(encoding="utf-8", newline="") as file:
            kept += [row for row in csv.DictReader(file) if row["dataset"] != dataset]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *rows])
    write_atomic(TABLE, text.getvalue().encode())


if __name__ == "__main__":
    main()
