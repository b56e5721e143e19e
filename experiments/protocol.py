"""How everything here is measured: one row per instance and method.

One instance at a time, environment and cost included, warm-up excluded, all methods
interleaved instance by instance in one run on one number of threads. Every solution
passes the float64 checker of its problem before its cost counts. Rows are appended to
`results/SET.csv` as they come; what has a row already is not measured again, so an
interrupted run goes on where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol, Self

import torch
from rows import COLUMNS, METHOD, STAMP, Row, append, cell, key, read_table
from torch import nn

from renco.data import Trajectories
from renco.evaluate import commit, machine
from renco.experts import ExpertFailed
from renco.model import EncoderConfig, Policy
from renco.problems import Problem, Routes

SHOWN = 16
"""Digits of a SHA-256 that a row keeps."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to solve an instance.

    Attributes:
        role: `recurrent`, `base`, `plain`, `lehd`, `pomo`, `mdam`, `local` for our
            local moves without a network, or `peer` for classical solvers.
        model: Name of the model, or of the solver.
        size: Of the encoder that runs at most steps, e.g. `L2-d128-h8`.
        model_sha256: Hash of the weights; empty for solvers.
        search: `greedy`, `beam`, `lns`, `algorithm4`, `rrc10`, `near100` (greedy, with
            100 nodes in sight); empty for solvers.
        k: Steps from one base encoding to the next.
        width: Width of the beams.
        n_sub: Size of sub-problems; None for the default.
        limit: Seconds it may take; None for methods that end by themselves.
        version: Version of the solver.
        source: Where the model is loaded from; not in rows.
    """

    role: str
    model: str
    size: str = ""
    model_sha256: str = ""
    search: str = ""
    k: int | None = None
    width: int | None = None
    n_sub: int | None = None
    limit: float | None = None
    version: str = ""
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Returns a few words that tell it from the others."""
        words = [self.role, self.model, self.search]
        for name in ("k", "width", "n_sub", "limit"):
            value = getattr(self, name)
            words += [f"{name} {value:g}"] if value is not None else []
        return " ".join(filter(None, words))

    def cells(self) -> Row:
        """Returns its columns."""
        return {name: cell(getattr(self, name)) for name in METHOD}


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """A solution and what it took.

    Attributes:
        routes: The solution.
        seconds: Time from instance to checked solution.
        inside: Part of it inside the encoders.
        gflop: Billions of operations in the matrix products of the encoders.
        history: When which cost was reached, for searches that go on improving.
    """

    routes: Routes
    seconds: float
    inside: float | None = None
    gflop: float | None = None
    history: Sequence[tuple[float, float]] = ()


class Solver(Protocol):
    """Runs methods."""

    def __call__(self, method: Method, problem: Problem, seed: int) -> Answer:
        """Solves one instance."""
        ...

    def warm_up(self, method: Method, problem: Problem) -> None:
        """Lets caches, memory pools and clocks settle."""
        ...


@dataclass(frozen=True)
class Stamp:
    """What all rows of a run share.

    Attributes:
        run: When it began.
        commit: Of the source.
        hardware: Processor or graphics card.
        threads: Processor threads of torch; solvers use one.
        torch: Version.
        peak: Billions of operations per second that this machine reaches in one
            large matrix product, on these threads.
        seed: Of searches and solvers.
    """

    run: str
    commit: str
    hardware: str
    threads: int
    torch: str
    peak: float
    seed: int = 0

    @classmethod
    def here(cls, device: torch.device, seed: int = 0) -> Self:
        """Returns the stamp of a run that begins now, on torch's threads."""
        threads, version = torch.get_num_threads(), torch.__version__
        return cls(
            *(now(), commit(), machine(device), threads, version, peak(device), seed)
        )


def now() -> str:
    """Returns the time as rows have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(eq=False)
class Plan:
    """Which methods are to solve which instances of a set.

    Attributes:
        data: The set.
        dataset: Its name.
        count: How many of its instances.
        methods: What to run on each.
        stamp: Where and when.
        table: File of the rows.
    """

    data: Trajectories
    dataset: str
    count: int
    methods: Sequence[Method]
    stamp: Stamp
    table: Path
    _known: set[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Looks up what has been measured before."""
        self.count = min(self.count, len(self.data))
        self._known = {key(row) for row in read_table(self.table)}

    def row(self, method: Method, instance: int) -> Row:
        """Returns the row of a measurement, without its results."""
        stamp = {name: cell(getattr(self.stamp, name)) for name in STAMP}
        return dict.fromkeys(COLUMNS, "") | {
            **stamp,
            **method.cells(),
            "dataset": self.dataset,
            "dataset_sha256": self.data.sha256[:SHOWN],
            "instance": str(instance),
            "reference": cell(float(self.data.costs[instance])),
        }

    def missing(self) -> list[tuple[int, Method]]:
        """Returns what is left to measure, interleaved.

        Each instance begins with another method: none always runs in the wake of
        the same other.
        """
        found = []
        for i in range(self.count):
            turn = i % max(1, len(self.methods))
            for method in [*self.methods[turn:], *self.methods[:turn]]:
                if key(self.row(method, i)) not in self._known:
                    found.append((i, method))
        return found

    def run(self, solve: Solver, report: Callable[[Row], object]) -> None:
        """Measures what is missing and writes a row for each."""
        warm: set[Method] = set()
        for i, method in self.missing():
            problem = self.data.instances([i])
            if method not in warm:
                solve.warm_up(method, problem)
                warm.add(method)
            row = self.row(method, i) | {"date": now()}
            row |= measured(solve, method, problem, self.stamp.seed)
            self.table.parent.mkdir(parents=True, exist_ok=True)
            append(self.table, row)
            self._known.add(key(row))
            report(row)


def measured(solve: Solver, method: Method, problem: Problem, seed: int) -> Row:
    """Returns the results of one measurement; a solver's failure is one."""
    began = perf_counter()
    try:
        answer = solve(method, problem, seed)
    except ExpertFailed as error:
        seconds = cell(perf_counter() - began)
        return {"seconds": seconds, "fault": " ".join(str(error).split())[:80]}
    cost = float(problem.cost([answer.routes])[0])
    history = " ".join(f"{s:.4g}:{c:.7g}" for s, c in answer.history)
    return {
        "cost": cell(cost),
        "seconds": cell(answer.seconds),
        "inside": cell(answer.inside),
        "gflop": cell(answer.gflop),
        "history": history,
    }


def peak(device: torch.device, size: int = 2048, repeats: int = 3) -> float:
    """Returns the billions of float32 operations per second of a matrix product.

    On processors from their own time, not the clock's: right on a busy machine too.
    """
    a = torch.rand(size, size, device=device)
    best = 0.0
    for _ in range(repeats):
        clock, work = perf_counter(), process_time()
        (a @ a)[0, 0].item()  # waits for the device
        seconds = perf_counter() - clock
        if device.type == "cpu":
            seconds = (process_time() - work) / torch.get_num_threads()
        best = max(best, 2 * size**3 / seconds / 1e9)
    return best


def gflop(size: EncoderConfig, rows: int, nodes: int, outer: int = 0) -> float:
    """Returns the work of an encoder's matrix products on a batch, in GFLOP.

    Args:
        size: Of the encoder.
        rows: Path problems of the batch.
        nodes: Of each.
        outer: Width of the base encoder, for a recurrent one, which reads and
            writes its embeddings.
    """
    d = size.d
    block = 2 * (4 * d * d + 2 * d * size.ff) + 4 * nodes * d
    ends = 2 * d * (outer + d) + 2 * d * outer if outer else 0
    return rows * nodes * (size.layers * block + ends) / 1e9


class Meter:
    """Adds up time and work inside the encoders of a policy."""

    def __init__(self, policy: Policy) -> None:
        """Watches every call of the encoders from now on."""
        self.seconds = self.gflop = 0.0
        # A graphics card works on while the clock is read: no time inside then.
        self.timed = next(policy.parameters()).device.type == "cpu"
        config = policy.config
        self._watch(policy.base, config.base, 0)
        if policy.recurrent is not None and config.recurrent is not None:
            self._watch(policy.recurrent, config.recurrent, config.base.d)

    def _watch(self, encoder: nn.Module, size: EncoderConfig, outer: int) -> None:
        forward: Callable[..., Any] = encoder.forward

        def watched(*args: Any) -> Any:
            began = perf_counter()
            result = forward(*args)
            self.seconds += perf_counter() - began
            rows, nodes, _ = result.shape
            self.gflop += gflop(size, rows, nodes, outer)
            return result

        encoder.forward = watched  # type: ignore[method-assign]

    def reset(self) -> None:
        """Starts again from zero."""
        self.seconds = self.gflop = 0.0
