"""Corrections: what an expert does in the states that the policy itself reaches.

A policy that imitates has only seen states of an expert's making, and the first
mistake leads it where it never was: the limitation that the paper names. DAgger
(Ross, Gordon and Bagnell, 2011) has the cure: roll the policy out, stop somewhere, let
the expert finish the solution, and train on the rest. The record of a correction is
a whole solution, which begins with decisions of the policy's own.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Self

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray

from renco.construct import greedy
from renco.data import Trajectories, write_set
from renco.experts import find
from renco.files import write_atomic
from renco.model import Policy
from renco.problems import Problem
from renco.progress import Callback, Progress
from renco.storage import DamagedData, array_bytes, read_rows
from renco.workers import label_locally

OWN = "own.npy"
LEAST_LEFT = 5
"""Decisions that are left to the expert, at least: few teach nothing."""
TOGETHER = 256
"""Instances that are rolled out as one batch."""


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
        """Opens what `correct` wrote.

        Raises:
            FileNotFoundError: There are no corrections in the folder.
            DamagedData: The files do not fit together.
        """
        data = Trajectories(folder)
        own = read_rows(Path(folder) / OWN, np.dtype(np.int64))
        if len(own) != len(data):
            raise DamagedData(f"{folder}: {OWN} has {len(own)} of {len(data)} rows")
        return cls(data, own)

    @cached_property
    def order(self) -> Int[ndarray, " row"]:
        """Rows in the order in which their policy was stopped."""
        return np.argsort(self.own, kind="stable")

    def step(self, rng: np.random.Generator) -> int:
        """Draws a step that a batch is to begin at.

        Half of the batches begin where a policy stopped; the others later, where its
        mistakes still lie about.
        """
        step = int(self.own[rng.integers(len(self.own))])
        if rng.random() < 0.5:
            return step
        return int(rng.integers(step, self.data.lengths.min()))

    def batch(
        self, step: int, rows: int, rng: np.random.Generator
    ) -> tuple[Problem, Int[ndarray, "batch step"]]:
        """Draws solutions that are the expert's from a step on.

        Among those that were stopped last before it: the longer an expert has been at
        it, the less is left of what it would not have done itself.
        """
        known = int(np.searchsorted(self.own[self.order], step, side="right"))
        ranks = rng.integers(max(0, known - 4 * rows), known, rows)
        return self.data.batch(self.order[ranks])


def correct(
    policy: Policy,
    data: Trajectories,
    out: Path | str,
    *,
    k: int = 1000,
    expert: str = "auto",
    seconds: float = 0.01,
    workers: int = 1,
    seed: int = 0,
    progress: Callback | None = None,
) -> Corrections:
    """Rolls a policy out and lets an expert finish what it began.

    Args:
        policy: Decides greedily.
        data: Instances to roll out on; labels are ignored.
        out: Folder for the corrections.
        k: Steps between two runs of the base encoder.
        expert: Who finishes; must be able to complete partial solutions.
        seconds: Time of the expert per solution.
        workers: Processes to run side by side.
        seed: Decides where the policy is stopped.
        progress: Called after every instance.

    Raises:
        ValueError: The expert cannot finish solutions of this problem.
        OSError: The folder exists, or cannot be written.
    """
    solver, out = find(expert, data.manifest.problem), Path(out)
    if solver is None or data.manifest.problem not in solver.completes:
        raise ValueError(
            f"expert {expert} cannot finish partial solutions of "
            f"{data.manifest.problem}"
        )
    out.mkdir(parents=True)
    plan = replace(
        data.manifest,
        expert=solver.name,
        version=solver.version,
        seconds=seconds,
        note=f"begun by {policy.name}, finished by the expert",
        count=len(data),
        shards={},
    )
    begun = dict(_begin(policy, data, k, np.random.default_rng(seed)))
    rows = plan.rows(data.records(slice(None))["index"], data.instances(slice(None)))
    place = {int(index): row for row, index in enumerate(rows["index"])}
    started = monotonic()
    answers = label_locally(
        json.loads(plan.to_json()), [list(begun)], workers=workers, own=begun
    )
    with closing(answers):
        for done, answer in enumerate(answers, 1):
            if answer.decisions is None:
                raise RuntimeError(
                    f"instance {answer.index}: {answer.failures[-1].reason}"
                )
            row = rows[place[answer.index]]
            row["decisions"], row["cost"] = answer.decisions, answer.cost
            if progress is not None:
                spent = monotonic() - started
                progress(Progress(done, len(rows), done, 0, spent))
    own = np.array([len(begun[int(i)]) for i in rows["index"]], dtype=np.int64)
    write_atomic(out / OWN, array_bytes(own))
    write_set(out, plan, [rows])
    return Corrections(Trajectories(out), own)


@torch.inference_mode()
def _begin(
    policy: Policy, data: Trajectories, k: int, rng: np.random.Generator
) -> Iterator[tuple[int, list[int]]]:
    """Yields the index of each instance and what the policy decides at first."""
    for start in range(0, len(data), TOGETHER):
        rows = data.records(slice(start, start + TOGETHER))
        problem = data.instances(slice(start, start + TOGETHER))
        device = next(policy.parameters()).device
        decisions = greedy(policy, problem.start(device), k=k).decisions.tolist()
        for index, own in zip(rows["index"].tolist(), decisions, strict=True):
            most = max(1, len(own) - LEAST_LEFT)
            yield index, own[: int(rng.integers(1, most, endpoint=True))]
