"""PyVRP's iterated local search, for CVRP and the orienteering problem."""

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from renco.experts.base import ExpertFailed, Solver
from renco.experts.orienteering import orienteer
from renco.experts.scaling import distances, positions, whole, whole_demands
from renco.problems import CVRP, OP, Problem, Routes

LONGEST = 1_000_000
"""Scaled longest distance: PyVRP computes with 64 bit integers up to 2^44."""
SPARE_VEHICLES = 1.3
"""Vehicles offered per vehicle needed; unused ones cost nothing."""


class PyVRP(Solver):
    """Iterated local search of PyVRP 0.14.

    `seconds` are those of the processor: on a busy machine it takes longer, but is
    not worse.
    """

    name = "pyvrp"
    problems = ("cvrp", "op")
    package = "pyvrp"

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        deadline = Deadline(seconds)
        pyvrp = self._import("pyvrp")
        self._import("pyvrp.search")
        with warnings.catch_warnings():
            # PenaltyBoundWarning: a hard instance; an unsolved one is an error below.
            warnings.simplefilter("ignore")
            if isinstance(instance, OP):
                return [orienteer(TourSearch(pyvrp, deadline, seed), instance)]
            assert isinstance(instance, CVRP)
            return _solve_cvrp(pyvrp, instance, deadline, seed)


class Deadline:
    """Says stop once this thread has computed for so many seconds.

    Not wall-clock time: the quality of labels must not depend on what else runs.
    """

    def __init__(self, seconds: float) -> None:
        """Starts the clock."""
        self.seconds = seconds
        self.end = time.thread_time() + seconds

    def __call__(self, best_cost: float = 0.0) -> bool:
        """Returns whether the time is up, as PyVRP asks it after every iteration."""
        return time.thread_time() >= self.end

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self.end - time.thread_time()


@dataclass
class TourSearch:
    """Iterated local search for the tour of one vehicle that need not visit all.

    Measured on OP100, against the defaults of PyVRP: 20 neighbors instead of 50 are
    worth 0.4 % of the prize in half a second. A light penalty that adapts every 50
    iterations is worth 0.5 %: the default of 50000 per unit of excess makes the
    limit a wall which the search cannot cross.
    """

    pyvrp: Any
    deadline: Deadline
    seed: int
    neighbors: int = 20
    penalty: float = 3.0
    penalty_range: tuple[float, float] = (0.1, 100.0)
    penalty_interval: int = 50
    feasible_share: float = 0.5

    def __call__(
        self,
        lengths: Int64[ndarray, "node node"],
        prizes: Int64[ndarray, " node"],
        limit: int,
        start: list[int],
        share: float,
    ) -> list[int]:
        """Minimises length plus missed prizes; see `orienteering.TourSearch`."""
        pyvrp = self.pyvrp
        data = self._data(lengths, prizes, limit)
        rng = pyvrp.RandomNumberGenerator(seed=self.seed % 2**32)
        nearest = pyvrp.search.compute_neighbours(
            data, pyvrp.search.NeighbourhoodParams(num_neighbours=self.neighbors)
        )
        local = pyvrp.search.LocalSearch(
            data, rng, nearest, pyvrp.search.PerturbationManager()
        )
        for operator in pyvrp.search.OPERATORS:
            if operator.supports(data):
                local.add_operator(operator(data))
        low, high = self.penalty_range
        penalties = pyvrp.PenaltyManager(
            ([], self.penalty, self.penalty),
            pyvrp.PenaltyParams(
                min_penalty=low,
                max_penalty=high,
                solutions_between_updates=self.penalty_interval,
                target_feasible=self.feasible_share,
            ),
        )
        first = pyvrp.Solution(data, [[node - 1 for node in start]] if start else [])
        algorithm = pyvrp.IteratedLocalSearch(data, penalties, local, first)
        stop = Deadline(min(share * self.deadline.seconds, self.deadline.left))
        return _tour(algorithm.run(stop, collect_stats=False).best)

    def _data(self, lengths: ndarray, prizes: ndarray, limit: int) -> Any:
        pyvrp = self.pyvrp
        return pyvrp.ProblemData(
            [pyvrp.Location(0, 0) for _ in prizes],
            [
                pyvrp.Client(location=node, prize=prize, required=False)
                for node, prize in enumerate(prizes.tolist())
                if node > 0
            ],
            [pyvrp.Depot(0)],
            [pyvrp.VehicleType(1, max_distance=limit)],
            [lengths],
            [np.zeros_like(lengths)],
        )


def _tour(solution: Any) -> list[int]:
    return [
        visit.idx + 1
        for route in solution.routes()
        for visit in route
        if visit.is_client()
    ]


def _solve_cvrp(pyvrp: Any, instance: CVRP, deadline: Deadline, seed: int) -> Routes:
    demands, capacity = whole_demands(instance)
    lengths = whole(distances(instance), LONGEST)
    vehicles = math.ceil(demands.sum() / max(capacity, 1) * SPARE_VEHICLES) + 3
    points = positions(instance, side=1.0)
    data = pyvrp.ProblemData(
        [pyvrp.Location(x, y) for x, y in points.tolist()],
        [
            pyvrp.Client(location=node, delivery=[int(demands[node])])
            for node in range(1, instance.n + 1)
        ],
        [pyvrp.Depot(0)],
        [pyvrp.VehicleType(min(vehicles, instance.n), [capacity])],
        [lengths],
        [np.zeros_like(lengths)],
    )
    answer = pyvrp.solve(data, deadline, seed=seed % 2**32, collect_stats=False)
    if not answer.best.is_feasible():
        raise ExpertFailed("pyvrp found no feasible solution in its time")
    return [
        [visit.idx + 1 for visit in route if visit.is_client()]
        for route in answer.best.routes()
    ]
