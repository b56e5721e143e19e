"""Simulation-guided beam search over our policies, against beams and our own search.

    python experiments/peers/sgbs.py tsp --instances 8 --width 2 4 --expand 2 4

After Choo et al., "Simulation-guided beam search for neural combinatorial optimization"
(2022): every beam tries its likeliest actions, each is played to the end greedily, and
those with the best end stay. Written anew on `State` and `Policy`; U carries the
embeddings through the simulations, so the base encoder runs once.

Each instance is then given to the large neighborhood search for exactly the time that
SGBS took. Rows go to `results/sgbs.csv`.
"""

import argparse
import csv
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from renco.checkpoints import load
from renco.construct import Solutions
from renco.evaluate import commit, hardware, relative_gap
from renco.model import Policy
from renco.searches import BEAM, ONCE, SearchOptions, find_search
from renco.solver import default_model
from renco.state import State
from renco.stop import MaxRuntime
from renco.testsets import open_data

RESULTS = Path(__file__).parent.parent / "results" / "sgbs.csv"
COLUMNS = (
    *("dataset", "model", "instance", "search", "gap", "seconds"),
    *("threads", "commit", "hardware"),
)


@torch.inference_mode()
def simulation_guided(
    policy: Policy, state: State, *, k: int, width: int, expand: int
) -> Solutions:
    """Returns the best end of all simulations, for one instance.

    Args:
        policy: Decides.
        state: A start, of one row.
        k: Steps between two runs of the base encoder.
        width: Beams.
        expand: Actions that each beam tries.
    """
    state = policy.visible(state)
    longest = state.node.shape[1] - 2
    t, h, begun = 0, torch.empty(0), state.node.new_empty(1, 0)
    best, best_cost = state.node.new_zeros(1, longest), state.cost
    while not state.done:
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        scores = policy.score(h, state)
        likely, action = scores.topk(min(expand, scores.shape[1]))
        parent, place = likely.isfinite().nonzero(as_tuple=True)
        action = action[parent, place]
        state, h = state.rows(parent), h[parent]
        chosen = state.decision(action)[:, None]
        begun = torch.cat([begun[parent], chosen], dim=1)
        state, t = policy.visible(state.step(action)), t + 1
        rest, cost = simulated(policy, state, h, t, k)
        winner = cost.argmin()
        if t == 1 or cost[winner] < best_cost[0]:
            whole = torch.cat([begun[winner], rest[winner]])
            best = torch.zeros_like(best)
            best[0, : len(whole)] = whole
            best_cost = cost[winner][None]
        kept = cost.topk(min(width, len(cost)), largest=False).indices
        state, h, begun = state.rows(kept), h[kept], begun[kept]
    return Solutions(best, best_cost)


def simulated(
    policy: Policy, state: State, h: Float[Tensor, "batch previous d"], t: int, k: int
) -> tuple[Int[Tensor, "batch step"], Float[Tensor, " batch"]]:
    """Plays states to their ends, and returns decisions and costs."""
    decisions = [state.node.new_empty(len(state.node), 0)]
    while not state.done:
        h = policy.encode(state) if t % k == 0 else policy.update(h, state)
        action = policy.score(h, state).argmax(dim=-1)
        decisions.append(state.decision(action)[:, None])
        state, t = policy.visible(state.step(action)), t + 1
    return torch.cat(decisions, dim=1), state.cost


def main() -> None:
    """Measures, one instance after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", choices=("tsp", "cvrp", "op"))
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--width", nargs="+", type=int, default=[2])
    parser.add_argument("--expand", nargs="+", type=int, default=[2])
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    name = default_model(given.problem)
    policy, dataset = load(name), f"{given.problem}{given.n}-test"
    data = open_data(dataset)
    stamp = {"threads": given.threads, "commit": commit(), "hardware": hardware(policy)}
    for i in range(given.instances):
        problem, reference = data.instances([i]), data.costs[i : i + 1]

        def note(
            search: str,
            cost: Any,
            seconds: float,
            i: int = i,
            reference: Any = reference,
        ) -> None:
            gap = float(relative_gap(np.asarray(cost), reference)[0])
            row = {"dataset": dataset, "model": name, "instance": i, "search": search}
            append(row | stamp | {"gap": gap, "seconds": seconds})
            print(f"{dataset} #{i} {search}: {gap:.2f} %, {seconds:.1f} s", flush=True)

        found = find_search("beam")(policy, problem, SearchOptions())
        note(f"beam {BEAM}", found.cost, found.seconds)
        for width, expand in zip(given.width, given.expand, strict=True):
            began = perf_counter()
            start = problem.start(next(policy.parameters()).device)
            built = simulation_guided(policy, start, k=ONCE, width=width, expand=expand)
            cost = problem.cost(problem.routes(built.decisions.cpu()))
            seconds = perf_counter() - began
            note(f"sgbs {width} x {expand}", cost, seconds)
            options = SearchOptions(stop=MaxRuntime(seconds))
            found = find_search("lns")(policy, problem, options)
            note(f"lns for sgbs {width} x {expand}", found.cost, found.seconds)


def append(row: dict[str, Any]) -> None:
    """Adds a row to the results."""
    new = not RESULTS.exists()
    with RESULTS.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
