"""Regrets: what each decision that a policy was in two minds about would have cost.

A correction (`renco.dagger`) says what an expert does, as if all else were equally
wrong. But some decisions are as good as others, and a few cost most of the gap. Here
the expert finishes the solution after each of the likeliest decisions, and the
difference is the regret; what a policy gives away on an instance is the sum of the
regrets of its decisions. AggreVaTe (Ross and Bagnell, 2014) trains a policy to expect
little regret in the states that it reaches itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Self

import numpy as np
from jaxtyping import Float32, Int, Int64
from numpy import ndarray

from renco.construct import GreedySolutions, greedy
from renco.dagger import AHEAD, LEAST_LEFT, SECONDS, TOGETHER, finished, finisher
from renco.data import Trajectories, folders_with, write_set
from renco.files import write_atomic
from renco.manifest import Manifest, is_there
from renco.model import Policy
from renco.problems import Problem
from renco.progress import Callback, Progress
from renco.storage import DamagedData, array_bytes, read_rows

WEIGHED = "weighed.npy"
"""Lies beside the solutions of a policy, a record for each decision weighed."""
LAYOUT = np.dtype(
    [("row", np.int32), ("step", np.int32), ("decision", np.int32), ("cost", float)]
)
LEAST_CHANCE = 0.02
"""Probability from which on a decision is a rival of the one that was taken."""

Options = Int64[ndarray, "batch step option"]
Losses = Float32[ndarray, "batch step option"]


@dataclass(frozen=True, eq=False)
class Regrets:
    """Solutions of a policy, and what the rivals of its decisions would have cost.

    Attributes:
        data: Instances and what the policy decided.
        weighed: For each decision that was weighed the row, the step, and the cost of
            the best solution that the expert knows to begin with it.
    """

    data: Trajectories
    weighed: ndarray

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Opens one of the sets that `weigh` wrote.

        Raises:
            FileNotFoundError: There is none in the folder.
            DamagedData: The files do not fit together.
        """
        data = Trajectories(folder)
        weighed = read_rows(Path(folder) / WEIGHED, LAYOUT)
        if not len(weighed) or not (
            weighed["row"].min() >= 0 and weighed["row"].max() < len(data)
        ):
            raise DamagedData(f"{folder}: {WEIGHED} does not fit {len(data)} solutions")
        return cls(data, weighed)

    @classmethod
    def read_all(cls, folder: Path | str) -> list[Self]:
        """Opens all sets of one call of `weigh`.

        Raises:
            FileNotFoundError: There are none.
            DamagedData: Files do not fit together.
        """
        folders = folders_with(folder, WEIGHED, "regrets")
        return [cls.read(folder) for folder in folders]

    @cached_property
    def table(self) -> tuple[Options, Losses]:
        """The weighed decisions of each step, and their regrets.

        In percent of what the policy's solution costs; NaN where fewer were weighed.
        """
        order = np.lexsort((self.weighed["step"], self.weighed["row"]))
        found = self.weighed[order]
        row, step = found["row"], found["step"]
        first = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(step, prepend=-1))
        counts = np.diff(first, append=len(found))
        best = np.repeat(np.minimum.reduceat(found["cost"], first), counts)
        place = np.arange(len(found)) - np.repeat(first, counts)
        shape = (len(self.data), int(self.data.lengths.max()), int(counts.max()))
        options = np.zeros(shape, np.int64)
        regrets = np.full(shape, np.nan, np.float32)
        options[row, step, place] = found["decision"]
        scale = 100 / np.abs(self.data.costs[row])
        regrets[row, step, place] = (found["cost"] - best) * scale
        return options, regrets

    @cached_property
    def _counts(self) -> Int64[ndarray, "row step"]:
        """How many decisions before each step were weighed."""
        known = np.isfinite(self.table[1]).any(2)
        return np.concatenate([np.zeros((len(known), 1), int), known.cumsum(1)], axis=1)

    def place(self, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the length of the solutions of a batch, and the step it begins at.

        A window of decisions from there on holds one that was weighed.
        """
        one = self.weighed[rng.integers(len(self.weighed))]
        length = int(self.data.lengths[one["row"]])
        latest = max(0, min(int(one["step"]), length - 2))
        return length, int(rng.integers(max(0, latest - AHEAD), latest + 1))

    def batch(
        self, length: int, step: int, rows: int, rng: np.random.Generator
    ) -> tuple[Problem, Int[ndarray, "batch step"], Options, Losses]:
        """Draws solutions, often such as many decisions were weighed of after a step.

        Returns:
            Instances, the policy's decisions, and options and regrets at each step.
        """
        end = min(step + AHEAD + 1, length)
        weights = (self._counts[:, end] - self._counts[:, step]).astype(np.float64)
        weights[self.data.lengths != length] = 0
        chosen = rng.choice(len(weights), rows, p=weights / weights.sum())
        options, regrets = self.table
        problem, decisions = self.data.batch(chosen)
        return problem, decisions, options[chosen, :length], regrets[chosen, :length]


def weigh(
    policy: Policy,
    data: Trajectories,
    out: Path | str,
    *,
    k: int = 1000,
    rivals: int = 3,
    doubt: float = 0.08,
    expert: str = "auto",
    seconds: float | None = None,
    workers: int = 1,
    progress: Callback | None = None,
) -> list[Path]:
    """Rolls a policy out and lets an expert finish what its doubts could have led to.

    Instances are taken in parts, each a set of its own; those that an earlier run has
    finished are kept.

    Args:
        policy: Decides greedily.
        data: Instances to roll out on; labels are ignored.
        out: Folder for the sets.
        k: Steps between two runs of the base encoder.
        rivals: How many of the likeliest decisions are weighed at most.
        doubt: Probability of all other decisions together from which on a decision is
            weighed.
        expert: Who finishes; must be able to complete partial solutions.
        seconds: Time of the expert for a whole solution; None for what is usual.
        workers: Processes to run side by side.
        progress: Called after every decision.

    Returns:
        The folders, one per part.

    Raises:
        ValueError: The expert cannot finish solutions of this problem, or the folder
            holds something else.
        OSError: The folder cannot be written.
        ExpertFailed: It gave no answer.
    """
    if rivals < 2 or not 0 <= doubt < 1:
        raise ValueError(f"2 rivals or more and doubt in 0..1: got {rivals}, {doubt}")
    solver, out = finisher(expert, data.manifest.problem), Path(out)
    plan = replace(
        data.manifest,
        expert=solver.name,
        version=solver.version,
        seconds=seconds or SECONDS[data.manifest.problem],
        note=f"decided by {policy.name} with k = {k}; up to {rivals} rivals where it "
        f"doubts by {doubt:g} finished by the expert",
        shards={},
    )
    folders: list[Path] = []
    began, done = monotonic(), 0
    for part in _parts(plan, len(data)):
        folder = out / f"part-{len(folders):03d}"
        folders.append(folder)
        if is_there(folder, part):
            continue
        some = slice(part.first - plan.first, part.first - plan.first + part.count)
        problem = data.instances(some)
        start = problem.start(next(policy.parameters()).device)
        found = greedy(policy, start, k=k, rivals=rivals)
        todo = dict(enumerate(_rivals(found, doubt), start=part.first))
        # Later parts have about as many as this one.
        each = sum(map(len, todo.values())) / part.count
        expected = done + round(each * (plan.count - some.start))
        weighed: list[tuple[int, int, int, float]] = []
        for answer in finished(part, todo, workers):
            row, step = answer.index - part.first, answer.begun - 1
            weighed.append((row, step, answer.decisions[step], answer.cost))
            done += 1
            if progress is not None:
                spent = monotonic() - began
                progress(Progress(done, expected, done, 0, spent))
        _write(folder, part, problem, found, np.array(sorted(weighed), LAYOUT))
    return folders


def _parts(plan: Manifest, count: int) -> Iterator[Manifest]:
    """Yields plans of parts that are rolled out together."""
    for start in range(0, count, TOGETHER):
        size = min(TOGETHER, count - start)
        yield replace(plan, first=plan.first + start, count=size)


def _rivals(found: GreedySolutions, doubt: float) -> Iterator[list[list[int]]]:
    """Yields, for each solution, its beginnings that are to be weighed.

    Each ends with the decision that was taken or with one of its rivals.
    """
    assert found.rivals is not None and found.chances is not None
    likely = found.chances >= LEAST_CHANCE
    unsure = found.sure <= 1 - doubt
    for own, rivals, kept, here in zip(
        *(found.decisions.tolist(), found.rivals.tolist(), likely.tolist()),
        unsure.tolist(),
        strict=True,
    ):
        last = sum(decision != 0 for decision in own) - LEAST_LEFT
        yield [
            [*own[:step], decision]
            for step in range(max(0, last))
            if here[step]
            for decision in _options(own[step], rivals[step], kept[step])
        ]


def _options(own: int, rivals: list[int], kept: list[bool]) -> Sequence[int]:
    """Returns a decision and its rivals, each once; none if it has none."""
    found = dict.fromkeys([own, *(r for r, k in zip(rivals, kept, strict=True) if k)])
    return [*found] if len(found) > 1 else []


def _write(
    folder: Path,
    plan: Manifest,
    problem: Problem,
    found: GreedySolutions,
    weighed: ndarray,
) -> None:
    """Writes a part: the policy's solutions, and what was weighed of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = plan.rows(np.arange(plan.first, plan.first + plan.count), problem)
    decisions = found.decisions.cpu()
    rows["decisions"][:, : decisions.shape[1]] = decisions.numpy()
    rows["cost"] = problem.cost(problem.routes(decisions))
    write_atomic(folder / WEIGHED, array_bytes(weighed))
    write_set(folder, plan, [rows])
