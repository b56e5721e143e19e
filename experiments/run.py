"""Measures what the figures and tables of the paper show, one command per item.

    python experiments/run.py figure2                # recurrent, base and plain models
    python experiments/run.py k --problem tsp        # gap against k
    python experiments/run.py figure3 --n 500        # large neighborhood search
    python experiments/run.py figure4                # classical solvers, equal times
    python experiments/run.py table1                 # greedy, beams, --lehd, --rl
    python experiments/run.py speed                  # recurrent against base
    python experiments/run.py all --dry-run          # says how long it would take
    python experiments/run.py all --scale paper      # as large as the paper, for GPUs

Several items are measured together and share what they have in common. Rows go to
`results/SET.csv`, one per instance and method; what has a row is not measured again.
`python experiments/render.py` then writes tables and figures to `docs/`.

The default scale is for one core of a small server; `--instances`, `--n`, `--width`
and `--limit` make it smaller or larger. With one thread each, two commands for two
problems can run at the same time on two cores.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import torch
from methods import (
    ALGORITHM4,
    Bench,
    Model,
    expected_seconds,
    lehd_method,
    local_method,
    models,
    peers,
    reinforced_method,
)
from peers import lehd as lehd_peer
from peers import reinforced
from protocol import Method, Plan, Stamp
from rows import METHOD, RESULTS, Row, gap

from renco.problems import PROBLEMS
from renco.sight import NEAR
from renco.solver import find_device
from renco.testsets import names, open_data

SIZES = (100, 200, 500, 1000)


@dataclass(frozen=True)
class Scale:
    """How large the experiments are.

    Attributes:
        instances: Of each test set, by size.
        widths: Beam widths, by size; 1 is greedy.
        ks: Steps between base encodings, beside 1 and all.
        limits: Seconds per instance of searches and solvers, by size.
        lns_seconds: Seconds of the curves of figure 3, by size.
        n_sub: Sizes of sub-problems of figure 3.
    """

    instances: Mapping[int, int]
    widths: Mapping[int, tuple[int, ...]]
    ks: tuple[int, ...]
    limits: Mapping[int, tuple[float, ...]]
    lns_seconds: Mapping[int, float]
    n_sub: tuple[int, ...]


SCALES = {
    "cpu": Scale(
        instances={100: 16, 200: 8, 500: 2, 1000: 1},
        widths={100: (1, 16), 200: (1, 16), 500: (1,), 1000: (1,)},
        ks=(10, 50, 200),
        limits={100: (0.25, 1.0), 200: (0.5, 2.0), 500: (2.0, 8.0), 1000: (5.0, 20.0)},
        lns_seconds={500: 20.0, 1000: 40.0},
        n_sub=(50, 100, 200),
    ),
    "paper": Scale(
        instances={100: 256, 200: 64, 500: 16, 1000: 8},
        widths={100: (1, 16, 64), 200: (1, 16, 64), 500: (16,), 1000: (16,)},
        ks=(2, 5, 10, 20, 50, 100, 200, 500),
        limits={
            100: (0.25, 1.0, 5.0),
            200: (0.5, 2.0, 10.0),
            500: (2.0, 10.0, 60.0),
            1000: (5.0, 20.0, 120.0),
        },
        lns_seconds={500: 300.0, 1000: 600.0},
        n_sub=(100, 200),
    ),
}
"""By name: what one core does in an hour, and what the paper did on a GPU."""


@dataclass(frozen=True)
class Setting:
    """A test set as the items see it.

    Attributes:
        problem: Its problem.
        n: Its size.
        scale: How much to measure.
        found: The models for it.
        lehd: Folder of a trained LEHD, or empty.
        rl: Folders of trained POMO and MDAM.
    """

    problem: str
    n: int
    scale: Scale
    found: list[Model]
    lehd: str = ""
    rl: tuple[str, ...] = ()

    def of_size(self, table: Mapping[int, object]) -> object:
        """Returns the entry for the nearest size that is not smaller."""
        return table[min((n for n in table if n >= self.n), default=max(table))]

    @property
    def widths(self) -> tuple[int, ...]:
        """Beam widths."""
        return self.of_size(self.scale.widths)  # type: ignore[return-value]

    @property
    def limits(self) -> tuple[float, ...]:
        """Time limits."""
        return self.of_size(self.scale.limits)  # type: ignore[return-value]


def construct(model: Model, width: int, k: int | None = None) -> Method:
    """Returns greedy construction or beam search with a model."""
    search = "greedy" if width == 1 else "beam"
    return model.method(search, width=width, k=k or model.k)


def figure2(at: Setting) -> list[Method]:
    """Gap against time for recurrent, base and plain models."""
    return [construct(model, at.widths[-1]) for model in at.found]


def over_k(at: Setting) -> list[Method]:
    """Gap against k; k = 1 is the base model, and 1000 is figure 2."""
    widest = at.widths[-1]
    ends = [m for m in at.found if m.role in ("recurrent", "base")]
    found = [construct(model, widest) for model in ends]
    for k in at.scale.ks:
        if k < at.n:
            steps = [model for model in ends if model.role == "recurrent"]
            found += [construct(model, widest, k) for model in steps]
    return found


def figure3(at: Setting) -> list[Method]:
    """Curves of the large neighborhood search."""
    return [
        model.method(ALGORITHM4, n_sub=n_sub, limit=at.of_size(at.scale.lns_seconds))
        for model in at.found
        if model.role in ("recurrent", "base")
        for n_sub in at.scale.n_sub
    ]


def figure4(at: Setting) -> list[Method]:
    """Our searches and classical solvers, at equal time limits."""
    ours = [model for model in at.found if model.role == "recurrent"]
    ours = ours or [model for model in at.found if model.role == "base"]
    found = [m.method("lns", limit=limit) for m in ours for limit in at.limits]
    for peer in [local_method(), *peers(at.problem)]:
        found += [replace(peer, limit=limit) for limit in at.limits]
    return found + table1(at)


def table1(at: Setting) -> list[Method]:
    """Greedy and beams of recurrent and base models, LEHD, POMO and MDAM."""
    ends = [m for m in at.found if m.role in ("recurrent", "base")]
    found = [construct(model, width) for model in ends for width in at.widths]
    if at.lehd:
        found += [lehd_method(at.lehd, search) for search in ("greedy", "rrc10")]
    for folder in at.rl:
        searches = reinforced.SEARCHES[reinforced.read_about(folder)["method"]]
        found += [reinforced_method(folder, search) for search in searches]
    return found


def near(at: Setting) -> list[Method]:
    """Greedy constructions that look at the nearest nodes only, or at all of them."""
    ends = [m for m in at.found if m.role in ("recurrent", "base")]
    short = f"near{NEAR[at.problem]}"
    found = [model.method(short, width=1, k=model.k) for model in ends]
    return found + [construct(model, 1) for model in ends if model.role == "recurrent"]


def speed(at: Setting) -> list[Method]:
    """Recurrent against base; not where there is only one of them."""
    ends = [m for m in at.found if m.role in ("recurrent", "base")]
    if len({model.role for model in ends}) < 2:
        return []
    return [construct(model, at.widths[-1]) for model in ends]


ITEMS: dict[str, tuple[Callable[[Setting], list[Method]], tuple[int, ...]]] = {
    "figure2": (figure2, SIZES),
    "k": (over_k, (100, 200)),
    "figure3": (figure3, (500, 1000)),
    "figure4": (figure4, (100, 200)),
    "table1": (table1, (100, 200)),
    "speed": (speed, SIZES),
    "near": (near, (500, 1000)),
}
"""What to run, and on which sizes unless told otherwise."""


def plans(given: argparse.Namespace, stamp: Stamp) -> list[Plan]:
    """Returns what to measure on each test set."""
    scale = SCALES[given.scale]
    if given.width:
        scale = replace(scale, widths={n: tuple(given.width) for n in SIZES})
    if given.limit:
        limits = {n: tuple(given.limit) for n in SIZES}
        longest = dict.fromkeys(SIZES, max(given.limit))
        scale = replace(scale, limits=limits, lns_seconds=longest)
    if given.k:
        scale = replace(scale, ks=tuple(given.k))
    if given.n_sub:
        scale = replace(scale, n_sub=tuple(given.n_sub))
    items = list(ITEMS) if "all" in given.items else given.items
    found = []
    for source in given.data or wanted_sets(given, items):
        data = open_data(source)
        problem, n = data.manifest.problem, data.n
        available = models(problem, given.model)
        about = {f: lehd_peer.read_about(f)["policy"]["problem"] for f in given.lehd}
        lehd = next((f for f in about if about[f] == problem), "")
        about = {f: reinforced.read_about(f)["problem"] for f in given.rl}
        rl = tuple(f for f in about if about[f] == problem)
        at = Setting(problem, n, scale, available, lehd, rl)
        methods: dict[Method, None] = {}
        for item in items:
            make, sizes = ITEMS[item]
            if given.n or given.data or n in sizes:
                methods |= dict.fromkeys(make(at))
        count = given.instances or at.of_size(scale.instances)
        dataset = Path(source).stem
        table = given.results / f"{dataset}.csv"
        found.append(Plan(data, dataset, count, list(methods), stamp, table))  # type: ignore[arg-type]
    return found


def wanted_sets(given: argparse.Namespace, items: Iterable[str]) -> list[str]:
    """Returns the names of test sets to solve, and says which are not shipped."""
    sizes = given.n or sorted({n for item in items for n in ITEMS[item][1]})
    wanted = [f"{problem}{n}-test" for problem in given.problem for n in sizes]
    for name in wanted:
        if name not in names():
            print(f"{name}: not shipped, left out", file=sys.stderr)
    return [name for name in wanted if name in names()]


class Report:
    """Prints a line per measurement, with the time that is left."""

    def __init__(self, expected: float) -> None:
        """Begins; `expected` is the whole time in seconds, as far as one can tell."""
        self.expected, self.done, self.began = expected, 0.0, monotonic()

    def __call__(self, row: Row, seconds: float) -> None:
        """Tells how one measurement went, that was expected to take `seconds`."""
        self.done += seconds
        spent = monotonic() - self.began
        left = spent * (self.expected - self.done) / max(self.done, 1e-9)
        found = f"{gap(row):8.2f} %" if row["cost"] else row["fault"]
        words = [row[name] for name in ("role", "model", "search", "width", "limit")]
        what = " ".join(filter(None, words))
        print(
            f"{row['dataset']} #{row['instance']:<3} {what:52} {found} "
            f"{float(row['seconds']):8.2f} s, {left / 60:.1f} min left",
            flush=True,
        )


def main() -> None:
    """Measures some items."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("items", nargs="+", choices=[*ITEMS, "all"], metavar="ITEM")
    parser.add_argument("--problem", nargs="+", default=[*PROBLEMS], choices=PROBLEMS)
    parser.add_argument("--n", nargs="+", type=int, help="sizes of the test sets")
    parser.add_argument("--data", nargs="+", help="sets instead, by name or path")
    parser.add_argument("--instances", type=int, help="of each set")
    parser.add_argument("--width", nargs="+", type=int, help="beams; 1 is greedy")
    parser.add_argument("--k", nargs="+", type=int, help="steps between encodings")
    parser.add_argument("--limit", nargs="+", type=float, help="seconds per instance")
    parser.add_argument("--n-sub", nargs="+", type=int, help="sizes of sub-problems")
    parser.add_argument("--model", nargs="+", default=[], help="models not shipped")
    parser.add_argument("--lehd", nargs="+", default=[], help="folders of trained LEHD")
    parser.add_argument(
        "--rl", nargs="+", default=[], help="folders of trained POMO, MDAM"
    )
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:i")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where rows go")
    parser.add_argument("--dry-run", action="store_true", help="only say how long")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = find_device(given.device)
    stamp = Stamp.here(device, given.seed)
    todo = plans(given, stamp)
    total = 0.0
    for plan in todo:
        missing = plan.missing()
        seconds = sum(expected(plan, method) for _, method in missing)
        total += seconds
        print(
            f"{plan.dataset}: {len(missing)} of {plan.count * len(plan.methods)} "
            f"measurements left, about {seconds / 60:.1f} min"
        )
    print(f"about {total / 60:.1f} min on {given.threads} threads of {stamp.hardware}")
    if given.dry_run:
        return
    bench, report = Bench(device), Report(total)
    for plan in todo:
        by_name = {str(m.cells()): expected(plan, m) for m in plan.methods}
        plan.run(bench, lambda row, e=by_name: report(row, e[method_of(row)]))


def expected(plan: Plan, method: Method) -> float:
    """Returns about how long one measurement takes."""
    problem = plan.data.manifest.problem
    return expected_seconds(method, problem, plan.data.n, plan.stamp.peak)


def method_of(row: Row) -> str:
    """Returns the columns of a row that say what was run, as text."""
    return str({name: row[name] for name in METHOD})


if __name__ == "__main__":
    main()
