"""Training batches: random slices of expert solutions, seen from a random side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, get_args

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from numpy import ndarray
from torch import Tensor

from renco.dagger import Corrections
from renco.data import Trajectories
from renco.problems import Problem
from renco.problems.base import RouteOrder
from renco.regrets import Regrets
from renco.state import State


class Weighed(NamedTuple):
    """What an expert thinks of the decisions that a policy could have made.

    Attributes:
        options: Decisions at each step.
        regrets: Of each, in percent of the cost; NaN where there is none.
    """

    options: Int[Tensor, "batch step option"]
    regrets: Float[Tensor, "batch step option"]


class Batch(NamedTuple):
    """What a step of training learns from.

    Attributes:
        state: Path problems, the nodes in the order of the actions.
        actions: What an expert did; where decisions are weighed, what the policy did.
        weighed: What else could have been done, and how bad it is.
    """

    state: State
    actions: Int[Tensor, "batch label"]
    weighed: Weighed | None = None

    def rows(self, index: Int[Tensor, " row"]) -> Self:
        """Returns some rows."""
        weighed = self.weighed and Weighed(*(part[index] for part in self.weighed))
        return self._replace(
            state=self.state.rows(index), actions=self.actions[index], weighed=weighed
        )

    def to(self, device: torch.device | str) -> Self:
        """Returns the batch on another device."""
        weighed = self.weighed and Weighed(*(part.to(device) for part in self.weighed))
        return self._replace(
            state=self.state.to(device),
            actions=self.actions.to(device),
            weighed=weighed,
        )


Part = tuple[Trajectories, Int[ndarray, " _"]]
"""Some rows of a set, as many as there are."""


@dataclass(frozen=True)
class Slices:
    """How slices are drawn; all rows of a batch have one size, so nothing is padded.

    Attributes:
        tokens: Nodes in a batch: small slices come in large batches.
        batch: Rows in a batch, instead of `tokens`, where not zero.
        shortest: Nodes of the smallest slice, both ends included.
        longest: Nodes of the largest slice at the start of the curriculum.
        curriculum: Share of the training during which `longest` grows to the whole
            instance; 0 trains on all sizes from the start.
        favor: Draws slices as often as this power of their size says; 0 draws all sizes
            alike. Most of what a trained policy loses it loses early, in large states.
        by_size: Draws from each set as often as this power of the number of its labels
            says: 1 draws all labels alike, 0 all sets. So few large instances count
            beside many small ones.
        rotate: Share of the batches whose instances are turned by any angle, not by
            quarters only.
        order: Arrangement of CVRP routes: random, sorted (fullest first), mixed, or far
            (the farthest first, the emptiest last).
        weighed: Share of the batches that learn from regrets, where there are some.
        corrected: Share of the others that are corrections, where there are some.
    """

    tokens: int = 2048
    batch: int = 0
    shortest: int = 5
    longest: int = 40
    curriculum: float = 0.5
    favor: float = 0.0
    by_size: float = 1.0
    rotate: float = 0.0
    order: RouteOrder = "far"
    weighed: float = 0.5
    corrected: float = 0.5

    def __post_init__(self) -> None:
        """Raises ValueError naming a setting out of range."""
        if self.tokens < 8 or self.batch < 0 or self.shortest < 3:
            raise ValueError(f"tokens >= 8, batch >= 0, shortest >= 3: got {self}")
        if not 0 <= self.favor < 100:
            raise ValueError(f"favor must be in 0..100, got {self.favor}")
        for name in ("curriculum", "by_size", "rotate", "weighed", "corrected"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in 0..1, got {getattr(self, name)}")
        if self.order not in get_args(RouteOrder):
            known = ", ".join(get_args(RouteOrder))
            raise ValueError(f"order must be one of {known}: {self.order!r}")


class Sampler:
    """Draws batches; what it draws depends on seed, step and progress alone.

    A resumed or a distributed run therefore sees what one uninterrupted process
    would have seen, without any state to save.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        how: Slices,
        seed: int,
        corrections: Sequence[Corrections] = (),
        regrets: Sequence[Regrets] = (),
    ) -> None:
        """Draws from sets of any sizes, from corrections and from regrets."""
        self.how, self.seed = how, seed
        # Only tours of one length fit in a batch; for TSP and CVRP that is a set.
        self.groups: list[Part] = []
        weights: list[float] = []
        for data, rows in parts:
            known = rows[data.lengths[rows] >= 2]
            for length in np.unique(data.lengths[known]):
                group = known[data.lengths[known] == length]
                self.groups.append((data, group))
                weights.append(len(group) * len(known) ** (how.by_size - 1))
        if not self.groups:
            folders = ", ".join(str(data.folder) for data, _ in parts)
            raise ValueError(f"no solution of {folders} has a decision to learn")
        self.weights = _normalized(np.array(weights))
        self.corrections, self.regrets = corrections, regrets

    def batch(self, step: int, progress: float, device: torch.device) -> Batch:
        """Returns the batch of a step, `progress` of the training done."""
        rng = np.random.default_rng([self.seed, step])
        if self.regrets and rng.random() < self.how.weighed:
            return self._weighed(rng, device)
        if self.corrections and rng.random() < self.how.corrected:
            return self._corrected(rng, device)
        data, group = self.groups[rng.choice(len(self.groups), p=self.weights)]
        length = int(data.lengths[group[0]])
        nodes = self._size(data, length, progress, rng)
        rows = rng.integers(0, len(group), self._rows(nodes))
        problem, decisions = data.batch(group[rows])
        problem = self._turned(problem, rng)
        return slices(problem, decisions, nodes, rng, self.how, device)

    def _corrected(self, rng: np.random.Generator, device: torch.device) -> Batch:
        sizes = [len(given.rows) for given in self.corrections]
        given = self.corrections[self._set(sizes, rng)]
        length, low = given.place(rng)
        step = length - self._drawn(2, length - low, rng)
        rows = self._rows(given.data.nodes - step)
        problem, decisions = given.batch(length, step, rows, rng)
        problem = self._turned(problem, rng)
        decisions = problem.arranged(decisions, step, rng, self.how.order)
        return Batch(*problem.after(decisions, step)).to(device)

    def _weighed(self, rng: np.random.Generator, device: torch.device) -> Batch:
        sizes = [len(given.weighed) for given in self.regrets]
        given = self.regrets[self._set(sizes, rng)]
        length, step = given.place(rng)
        rows = self._rows(given.data.nodes - step)
        problem, decisions, *weighed = given.batch(length, step, rows, rng)
        problem = self._turned(problem, rng)
        state, actions = problem.after(decisions, step)
        ahead = Weighed(*(torch.from_numpy(part[:, step:]) for part in weighed))
        return Batch(state, actions, ahead).to(device)

    def _turned(self, problem: Problem, rng: np.random.Generator) -> Problem:
        any_angle = self.how.rotate > 0 and rng.random() < self.how.rotate
        return turned(problem, rng, any_angle)

    def _set(self, sizes: list[int], rng: np.random.Generator) -> int:
        """Draws a set, given how many labels each has."""
        weights = _normalized(np.array(sizes, float) ** self.how.by_size)
        return int(rng.choice(len(sizes), p=weights))

    def _rows(self, nodes: int) -> int:
        return self.how.batch or max(4, self.how.tokens // nodes)

    def _size(
        self,
        data: Trajectories,
        length: int,
        progress: float,
        rng: np.random.Generator,
    ) -> int:
        """Draws the number of nodes of a slice of solutions of some length."""
        how, largest = self.how, data.nodes
        if data.manifest.problem == "op":  # what is never visited stays open
            return largest - length + self._drawn(2, length, rng)
        grown = 1.0 if how.curriculum == 0 else min(1.0, progress / how.curriculum)
        reach = how.longest + (largest - how.longest) * grown
        high = min(largest, max(how.shortest, int(reach)))
        return self._drawn(min(how.shortest, high), high, rng)

    def _drawn(self, low: int, high: int, rng: np.random.Generator) -> int:
        """Draws a size, both bounds included, the large ones more often if favored."""
        sizes = np.arange(low, high + 1)
        weights = (sizes / high) ** self.how.favor
        return int(rng.choice(sizes, p=_normalized(weights)))


def _normalized(weights: Float64[ndarray, " any"]) -> Float64[ndarray, " any"]:
    return weights / weights.sum()


def slices(
    problem: Problem,
    decisions: Int[ndarray, "batch step"],
    nodes: int,
    rng: np.random.Generator,
    how: Slices,
    device: torch.device | str = "cpu",
) -> Batch:
    """Cuts a slice out of each solution and moves it to a device."""
    options: dict[str, Any] = {"order": how.order} if problem.name == "cvrp" else {}
    return Batch(*problem.slices(decisions, nodes, rng, **options)).to(device)


def turned(problem: Problem, rng: np.random.Generator, rotate: bool) -> Problem:
    """Mirrors and turns each instance; its solutions stay as good as they were.

    Only Euclidean distances do not change with the point of view; other instances
    are returned as they are.
    """
    if problem.metric != "euclidean":
        return problem
    views = orthogonal_maps(rng, len(problem), rotate)
    return problem.with_coords(np.einsum("bij,bnj->bni", views, problem.coords))


def orthogonal_maps(
    rng: np.random.Generator, count: int, rotate: bool
) -> Float64[ndarray, "map 2 2"]:
    """Draws symmetries of the square, or of the circle if `rotate`."""
    quarter = rng.integers(0, 4, count) * (np.pi / 2)
    angle = rng.uniform(0, 2 * np.pi, count) if rotate else quarter
    cos, sin = np.cos(angle), np.sin(angle)
    mirror = rng.integers(0, 2, count) * 2 - 1
    maps = np.stack([cos, -sin * mirror, sin, cos * mirror], axis=-1)
    return maps.reshape(count, 2, 2)
