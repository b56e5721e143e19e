"""Making sets of instances and labels (appendices C and D).

Instances are functions of `(seed, index)`, so any number of processes and machines
makes the same set. The work is cut into chunks; a finished chunk is one file, written
atomically, so a run that is killed loses the chunk it was at and nothing else, and
running it again continues.
"""

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from renco.chunks import Machine, Run, Unlabelled, claim
from renco.data import Trajectories
from renco.experts import default_seconds
from renco.labeller import find_expert
from renco.manifest import Manifest
from renco.problems import CVRP, OP, PROBLEMS
from renco.problems.cvrp import DEMAND, default_capacity
from renco.problems.op import LIMIT
from renco.progress import Callback, Progress

__all__ = ["Progress", "Unlabelled", "generate"]

CHUNK_SECONDS = 30.0
"""Work of one process that a kill may cost."""
LARGEST_CHUNK = 1024

AnyPath = str | os.PathLike[str]
Range = int | tuple[int, int]


def generate(
    problem: str | None,
    out: AnyPath,
    *,
    n: int = 100,
    count: int = 1000,
    seed: int = 0,
    first: int = 0,
    expert: str = "auto",
    seconds: float | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    ray: str | None = None,
    capacity: Range | None = None,
    demand: tuple[int, int] | None = None,
    limit: float | None = None,
    from_files: Sequence[AnyPath] = (),
    note: str = "",
    chunk: int | None = None,
    patience: float | None = None,
    progress: Callback | None = None,
) -> list[Trajectories]:
    """Makes a set of labelled instances, or continues one.

    Args:
        problem: `"tsp"`, `"cvrp"` or `"op"`; may be None with `from_files`.
        out: Folder of the set, made if it is not there.
        n: Customers (TSP: nodes) per instance.
        count: Number of instances.
        seed: Seed of the set; instance i depends on `(seed, first + i)` alone.
        first: Index of the first instance.
        expert: Name of an expert, `auto` for the best one installed, `none` for
            instances without labels, or `module:attribute` for one's own.
        seconds: Time of the expert per instance; None for what is usual for n.
        workers: Processes to run side by side; None for all cores.
        shard: `(i, N)` makes only the i-th of N equal parts, i in 1..N, for jobs that
            share the folder. The last one to finish completes the set.
        ray: Address of a Ray cluster to run on instead of this machine.
        capacity: CVRP: Q, or the bounds to draw it from; None for the paper's.
        demand: CVRP: least and largest demand.
        limit: OP: the longest tour allowed.
        from_files: Label these instance files instead of drawing instances. Every
            size and metric becomes a set of its own: `out/tsp52-EUC_2D` and so on.
        note: Remark for the manifest.
        chunk: Instances per unit of work; None for about 30 s of work.
        patience: Seconds until a solve counts as hanging and its process is killed;
            None for twenty times `seconds`, at least two minutes.
        progress: Called after every instance.

    Returns:
        The finished sets; none of those for which other shards still have work.

    Raises:
        ValueError: An argument makes no sense, or the folder holds another set.
        ImportError: The expert is not installed.
        Unlabelled: The expert failed on some instances, three times each.
        OSError: The folder cannot be written.
    """
    part, parts = shard or (1, 1)
    if not 1 <= part <= parts:
        raise ValueError(f"shard must be i/N with 1 <= i <= N, got {part}/{parts}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"seconds must be positive, got {seconds}")
    if from_files:
        plans = _plans_of_files(Path(out), [Path(p) for p in from_files], problem)
    else:
        if problem not in PROBLEMS:
            raise ValueError(
                f"problem must be one of {list(PROBLEMS)}, got {problem!r}"
            )
        settings = _settings(problem, n, capacity, demand, limit)
        plan = Manifest(
            problem=problem,
            n=n,
            count=count,
            seed=seed,
            first=first,
            settings=settings,
            expert=None,
        )
        plan.draw(first, 1)  # refuses impossible settings before any work
        plans = {Path(out): plan}
    machine = Machine(workers or _cores(), ray, patience)
    sets, failed = [], []
    for folder, plan in plans.items():
        plan = _with_expert(plan, expert, seconds, chunk, note)
        try:
            run = Run(folder, claim(folder, plan), (part, parts), progress)
            made = run.execute(machine)
        except Unlabelled as error:
            failed.append(error)
        else:
            sets += [made] if made else []
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("unlabelled", failed)
    return sets


def _settings(
    problem: str,
    n: int,
    capacity: Range | None,
    demand: tuple[int, int] | None,
    limit: float | None,
) -> dict[str, Any]:
    """Returns the arguments of `Problem.random`, with its defaults spelled out."""
    if problem != CVRP.name and (capacity is not None or demand is not None):
        raise ValueError(f"capacity and demand belong to cvrp, not to {problem}")
    if problem != OP.name and limit is not None:
        raise ValueError(f"a limit belongs to op, not to {problem}")
    if problem == CVRP.name:
        capacity = default_capacity(n) if capacity is None else capacity
        bounds = capacity if isinstance(capacity, int) else list(capacity)
        return {"capacity": bounds, "demand": list(demand or DEMAND)}
    if problem == OP.name:
        return {"limit": LIMIT if limit is None else float(limit)}
    return {}


def _with_expert(
    plan: Manifest, name: str, seconds: float | None, chunk: int | None, note: str
) -> Manifest:
    expert = find_expert(name, plan.problem)
    if expert is None:
        return replace(plan, chunk=chunk or LARGEST_CHUNK, note=note)
    seconds = seconds or default_seconds(plan.problem, plan.n)
    return replace(
        plan,
        # One's own expert must be found again by the workers, where it came from.
        expert=name if ":" in name else expert.name,
        version=expert.version,
        seconds=seconds,
        chunk=chunk or min(LARGEST_CHUNK, max(1, int(CHUNK_SECONDS / seconds))),
        note=note,
    )


def _plans_of_files(
    out: Path, files: Sequence[Path], problem: str | None
) -> dict[Path, Manifest]:
    """Sorts instance files into sets of one problem, size and metric."""
    from renco.formats import read

    groups = defaultdict(list)
    for path in files:
        instance = read(path)
        if problem is not None and instance.name != problem:
            raise ValueError(f"{path}: a {instance.name} instance, not {problem}")
        if instance.matrix is not None:
            raise ValueError(f"{path}: a set holds coordinates, not a matrix")
        groups[instance.name, instance.n, instance.metric].append(str(path))
    return {
        out / f"{name}{n}-{metric}": Manifest(
            problem=name,
            n=n,
            count=len(paths),
            seed=None,
            files=paths,
            metric=metric,
            expert=None,
        )
        for (name, n, metric), paths in sorted(groups.items())
    }


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
