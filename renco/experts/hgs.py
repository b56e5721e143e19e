"""HGS-CVRP by T. Vidal, through the package hygese."""

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from renco.experts.base import ExpertFailed, Solver
from renco.experts.scaling import distances, positions, whole_demands
from renco.experts.under_way import UnderWay
from renco.problems import CVRP, Problem, Routes

LONGEST = 1000.0
"""Scaled longest distance: the solver insists on 0.1..100000, tolerances 1e-5."""
LARGEST_DEMAND = 100_000
NO_LIMIT = 2**31 - 1
LEAST_SHARE = 0.1
"""Part of its time that it gets to finish routes of which hardly anything is left."""


class HGS(Solver):
    """Hybrid genetic search.

    The populations are half of the solver's defaults: at a second per instance of
    100 customers that is worth 0.1 to 0.2 %. A search in a hurry would be over before
    it has combined anything, and gets half of that again: 0.2 % at 0.15 seconds, so
    that 0.1 seconds are as good as 0.15 were.

    Its clock is the processor time of the whole process, so run one at a time per
    process.
    """

    name = "hygese"
    problems = completes = ("cvrp",)
    package = "hygese"

    population = 12
    generation = 20
    neighbors = 12
    hurry = 0.003
    """Seconds per customer below which populations are smaller still."""

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        assert isinstance(instance, CVRP)
        # The coordinates matter beside the matrix: SWAP* compares polar sectors.
        points = positions(instance, side=LONGEST)
        matrix = distances(instance)
        longest = float(matrix.max())
        if longest == 0:  # refused by the solver; any solution is as good
            return [[node] for node in range(1, instance.n + 1)]
        demands, capacity = whole_demands(instance)
        matrix *= LONGEST / longest
        return self._routes(points, matrix, demands, capacity, seconds, seed)

    def _complete(
        self, instance: Problem, decisions: list[int], seconds: float, seed: int
    ) -> list[int]:
        """Finishes routes, of its time with what so many customers need."""
        assert isinstance(instance, CVRP)
        rest = UnderWay.after(instance, decisions)
        share = (len(rest.nodes) - 2) / instance.n
        routes = self._routes(
            rest.points * LONGEST,
            rest.lengths * LONGEST,
            rest.demands,
            rest.capacity,
            seconds * max(LEAST_SHARE, share),
            seed,
        )
        return rest.finished(routes)

    def _routes(
        self,
        points: Float64[ndarray, "node 2"],
        matrix: Float64[ndarray, "node node"],
        demands: Int64[ndarray, " node"],
        capacity: int,
        seconds: float,
        seed: int,
    ) -> Routes:
        """Returns short routes of vehicles of one size from node 0."""
        hygese = self._import("hygese")
        smaller = 2 if seconds < self.hurry * (len(demands) - 1) else 1
        parameters = hygese.AlgorithmParameters(
            timeLimit=seconds,
            nbIter=NO_LIMIT,
            seed=seed % NO_LIMIT,
            mu=self.population // smaller,
            lambda_=self.generation // smaller,
            nbGranular=self.neighbors,
        )
        loads, room = _loads(demands, capacity)
        data = {
            "distance_matrix": matrix,
            "x_coordinates": points[:, 0],
            "y_coordinates": points[:, 1],
            "demands": loads,
            "vehicle_capacity": room,
        }
        try:
            answer = hygese.Solver(parameters, verbose=False).solve_cvrp(data)
        except TypeError as error:  # a null pointer from the C++ side
            raise ExpertFailed(f"hygese gave no solution: {error}") from None
        if not answer.routes:  # how it says that it found nothing feasible
            raise ExpertFailed(f"hygese found no feasible solution in {seconds} s")
        return [[int(node) for node in route] for route in answer.routes if len(route)]


def _loads(demands: Int64[ndarray, " node"], capacity: int) -> tuple[ndarray, float]:
    """Returns demands within the solver's range, which excludes all being zero."""
    largest = int(demands.max())
    if largest == 0:
        return np.ones(len(demands)), float(len(demands))
    scale = min(1.0, LARGEST_DEMAND / (largest + 1))
    return demands * scale, capacity * scale
