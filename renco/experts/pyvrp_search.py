"""PyVRP's iterated local search, for CVRP and the orienteering problem."""

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from renco.experts.base import ExpertFailed, Solver
from renco.experts.orienteering import orienteer
from renco.experts.scaling import distances, positions, whole, whole_demands
from renco.experts.under_way import UnderWay
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
    problems = completes = ("cvrp", "op")
    package = "pyvrp"

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        pyvrp = self._import("pyvrp")
        self._import("pyvrp.search")
        deadline = Deadline(seconds)  # the first import takes a while
        with warnings.catch_warnings():
            # PenaltyBoundWarning: a hard instance; an unsolved one is an error below.
            warnings.simplefilter("ignore")
            if isinstance(instance, OP):
                return [orienteer(TourSearch(pyvrp, deadline, seed), instance)]
            assert isinstance(instance, CVRP)
            return _solve_cvrp(pyvrp, instance, deadline, seed)

    def _complete(
        self, instance: Problem, decisions: list[int], seconds: float, seed: int
    ) -> list[int]:
        pyvrp = self._import("pyvrp")
        self._import("pyvrp.search")
        deadline = Deadline(seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(instance, OP):
                search = TourSearch(pyvrp, deadline, seed)
                return orienteer(search, instance, decisions)
            assert isinstance(instance, CVRP)
            return _complete_cvrp(pyvrp, instance, decisions, deadline, seed)


class Deadline:
    """Says stop once this thread has computed for so many seconds.

    Not wall-clock time: the quality of labels must not depend on what else runs.
    """

    def __init__(self, seconds: float) -> None:
        """Starts the clock."""
        self.seconds = seconds
        self.end = time.thread_time() + seconds

    def __call__(self, best_cost: int | float = 0) -> bool:
        """Returns whether the time is up, as PyVRP asks it after every iteration."""
        return time.thread_time() >= self.end

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self.end - time.thread_time()


@dataclass(frozen=True)
class Penalty:
    """Cost of a unit beyond a limit, which follows how often limits are broken.

    PyVRP's own range ends at 100000 and begins in its middle, whatever the unit of
    length: a wall that the search cannot cross, or no obstacle at all.

    Attributes:
        start: First value.
        least: Lowest value.
        most: Highest value.
        interval: Iterations between changes.
        feasible: Part of the solutions that should keep the limits.
    """

    start: float
    least: float
    most: float
    interval: int = 50
    feasible: float = 0.5


@dataclass(frozen=True)
class TourSearch:
    """Iterated local search for the tour of one vehicle that need not visit all.

    Measured on OP100, against the defaults of PyVRP, in half a second: 20 neighbors
    instead of 50 are worth 0.4 % of the prize, the light penalty another 0.5 %.
    """

    pyvrp: Any
    deadline: Deadline
    seed: int
    penalty: Penalty = Penalty(start=3.0, least=0.1, most=100.0)
    neighbors: int = 20

    def __call__(
        self,
        lengths: Int64[ndarray, "node node"],
        prizes: Int64[ndarray, " node"],
        limit: int,
        start: list[int],
        share: float,
        end: int,
    ) -> list[int]:
        """Minimises length plus missed prizes; see `orienteering.TourSearch`."""
        pyvrp = self.pyvrp
        data = pyvrp.ProblemData(
            [pyvrp.Location(0, 0) for _ in prizes],
            [
                pyvrp.Client(location=node, prize=prize, required=False)
                for node, prize in enumerate(prizes.tolist())
                if node not in (0, end)
            ],
            [pyvrp.Depot(0), pyvrp.Depot(end)],
            [pyvrp.VehicleType(1, end_depot=1, max_distance=limit)],
            [lengths],
            [np.zeros_like(lengths)],
        )
        route = [node - 1 for node in start]
        first = pyvrp.Solution(data, [route]) if route else None
        stop = Deadline(min(share * self.deadline.seconds, self.deadline.left))
        richest = _richest(pyvrp)
        _search(
            *(pyvrp, data, stop, self.seed, self.penalty, self.neighbors, first),
            callbacks=richest,
        )
        found = richest.solution
        return start if found is None else _routes(found)[0]


def _richest(pyvrp: Any) -> Any:
    """Returns an observer of the search that keeps the solution of most prize.

    The search itself keeps the one of least cost, and spends prize on length: this
    is worth 0.14 % of the prize.
    """

    class Richest(pyvrp.IteratedLocalSearchCallbacks):  # type: ignore[misc]
        solution: Any = None
        prize = 0

        def on_iteration(self, current: Any, candidate: Any, *_: Any) -> None:
            prize = candidate.prizes()
            if prize > self.prize and candidate.is_feasible():
                self.prize, self.solution = prize, candidate

    return Richest()


def _solve_cvrp(pyvrp: Any, instance: CVRP, deadline: Deadline, seed: int) -> Routes:
    demands, capacity = whole_demands(instance)
    lengths = whole(distances(instance), LONGEST)
    points = positions(instance, side=1.0)
    return _fleet(pyvrp, points, demands, capacity, lengths, deadline, seed)


def _complete_cvrp(
    pyvrp: Any, instance: CVRP, decisions: list[int], deadline: Deadline, seed: int
) -> list[int]:
    """Finishes routes."""
    rest = UnderWay.after(instance, decisions)
    lengths = np.rint(rest.lengths * LONGEST).astype(np.int64)
    routes = _fleet(
        *(pyvrp, rest.points, rest.demands, rest.capacity, lengths, deadline, seed)
    )
    return rest.finished(routes)


def _fleet(
    pyvrp: Any,
    points: Float64[ndarray, "node 2"],
    demands: Int64[ndarray, " node"],
    capacity: int,
    lengths: Int64[ndarray, "node node"],
    deadline: Deadline,
    seed: int,
) -> Routes:
    """Returns short routes of vehicles of one size from node 0."""
    customers = len(demands) - 1
    vehicles = math.ceil(demands.sum() / max(capacity, 1) * SPARE_VEHICLES) + 3
    data = pyvrp.ProblemData(
        [pyvrp.Location(x, y) for x, y in points.tolist()],
        [
            pyvrp.Client(location=node, delivery=[int(demands[node])])
            for node in range(1, customers + 1)
        ],
        [pyvrp.Depot(0)],
        [pyvrp.VehicleType(min(vehicles, customers), [capacity])],
        [lengths],
        [np.zeros_like(lengths)],
    )
    unit = LONGEST / max(int(demands.max()), 1)
    penalty = Penalty(start=unit, least=unit / 1000, most=10.0 * LONGEST)
    best = _search(pyvrp, data, deadline, seed, penalty)
    if not best.is_feasible():
        raise ExpertFailed("pyvrp found no feasible solution in its time")
    return _routes(best)


def _search(
    pyvrp: Any,
    data: Any,
    stop: Deadline,
    seed: int,
    penalty: Penalty,
    neighbors: int = 20,
    first: Any = None,
    callbacks: Any = None,
) -> Any:
    """Runs PyVRP's iterated local search from a first or a random solution."""
    rng = pyvrp.RandomNumberGenerator(seed=seed % 2**32)
    near = pyvrp.search.NeighbourhoodParams(num_neighbours=neighbors)
    local = pyvrp.search.LocalSearch(
        data,
        rng,
        pyvrp.search.compute_neighbours(data, near),
        pyvrp.search.PerturbationManager(),
    )
    for operator in pyvrp.search.OPERATORS:
        if operator.supports(data):
            local.add_operator(operator(data))
    penalties = pyvrp.PenaltyManager(
        ([penalty.start] * data.num_load_dimensions, penalty.start, penalty.start),
        pyvrp.PenaltyParams(
            min_penalty=penalty.least,
            max_penalty=penalty.most,
            solutions_between_updates=penalty.interval,
            target_feasible=penalty.feasible,
        ),
    )
    if first is None:
        random = pyvrp.Solution.make_random(data, rng)
        first = local(random, penalties.max_cost_evaluator(), exhaustive=True)
    settings = pyvrp.IteratedLocalSearchParams(callbacks=callbacks)
    algorithm = pyvrp.IteratedLocalSearch(data, penalties, local, first, settings)
    return algorithm.run(stop, collect_stats=False).best


def _routes(solution: Any) -> Routes:
    return [
        [visit.idx + 1 for visit in route if visit.is_client()]
        for route in solution.routes()
    ]
