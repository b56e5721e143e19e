"""Corrections: what an expert does in the states that the policy itself reaches.

A policy that imitates has only seen states of an expert's making, and the first
mistake leads it where it never was: the limitation that the paper names. DAgger
(Ross, Gordon and Bagnell, 2011) has the cure: roll the policy out, stop somewhere, let
the expert finish the solution, and train on the rest. The record of a correction is
a whole solution, which begins with decisions of the policy's own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Self

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.construct import greedy
from renco.data import OWN, Trajectories, folders_with, write_set
from renco.experts import ExpertFailed, Solver, find
from renco.files import write_atomic
from renco.manifest import Manifest, is_there
from renco.model import Policy
from renco.problems import Problem
from renco.progress import Callback, Progress
from renco.storage import DamagedData, array_bytes, read_rows
from renco.workers import Answer, label_locally

LEAST_LEFT = 5
"""Decisions that are left to the expert, at least: few teach nothing."""
COMPLETE = {"tsp": "fast-tsp", "cvrp": "hygese", "op": "pyvrp"}
"""The expert that finishes solutions best."""
SECONDS = {"tsp": 0.01, "cvrp": 0.1, "op": 0.2}
"""Time of an expert per solution, of which half is left on average."""
TOGETHER = 256
"""Instances that are rolled out as one batch."""
LEAST_DOUBT = 0.01
"""Counted before every stop, so that a policy without doubts is stopped too."""
AHEAD = 10
"""Decisions after a stop whose doubts count: as many as training unrolls."""


@dataclass(frozen=True, eq=False)
class RollOut:
    """What a policy decided on one instance.

    Attributes:
        decisions: Decisions, in order.
        doubt: Probability, as the policy saw it, that another one was right.
    """

    decisions: list[int]
    doubt: Float64[ndarray, " step"]

    def stopped(self, power: float, rng: np.random.Generator) -> list[int]:
        """Keeps a random number of decisions, often those before many doubts.

        At least one, and an empty tour stays empty.
        """
        last = max(1, len(self.decisions) - LEAST_LEFT)
        doubts = np.concatenate([[0.0], self.doubt.cumsum()])
        stops = np.arange(1, last + 1)
        ends = np.minimum(stops + AHEAD, len(self.decisions))
        ahead = doubts[ends] - doubts[np.minimum(stops, ends)]
        weights = np.maximum(ahead, LEAST_DOUBT) ** power
        return self.decisions[: int(rng.choice(stops, p=weights / weights.sum()))]


@dataclass(frozen=True, eq=False)
class Corrections:
    """A set of solutions, each begun by a policy and finished by an expert.

    Attributes:
        data: Instances and decisions.
        own: How many decisions of each solution are the policy's own.
    """

    data: Trajectories
    own: Int[ndarray, " row"]

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Opens one of the sets that `correct` wrote.

        Raises:
            FileNotFoundError: There are no corrections in the folder.
            DamagedData: The files do not fit together.
        """
        data = Trajectories(folder)
        own = read_rows(Path(folder) / OWN, np.dtype(np.int64))
        if len(own) != len(data):
            raise DamagedData(f"{folder}: {OWN} has {len(own)} of {len(data)} rows")
        return cls(data, own)

    @classmethod
    def read_all(cls, folder: Path | str) -> list[Self]:
        """Opens all sets of one call of `correct`.

        Raises:
            FileNotFoundError: There are none.
            DamagedData: Files do not fit together.
        """
        folders = folders_with(folder, OWN, "corrections")
        return [cls.read(folder) for folder in folders]

    @cached_property
    def groups(self) -> dict[int, Int[ndarray, " row"]]:
        """Rows by the length of their solutions, those that were stopped first first.

        Only solutions of one length fit in a batch; for TSP and CVRP that is all.
        """
        order = np.argsort(self.own, kind="stable")
        order = order[np.isin(order, self.rows)]
        lengths = self.data.lengths[order]
        return {int(n): order[lengths == n] for n in np.unique(lengths)}

    @cached_property
    def rows(self) -> Int[ndarray, " row"]:
        """Where the expert decided twice: U learns from the second decision on."""
        return np.flatnonzero(self.own + 2 <= self.data.lengths)

    def place(self, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the length of the solutions of a batch.

        Returns:
            The length, and the first step from which on an expert has decided.
        """
        length = int(self.data.lengths[self.rows[rng.integers(len(self.rows))]])
        return length, int(self.own[self.groups[length][0]])

    def batch(
        self, length: int, step: int, rows: int, rng: np.random.Generator
    ) -> tuple[Problem, Int[ndarray, "batch step"]]:
        """Draws solutions that are the expert's from a step on.

        Among those that were stopped last before it: the longer an expert has been at
        it, the less is left of what it would not have done itself.
        """
        group = self.groups[length]
        known = int(np.searchsorted(self.own[group], step, side="right"))
        ranks = rng.integers(max(0, known - 4 * rows), known, rows)
        return self.data.batch(group[ranks])


def correct(
    policy: Policy,
    data: Trajectories,
    out: Path | str,
    *,
    k: int = 1000,
    stops: int = 8,
    doubt: float = 2.0,
    expert: str = "auto",
    seconds: float | None = None,
    workers: int = 1,
    seed: int = 0,
    progress: Callback | None = None,
) -> list[Path]:
    """Rolls a policy out and lets an expert finish what it began.

    A roll-out costs more than an expert's answer, so each is stopped at several
    steps. Every stop is a set of its own; those that an earlier run has finished are
    kept.

    Args:
        policy: Decides greedily.
        data: Instances to roll out on; labels are ignored.
        out: Folder for the corrections, of which each stop gets one.
        k: Steps between two runs of the base encoder.
        stops: Corrections per instance.
        doubt: Stops as often as this power of the doubts in the decisions that
            follow says: what the policy is sure of teaches it nothing. 0 stops
            anywhere alike.
        expert: Who finishes; must be able to complete partial solutions.
        seconds: Time of the expert per solution; None for what is usual.
        workers: Processes to run side by side.
        seed: Decides where the policy is stopped.
        progress: Called after every correction.

    Returns:
        The folders, one per stop.

    Raises:
        ValueError: The expert cannot finish solutions of this problem, or the folder
            holds corrections of something else.
        OSError: The folder cannot be written.
        ExpertFailed: It gave no answer.
    """
    solver, out = finisher(expert, data.manifest.problem), Path(out)
    seconds = seconds or SECONDS[data.manifest.problem]
    begun = f"begun by {policy.name} with k = {k}, stop {{}} of seed {seed}"
    begun += f", doubt {doubt:g}" if doubt else ""
    plans = [
        replace(
            data.manifest,
            expert=solver.name,
            version=solver.version,
            seconds=seconds,
            note=f"{begun.format(stop)}, finished by the expert",
            shards={},
        )
        for stop in range(stops)
    ]
    folders = [out / f"stop-{stop}" for stop in range(stops)]
    there = [*map(is_there, folders, plans)]
    rolled = {} if all(there) else _roll_out(policy, data, k)
    rng, began = np.random.default_rng(seed), monotonic()
    for stop, (folder, plan) in enumerate(zip(folders, plans, strict=True)):
        own = {index: one.stopped(doubt, rng) for index, one in rolled.items()}
        if there[stop]:
            continue
        rows = plan.rows(np.array([*own]), data.instances(slice(None)))
        done = stop * len(rows)
        todo = {index: [steps] for index, steps in own.items()}
        for answer in finished(plan, todo, workers):
            row = rows[answer.index - plan.first]
            row["decisions"][: len(answer.decisions)] = answer.decisions
            row["cost"] = answer.cost
            done += 1
            if progress is not None:
                spent = monotonic() - began
                progress(Progress(done, stops * len(rows), done, 0, spent))
        folder.mkdir(parents=True, exist_ok=True)
        lengths = np.array([len(steps) for steps in own.values()], dtype=np.int64)
        write_atomic(folder / OWN, array_bytes(lengths))
        write_set(folder, plan, [rows])
    return folders


def finisher(name: str, problem: str) -> Solver:
    """Returns an expert that can finish partial solutions."""
    solver = find(COMPLETE[problem] if name == "auto" else name, problem)
    if solver is None or problem not in solver.completes:
        raise ValueError(
            f"expert {name} cannot finish partial solutions of {problem}, "
            f"{COMPLETE[problem]} can"
        )
    return solver


def finished(
    plan: Manifest, own: Mapping[int, Sequence[list[int]]], workers: int
) -> Iterator[Answer]:
    """Yields an expert's answer to each of the beginnings of solutions, by index.

    Raises:
        ExpertFailed: It gave none.
    """
    job = json.loads(plan.to_json())
    with closing(label_locally(job, [[*own]], workers=workers, own=own)) as answers:
        for answer in answers:
            if answer.failed:
                reason = answer.failures[-1].reason
                raise ExpertFailed(f"instance {answer.index}: {reason}")
            yield answer


@torch.inference_mode()
def _roll_out(policy: Policy, data: Trajectories, k: int) -> dict[int, RollOut]:
    """Returns what the policy decides on each instance, by index."""
    device = next(policy.parameters()).device
    rolled: dict[int, RollOut] = {}
    for start in range(0, len(data), TOGETHER):
        some = slice(start, start + TOGETHER)
        found = greedy(policy, data.instances(some).start(device), k=k)
        index = data.records(some)["index"].tolist()
        doubts = 1 - found.sure.double().cpu().numpy()
        for place, steps, doubt in zip(
            index, found.decisions.tolist(), doubts, strict=True
        ):
            # An orienteering tour that is home has zeros at its end.
            decisions = [step for step in steps if step]
            rolled[place] = RollOut(decisions, doubt[: len(decisions)])
    return rolled
