"""Measuring policies: the relative gap, and seconds per instance (section 4.1).

Time is taken as in the paper: one instance after the other, environment and cost
included, after a warm-up that does not count. Batches are faster but say nothing about
latency, so a batched run has no time.
"""

import csv
import io
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray

from renco import __version__
from renco.data import Trajectories
from renco.model import Policy
from renco.problems import Problem
from renco.searches import SEARCHES, Search, SearchOptions, find_search
from renco.stop import MaxIterations, MaxRuntime

__all__ = [
    "COLUMNS",
    "SEARCHES",
    "Evaluation",
    "Search",
    "append_row",
    "evaluate",
    "read_rows",
    "relative_gap",
]

COLUMNS = (
    *("date", "commit", "model", "problem", "n", "instances", "dataset_sha256"),
    *("search", "k", "width", "gap_mean", "gap_sem", "seconds_per_instance"),
    *("threads", "hardware", "torch", "seed"),
    *("dataset", "stop", "n_sub", "cost_mean", "seconds_median", "batch", "precision"),
    "near",
)
"""Of the table of results: one row per model, set and search."""


def relative_gap(
    cost: Float[ndarray, " batch"], reference: Float[ndarray, " batch"]
) -> Float64[ndarray, " batch"]:
    """Returns 100 (f(x^) - f(x)) / |f(x)|: percent above the reference costs.

    Raises:
        ValueError: A reference is zero or the shapes differ.
    """
    cost, reference = np.asarray(cost, float), np.asarray(reference, float)
    if cost.shape != reference.shape:
        raise ValueError(f"{cost.shape} costs for {reference.shape} references")
    if (reference == 0).any():
        where = int(np.flatnonzero(reference == 0)[0])
        raise ValueError(f"the reference cost of instance {where} is zero")
    return np.asarray(100 * (cost - reference) / np.abs(reference))


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """How one search with one policy did on one set.

    Attributes:
        policy: The policy.
        data: The set.
        search: Name of the search.
        options: Its options, k and beam filled in.
        cost: Cost of each instance.
        reference: Cost of the expert's solution of each instance.
        seconds: Time of each instance; None if they were solved in batches.
        batch: Instances that were solved together.
        threads: Processor threads.
        limits: How the search was stopped, in words.
        dataset: Name of the set.
    """

    policy: Policy
    data: Trajectories
    search: str
    options: SearchOptions
    cost: Float64[ndarray, " batch"]
    reference: Float64[ndarray, " batch"]
    seconds: Float64[ndarray, " batch"] | None
    batch: int
    threads: int
    limits: str = ""
    dataset: str = ""

    @property
    def gaps(self) -> Float64[ndarray, " batch"]:
        """The relative gap of each instance, in percent."""
        return relative_gap(self.cost, self.reference)

    @property
    def gap_mean(self) -> float:
        """The mean gap."""
        return float(self.gaps.mean())

    @property
    def gap_sem(self) -> float:
        """The standard error of the mean gap; zero for a single instance."""
        count = len(self.cost)
        return float(self.gaps.std(ddof=1) / count**0.5) if count > 1 else 0.0

    def row(self) -> dict[str, Any]:
        """Returns the row of the table of results."""
        seconds = self.seconds
        values = (
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            commit(),
            self.policy.name,
            self.data.manifest.problem,
            self.data.n,
            len(self.cost),
            self.data.sha256,
            self.search,
            self.options.k,
            self.options.beam,
            round(self.gap_mean, 6),
            round(self.gap_sem, 6),
            None if seconds is None else round(float(seconds.mean()), 6),
            self.threads,
            hardware(self.policy),
            torch.__version__,
            self.options.seed,
            self.dataset,
            self.limits,
            self.options.n_sub,
            round(float(self.cost.mean()), 6),
            None if seconds is None else round(float(np.median(seconds)), 6),
            self.batch,
            precision(self.policy),
            self.options.near or None,
        )
        return dict(zip(COLUMNS, values, strict=True))


def evaluate(
    policy: Policy,
    data: Trajectories,
    *,
    search: str = "greedy",
    options: SearchOptions | None = None,
    limit: int | None = None,
    batch: int | None = None,
    limits: str = "",
    dataset: str = "",
    progress: Callable[[int, int], object] | None = None,
) -> Evaluation:
    """Solves the instances of a set and compares with the expert.

    Args:
        policy: The policy to measure.
        data: A labelled set.
        search: Name of the search.
        options: Its options.
        limit: Only the first so many instances.
        batch: Instances to solve together, for speed; None measures time, one by one.
        limits: How the search is stopped, in words for the table of results.
        dataset: Name of the set, for the table of results.
        progress: Called with the number of instances done and to do.

    Raises:
        ValueError: The set has no labels or is of another problem, or an option
            makes no sense.
    """
    if policy.config.problem != data.manifest.problem:
        raise ValueError(
            f"model {policy.name} is for {policy.config.problem}, "
            f"the set is of {data.manifest.problem}"
        )
    if (batch is not None and batch < 1) or (limit is not None and limit < 1):
        raise ValueError(f"batch and limit must be at least 1, got {batch} and {limit}")
    count = min(limit or len(data), len(data))
    reference = data.costs[:count]
    found = find_search(search)
    instances = data.instances(slice(count))
    options = found.completed(options or SearchOptions(), policy, instances)
    cost, seconds = np.empty(count), np.empty(count)
    if batch is None:
        _warm_up(found, policy, instances[0], options)
    for low in range(0, count, batch or 1):
        part = instances[low : low + (batch or 1)]
        here = slice(low, low + len(part))
        cost[here], seconds[here] = _timed(found, policy, part, options)
        if progress is not None:
            progress(low + len(part), count)
    return Evaluation(
        policy=policy,
        data=data,
        search=search,
        options=options,
        cost=cost,
        reference=reference,
        seconds=seconds if batch is None else None,
        batch=batch or 1,
        threads=torch.get_num_threads(),
        limits=limits,
        dataset=dataset or (data.folder.name if data.folder else ""),
    )


def _warm_up(
    search: Search, policy: Policy, problem: Problem, options: SearchOptions
) -> None:
    """Lets caches, memory pools and clocks settle.

    Within a second where the search takes limits: without one, its first solution of
    a large instance takes minutes.
    """
    if search.improves:
        options = replace(options, stop=MaxIterations(1) | MaxRuntime(1.0))
    search(policy, problem, options)


def _timed(
    search: Search, policy: Policy, problem: Problem, options: SearchOptions
) -> tuple[Float64[ndarray, " batch"], float]:
    _synchronize(policy)
    began = perf_counter()
    cost = search(policy, problem, options).cost
    _synchronize(policy)
    return cost, perf_counter() - began


def _synchronize(policy: Policy) -> None:
    if next(policy.parameters()).is_cuda:
        torch.cuda.synchronize()


def append_row(path: str | Path, row: Mapping[str, Any]) -> None:
    """Adds a row to a CSV file, with a heading if the file is new.

    Raises:
        ValueError: The file has other columns.
        OSError: It cannot be written.
    """
    path = Path(path)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if old.strip():
        heading = next(csv.reader(io.StringIO(old)))
        if tuple(heading) != COLUMNS:
            raise ValueError(f"{path}: has columns {', '.join(heading[:4])}, ...")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not old.strip():
        writer.writeheader()
    elif not old.endswith("\n"):
        text.write("\n")
    writer.writerow(row)
    # One write in append mode: rows of parallel runs do not mix.
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text.getvalue())


def read_rows(paths: Iterable[str | Path]) -> list[dict[str, str]]:
    """Returns the rows of tables of results."""
    rows = []
    for path in paths:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows += list(csv.DictReader(file))
    return rows


def commit() -> str:
    """Returns the commit of the source, or the version where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        answer = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return answer.stdout.strip()


def hardware(policy: Policy) -> str:
    """Returns the name of the processor or graphics card that a policy runs on."""
    return machine(next(policy.parameters()).device)


def machine(device: torch.device) -> str:
    """Returns the name of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {os.cpu_count()} cores"


def processor() -> str:
    """Returns the name of the processor, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def precision(policy: Policy) -> str:
    """Returns the precision of the blocks, e.g. `bfloat16`."""
    block = next(policy.base.blocks.parameters())
    return str(block.dtype).removeprefix("torch.")
