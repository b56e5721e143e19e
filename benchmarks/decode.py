"""How fast policies decode: recurrent against base, and the time outside encoders.

    python benchmarks/decode.py                   # n = 100 and 200, all problems
    python benchmarks/decode.py --n 100 500 --threads 2 --repeats 5
    python benchmarks/decode.py --memory          # peak memory at n = 1000

Weights are random: speed does not depend on them. All policies of a problem and size
are measured interleaved in one run, so that their ratios mean something even where
seconds do not. A single instance is solved by beam search with k = 1000, warm-up
excluded, environment and cost included. The last line is JSON.
"""

import argparse
import contextlib
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from renco.construct import beam_search
from renco.model import PLANS, SIZES, Policy, PolicyConfig
from renco.problems import PROBLEMS

BASE = "L9-d192-h12"
RECURRENT = ("L3-d192-h12", "L4-d128-h8")


class Stopwatch:
    """Adds up the time spent inside the encoders of a policy."""

    def __init__(self, policy: Policy) -> None:
        """Times every call of the encoders from now on."""
        self.base = self.recurrent = 0.0
        self._time(policy.base, "base")
        if policy.recurrent is not None:
            self._time(policy.recurrent, "recurrent")

    def _time(self, encoder: nn.Module, name: str) -> None:
        forward: Callable[..., Any] = encoder.forward

        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            result = forward(*args)
            setattr(self, name, getattr(self, name) + time.perf_counter() - began)
            return result

        encoder.forward = timed  # type: ignore[method-assign]


class Enough(Exception):
    """The decoding has shown what it needs."""


def only(steps: int) -> Callable[[], None]:
    """Returns what ends a decoding after some steps; 0 lets it run."""
    left = iter(range(steps))

    def on_step() -> None:
        if steps and next(left, None) is None:
            raise Enough

    return on_step


def random_policy(problem: str, recurrent: str | None, plain: bool) -> Policy:
    """Returns an untrained policy of the paper's base size, or with our options."""
    config = PolicyConfig.for_state(
        PROBLEMS[problem].random(1, 5).start(),
        problem=problem,
        base=SIZES[BASE],
        recurrent=SIZES[recurrent] if recurrent else None,
        zoom=not plain,
        relative=not plain,
        neighbors=not plain,
        geometry=not plain,
        **{name: not plain and of == problem for name, of in PLANS.items()},
    )
    torch.manual_seed(0)
    return Policy(config).eval().requires_grad_(False)


def measure(problem: str, n: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns one row per policy, from interleaved runs."""
    instance = PROBLEMS[problem].random(1, n, seed=1)
    names = [None, *RECURRENT] if not given.smallest else [RECURRENT[-1]]
    policies = [random_policy(problem, name, not given.ours) for name in names]
    watches = [Stopwatch(policy) for policy in policies]
    runs: list[list[tuple[float, float, float]]] = [[] for _ in names]
    for repeat in range(given.repeats + 1):
        for i, (policy, watch) in enumerate(zip(policies, watches, strict=True)):
            watch.base = watch.recurrent = 0.0
            began = time.perf_counter()
            k = 1000 if policy.recurrent is not None else 1
            with contextlib.suppress(Enough):
                found = beam_search(
                    policy,
                    instance.start(),
                    k=k,
                    width=given.width,
                    on_step=only(given.steps),
                )
                instance.cost(instance.routes(found.decisions))
            total = time.perf_counter() - began
            if repeat:  # the first round warms up
                runs[i].append((total, watch.base, watch.recurrent))
    rows = []
    slow = statistics.median(total for total, _, _ in runs[0])
    for name, times in zip(names, runs, strict=True):
        total, base, recurrent = (
            statistics.median(c) for c in zip(*times, strict=True)
        )
        # Of a recurrent policy, only its first step runs E: leave that one out.
        inside, whole = (recurrent, total - base) if name else (base, total)
        rows.append(
            {
                "problem": problem,
                "n": n,
                "policy": name or f"base {BASE}",
                "seconds": total,
                "speedup": slow / total,
                "outside": 1 - inside / whole,
            }
        )
    return rows


def show(row: dict[str, Any]) -> None:
    """Prints one row of the table."""
    print(
        f"{row['problem']:5} {row['n']:5} {row['policy']:17} {row['seconds']:9.3f} s "
        f"{row['speedup']:6.2f}x {100 * row['outside']:7.1f} %",
        flush=True,
    )


def memory(width: int, steps: int = 8) -> dict[str, Any]:
    """Begins to decode n = 1000 and returns the peak memory.

    States only get smaller: a few steps, the base encoder's among them, see the peak.
    """
    instance = PROBLEMS["cvrp"].random(1, 1000, seed=1)
    policy = random_policy("cvrp", RECURRENT[0], plain=True)
    with contextlib.suppress(Enough):
        beam_search(policy, instance.start(), k=4, width=width, on_step=only(steps))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"cvrp n = 1000, beam {width}: peak memory {peak:.2f} GB")
    return {"peak_gb": peak}


def main() -> None:
    """Measures, prints a table, and JSON on the last line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS])
    parser.add_argument("--n", nargs="+", type=int, default=[100, 200])
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="only the first steps")
    parser.add_argument("--smallest", action="store_true", help="the smallest U only")
    parser.add_argument(
        "--ours", action="store_true", help="zoom, relative, neighbors, geometry"
    )
    parser.add_argument("--memory", action="store_true", help="peak memory only")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.memory:
        print(json.dumps(memory(given.width)))
        return
    print(f"{'':5} {'n':>5} {'policy':17} {'time':>11} {'speedup':>7} {'outside':>9}")
    rows = []
    for problem in given.problems:
        for n in given.n:
            for row in measure(problem, n, given):
                rows.append(row)
                show(row)
    print(
        json.dumps(
            {
                "threads": given.threads,
                "width": given.width,
                "steps": given.steps,
                "rows": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
