"""What all problems share when sub-problems are cut out and pasted back."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int
from numpy import ndarray
from torch import Tensor

from renco import metrics
from renco.local import Hurry, at_leisure
from renco.problems import Problem, Routes
from renco.state import State

GAIN = 1e-10
"""Relative gain below which a shorter segment is rounding, not an improvement."""

RouteChoice = Literal["random", "near"]


@runtime_checkable
class Annealer(Protocol):
    """Disturbs and repairs a solution, and keeps the best."""

    @property
    def routes(self) -> Routes:
        """The best solution so far."""


SomeAnnealer = TypeVar("SomeAnnealer", bound=Annealer)


@dataclass(frozen=True)
class CutSettings:
    """How sub-problems are cut.

    Attributes:
        n_sub: Nodes of a sub-problem.
        order: CVRP: which routes are cut together, any of them or neighbours.
        inner: OP: whether half of the segments end at any visited node. Policies
            learn to end at the depot, but can do this too.
    """

    n_sub: int
    order: RouteChoice = "near"
    inner: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """Sub-problems of equal size, cut out of the current solutions.

    Attributes:
        state: One path problem per segment; node ids count within the segment.
        instance: Which instance each segment belongs to.
        node: Ids in the instance of the points of each segment.
    """

    state: State
    instance: Int[ndarray, " segment"]
    node: Int[ndarray, "segment point"]

    def __len__(self) -> int:
        """Returns the number of segments."""
        return len(self.instance)


def copied(solution: Routes) -> Routes:
    """Returns a solution of plain ids, without empty routes but at least one."""
    routes = [[int(node) for node in route] for route in solution]
    return [route for route in routes if route] or routes[:1]


SomeCut = TypeVar("SomeCut", bound=Cut)


class Segments(ABC, Generic[SomeCut]):
    """The current solutions of a batch, and how to cut and paste them.

    Whether a segment got better is decided in float64 and in the instance's own
    metric: what is shorter in the frame of the networks can be longer after rounding.

    Attributes:
        problem: The instances.
        cost: f(x) of the current solutions.
    """

    def __init__(
        self, problem: Problem, routes: list[Routes], device: torch.device
    ) -> None:
        """Takes one feasible solution per instance.

        Raises:
            Infeasible: A solution breaks a rule.
        """
        self.problem = problem
        self.cost = problem.cost(routes)
        self.device = device
        self._single = [problem[i : i + 1] for i in range(len(problem))]
        self._points = metrics.plane(problem.metric, problem.coords)
        self._solutions = [copied(solution) for solution in routes]
        self._changed = set(range(len(problem)))
        self._matrices: dict[int, Float64[ndarray, "node node"]] = {}
        self._annealers: dict[int, Any] = {}

    @property
    def routes(self) -> list[Routes]:
        """The current solutions."""
        return [copied(solution) for solution in self._solutions]

    @abstractmethod
    def sample_subproblem(
        self, count: int, settings: CutSettings, rng: np.random.Generator
    ) -> SomeCut | None:
        """Cuts random sub-problems out of the current solutions (Algorithm 4).

        Args:
            count: Sub-problems per instance, disjoint as far as it goes and
                overlapping beyond.
            settings: How to cut.
            rng: Source of randomness.

        Returns:
            The sub-problems; None for instances too small to have any.
        """

    @abstractmethod
    def _gains(
        self, cut: SomeCut, decisions: Int[ndarray, "segment step"]
    ) -> Float64[ndarray, " segment"]:
        """Returns how much better each new segment is, zero where it is not."""

    @abstractmethod
    def _pasted(
        self, cut: SomeCut, decisions: Int[ndarray, "segment step"], rows: list[int]
    ) -> Routes:
        """Returns a solution with the given disjoint segments replaced."""

    @abstractmethod
    def _claims(self, cut: SomeCut, row: int) -> set[int]:
        """Returns what a segment changes; disjoint ones can be pasted together."""

    def update_solution(
        self, cut: SomeCut, decisions: Int[ndarray, "segment step"]
    ) -> tuple[Bool[ndarray, " segment"], Bool[ndarray, " segment"]]:
        """Pastes the segments that got better (Algorithm 4).

        Where segments overlap, the one with the larger gain is taken.

        Returns:
            Which segments got better, and which of them were pasted.
        """
        gain = self._gains(cut, decisions)
        claimed: dict[int, set[int]] = {}
        chosen: dict[int, list[int]] = {}
        for row in np.argsort(-gain, kind="stable")[: (gain > 0).sum()].tolist():
            index, claims = int(cut.instance[row]), self._claims(cut, row)
            if claims.isdisjoint(claimed.setdefault(index, set())):
                claimed[index] |= claims
                chosen.setdefault(index, []).append(row)
        pasted = np.zeros(len(cut), dtype=bool)
        for index, rows in chosen.items():
            routes = self._pasted(cut, decisions, rows)
            self._commit(index, routes, self._single[index].cost([routes])[0])
            pasted[rows] = True
        return gain > 0, pasted

    @abstractmethod
    def _polished(self, index: int, hurry: Hurry) -> Routes:
        """Returns a solution after local moves, no worse and feasible."""

    def polish(self, hurry: Hurry = at_leisure) -> None:
        """Improves by local moves what has changed since they last found nothing.

        Unlike the paper: policies plan well but are careless in detail, and what a
        local move can repair is not worth a run of a network.
        """
        for index in sorted(self._changed):
            if hurry():
                return
            routes = self._polished(index, hurry)
            cost = self._single[index].cost([routes])[0]
            if cost <= self.cost[index]:
                self._commit(index, routes, cost)
            if not hurry():
                self._changed.discard(index)

    def kick(
        self,
        times: int,
        left: float,
        rng: np.random.Generator,
        hurry: Hurry = at_leisure,
    ) -> None:
        """Disturbs each solution a little and repairs it, so many times.

        Keeps what is better. Unlike the paper: local moves alone end where none of
        them gains anything, and a window never has two far parts of a tour.

        Args:
            times: Kicks per instance.
            left: Part of the search that is left. The closer to the end, the less
                may a kick make worse what the next ones begin with.
            rng: Source of randomness.
            hurry: Asked between kicks.
        """
        # In a hurry some get none: others each time.
        for index in rng.permutation(len(self.problem)).tolist():
            routes = self._kicked(index, times, left, rng, hurry)
            if routes is not None:
                self.offer(index, routes)

    @abstractmethod
    def _kicked(
        self,
        index: int,
        times: int,
        left: float,
        rng: np.random.Generator,
        hurry: Hurry,
    ) -> Routes | None:
        """Returns what came of it, or None where there is nothing to disturb."""

    def _annealer(
        self,
        index: int,
        rng: np.random.Generator,
        begin: Callable[[Routes, Random], SomeAnnealer],
    ) -> SomeAnnealer:
        """Returns where kicks left off; or begins anew if the solution is another's."""
        best = self._solutions[index]
        found: SomeAnnealer | None = self._annealers.get(index)
        if found is None or found.routes != best:
            found = begin(best, Random(int(rng.integers(1 << 32))))
            self._annealers[index] = found
        return found

    def _matrix(self, index: int) -> Float64[ndarray, "node node"]:
        """Returns all distances of an instance in its metric."""
        if index not in self._matrices:
            nodes = np.arange(self.problem.coords.shape[1])
            pairs = np.broadcast_arrays(nodes[:, None], nodes)
            self._matrices[index] = self.problem.legs(index, *pairs)
        return self._matrices[index]

    def offer(self, index: int, routes: Routes) -> None:
        """Takes a whole solution of an instance if it is better than the current."""
        cost = self._single[index].cost([routes])[0]
        if cost < self.cost[index]:
            self._commit(index, routes, cost)

    def _commit(self, index: int, routes: Routes, cost: float) -> None:
        """Makes a solution the current one; who knows its cost has checked it."""
        self._solutions[index] = copied(routes)
        self._changed.add(index)
        self.cost[index] = cost

    def _legs(
        self,
        instance: Int[ndarray, " segment"],
        a: Int[ndarray, "segment leg"],
        b: Int[ndarray, "segment leg"],
    ) -> Float64[ndarray, "segment leg"]:
        """Returns distances in the metric of each segment's instance."""
        legs = np.empty(a.shape)
        for index in np.unique(instance).tolist():
            rows = instance == index
            legs[rows] = self.problem.legs(index, a[rows], b[rows])
        return legs

    def _framed(
        self,
        instance: Int[ndarray, " segment"],
        node: Int[ndarray, "segment point"],
        rng: np.random.Generator,
    ) -> tuple[Float32[ndarray, "segment point 2"], Float64[ndarray, " segment"]]:
        """Maps each segment to its own unit square, turned and mirrored at random.

        A network is not indifferent to a turn, so a segment that comes again may
        be solved better.

        Returns:
            Coordinates, and the length of each square's side in the units of the
            instance.
        """
        points = self._points[instance[:, None], node]
        angle = rng.uniform(0.0, 2 * np.pi, len(points))
        mirror = rng.choice([-1.0, 1.0], len(points))
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[cos, -sin], [mirror * sin, mirror * cos]])
        points = np.einsum("ijs,spj->spi", turn, points - points[:, :1])
        points -= points.min(axis=1, keepdims=True)
        side = points.max(axis=(1, 2))
        side = np.where(side > 0, side, 1.0)
        return (points / side[:, None, None]).astype(np.float32), side

    def _tensor(self, array: ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _order(self, segments: int, points: int) -> Int[Tensor, "segment point"]:
        """Returns the ids of the points of each segment, in order."""
        return torch.arange(points, device=self.device).expand(segments, points)
