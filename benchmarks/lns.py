"""Gap over time of the large neighborhood search: recurrent against base (figure 3).

    python benchmarks/lns.py tsp --n 500 1000 --model NAME|PATH --seconds 60
    python benchmarks/lns.py cvrp --data cvrp200-test --model PATH --n-sub 50 100 200
    python benchmarks/lns.py tsp --data tsp500-test --model PATH --encoders recurrent \
        --polish --kicks 500 --b-sub 4 16 --b-least 1 --n-least 25  # as renco solve
    python benchmarks/lns.py cvrp --n 500 --model PATH --segments 1 auto \
        --order random near                    # what several near segments gain
    python benchmarks/lns.py tsp --n 500 --model PATH --n-least 25 --b-least 1
    python benchmarks/lns.py tsp --out DIR     # draws the figure of DIR/lns.csv again

A model with a recurrent encoder is run twice: with k = 1000, and with k = 1, which is
its base encoder alone. Instances are random and their reference costs an expert's, or
both come from a set, shipped or made by `renco generate`; without an expert the best
cost of all runs is the reference. Every improvement is a row of DIR/lns.csv; runs with
other models or settings add to it, and DIR/lns-PROBLEM.png shows all rows of the
problem. The last line is JSON.
"""

import argparse
import csv
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from renco.checkpoints import load
from renco.evaluate import commit, hardware
from renco.experts import MissingExpert, default_seconds, find
from renco.lns import LNSSettings, SearchResult, large_neighborhood_search
from renco.model import Policy
from renco.problems import PROBLEMS, Problem
from renco.searches import ONCE
from renco.stop import MaxIterations, MaxRuntime
from renco.testsets import open_data

COLUMNS = (
    *("date", "commit", "hardware", "threads", "torch", "problem", "n", "instance"),
    *("model", "encoder", "k", "n_sub", "n_least", "b_init", "b_sub", "b_least"),
    *("segments", "order", "polish", "kicks"),
    *("seed", "limit", "iterations", "seconds", "cost", "reference"),
)
CURVE = (
    *("n", "model", "encoder", "n_sub", "n_least", "b_sub", "b_least"),
    *("segments", "order", "polish", "kicks"),
)
"""What makes a curve: all rows that agree in these."""
COLOURS = {"recurrent": "tab:green", "base": "tab:blue"}
STYLES = ("-", "--", ":", "-.")

Row = dict[str, Any]


def instances(given: argparse.Namespace) -> Iterator[tuple[int, Problem, float | None]]:
    """Yields the number of an instance, the instance and its reference cost."""
    for folder in given.data:
        data = open_data(folder)
        for i in range(min(given.instances, len(data))):
            yield i, data.instances([i]), float(data.costs[i])
    for n in given.n:
        for i in range(given.instances):
            problem = PROBLEMS[given.problem].random(1, n, seed=given.seed, first=i)
            yield i, problem, reference(problem)


def reference(problem: Problem) -> float | None:
    """Returns the cost of an expert's solution; None if there is no expert."""
    try:
        expert = find("auto", problem.name)
    except MissingExpert:
        return None
    assert expert is not None
    seconds = default_seconds(problem.name, problem.n)
    return float(problem.cost([expert(problem, seconds=seconds, seed=0)])[0])


def variants(
    given: argparse.Namespace, policy: Policy
) -> Iterator[tuple[str, LNSSettings]]:
    """Yields the name of the encoder and the settings of each curve."""
    ks = {"recurrent": ONCE, "base": 1}
    names = [n for n in given.encoders if n == "base" or policy.recurrent is not None]
    for encoder, n_sub, b_sub, segments, order in itertools.product(
        names, given.n_sub, given.b_sub, given.segments, given.order
    ):
        k = ks[encoder]
        yield (
            encoder,
            LNSSettings(
                *(k, k, given.b_init, b_sub, n_sub, segments, order),
                n_least=given.n_least and min(given.n_least, n_sub),
                b_least=given.b_least and min(given.b_least, b_sub),
                polish=given.polish,
                kicks=given.kicks,
            ),
        )


def rows_of(result: SearchResult, common: Row, cost: float | None) -> list[Row]:
    """Returns a row for each improvement."""
    return [
        {
            **common,
            "iterations": result.iterations,
            "seconds": round(seconds, 4),
            "cost": value,
            "reference": cost,
        }
        for seconds, value in result.history[0]
    ]


def run(given: argparse.Namespace, table: Path) -> None:
    """Runs all curves, instance by instance, and writes rows as they come."""
    policies = {name: load(name) for name in given.model}
    stamp = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seed": given.seed,
        "limit": given.seconds,
    }
    new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for i, problem, cost in instances(given):
            for name, policy in policies.items():
                for encoder, settings in variants(given, policy):
                    result = search(policy, problem, settings, given)
                    common = stamp | {
                        "hardware": hardware(policy),
                        "problem": problem.name,
                        "n": problem.n,
                        "instance": i,
                        "model": Path(name).name,
                        "encoder": encoder,
                        "k": settings.k_sub,
                        "n_sub": settings.n_sub,
                        "n_least": settings.n_least or settings.n_sub,
                        "b_init": settings.b_init,
                        "b_sub": settings.b_sub,
                        "b_least": settings.b_least or settings.b_sub,
                        "segments": settings.segments or "auto",
                        "order": settings.order,
                        "polish": settings.polish,
                        "kicks": settings.kicks,
                    }
                    writer.writerows(rows_of(result, common, cost))
                    file.flush()
                    show(common, result, cost)


def search(
    policy: Policy, problem: Problem, settings: LNSSettings, given: argparse.Namespace
) -> SearchResult:
    """Runs one search after a warm-up that does not count."""
    warm = PROBLEMS[problem.name].random(1, 10)
    large_neighborhood_search(policy, warm, settings, MaxIterations(1))
    return large_neighborhood_search(
        policy, problem, settings, MaxRuntime(given.seconds), seed=given.seed
    )


def show(row: Row, result: SearchResult, cost: float | None) -> None:
    """Prints how a run ended."""
    gap = f"{percent(result.cost[0], cost):8.3f} %" if cost else ""
    print(
        f"{row['problem']:4} {row['n']:5} #{row['instance']:<3} {row['model']:28} "
        f"{row['encoder']:9} n_sub {row['n_sub']:4} b_sub {row['b_sub']:3} "
        f"segments {row['segments']!s:4} {row['order']:6} "
        f"{result.iterations:5} iterations {result.cost[0]:12.4f} {gap}",
        flush=True,
    )


def percent(cost: float, reference: float) -> float:
    """Returns the relative gap."""
    return 100 * (cost - reference) / abs(reference)


def curves(table: Path, problem: str) -> dict[tuple[str, ...], list[Row]]:
    """Returns the rows of each curve, with references filled in."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["problem"] == problem]
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["n"], row["instance"]
        best[key] = min(best.get(key, np.inf), float(row["cost"]))
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        known = float(row["reference"] or best[row["n"], row["instance"]])
        row["gap"] = percent(float(row["cost"]), known)
        found.setdefault(tuple(row[name] for name in CURVE), []).append(row)
    return found


def mean_gap(rows: list[Row], times: np.ndarray) -> np.ndarray:
    """Returns the mean gap over instances at each time, NaN before all have one."""
    lines = []
    for instance in {row["instance"] for row in rows}:
        mine = [row for row in rows if row["instance"] == instance]
        mine.sort(key=lambda row: float(row["seconds"]))
        seconds = np.array([float(row["seconds"]) for row in mine])
        gaps = np.array([np.nan, *(row["gap"] for row in mine)])
        lines.append(gaps[np.searchsorted(seconds, times, side="right")])
    return np.asarray(np.mean(lines, axis=0))


def draw(table: Path, problem: str, path: Path) -> list[Row]:
    """Draws gap over time, one panel per size, and returns where curves end."""
    found = curves(table, problem)
    sizes = sorted({int(curve[0]) for curve in found})
    figure = Figure(figsize=(6 * len(sizes), 4.5), layout="constrained")
    ends: list[Row] = []
    for panel, n in enumerate(sizes, start=1):
        axes = figure.add_subplot(1, len(sizes), panel)
        mine = {curve: rows for curve, rows in found.items() if int(curve[0]) == n}
        looks = sorted({curve[3:] for curve in mine})
        for curve, rows in mine.items():
            limit = max(float(row["limit"]) for row in rows)
            times = np.geomspace(limit / 500, limit, 200)
            gaps = mean_gap(rows, times)
            values = dict(zip(CURVE, curve, strict=True))
            # Only what differs between the curves is worth reading.
            differing = [
                f"{name} {values[name]}"
                for i, name in enumerate(CURVE)
                if name != "n" and len({other[i] for other in mine}) > 1
            ]
            style = STYLES[looks.index(curve[3:]) % len(STYLES)]
            axes.plot(
                times, gaps, style, color=COLOURS[values["encoder"]],
                label=", ".join(differing) or values["model"],
            )  # fmt: skip
            tenth, half = np.searchsorted(times, [limit / 10, limit / 2])
            ends.append(
                values
                | {
                    "gap_tenth": float(gaps[tenth]),
                    "gap_half": float(gaps[half]),
                    "gap": float(gaps[-1]),
                }
            )
        axes.set(title=f"{problem} {n}", xlabel="seconds", ylabel="gap (%)")
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    return ends


def count(text: str) -> int | None:
    """Reads a number of segments; auto lets the search choose."""
    return None if text == "auto" else int(text)


def main() -> None:
    """Reads the options, runs, and writes table and figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--n", type=int, nargs="*", default=[], help="random instances")
    parser.add_argument("--data", nargs="*", default=[], help="labelled sets")
    parser.add_argument("--model", nargs="*", default=[], help="names or folders")
    parser.add_argument("--instances", type=int, default=4, help="per size or set")
    parser.add_argument("--seconds", type=float, default=60.0, help="per run")
    parser.add_argument("--n-sub", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--n-least", type=int, help="begin with smaller sub-problems")
    parser.add_argument("--b-least", type=int, help="begin with narrower beams")
    parser.add_argument("--b-init", type=int, default=16)
    parser.add_argument("--b-sub", type=int, nargs="+", default=[16])
    parser.add_argument("--segments", type=count, nargs="+", default=[None])
    parser.add_argument("--order", nargs="+", default=["near"])
    parser.add_argument("--encoders", nargs="+", default=[*COLOURS], choices=COLOURS)
    parser.add_argument("--polish", action="store_true", help="local moves between")
    parser.add_argument(
        "--kicks", type=int, default=0, help="per iteration (TSP, CVRP)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("lns-benchmark"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.out.mkdir(parents=True, exist_ok=True)
    table = given.out / "lns.csv"
    if given.model:
        run(given, table)
    ends = draw(table, given.problem, given.out / f"lns-{given.problem}.png")
    print()
    print(f"{'mean gap (%) at':60} {'1/10':>8} {'1/2':>8} {'end':>8} of the time")
    for end in ends:
        name = " ".join(str(end[key]) for key in CURVE)
        print(
            f"{name:60} {end['gap_tenth']:8.3f} {end['gap_half']:8.3f} "
            f"{end['gap']:8.3f}"
        )
    # JSON has no NaN.
    print(json.dumps(ends).replace("NaN", "null"))


if __name__ == "__main__":
    main()
