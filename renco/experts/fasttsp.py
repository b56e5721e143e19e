"""Fast-tsp: Or-opt and Lin-Kernighan moves under iterated local search, in Rust."""

import numpy as np

from renco.experts.base import Solver
from renco.experts.scaling import distances, whole
from renco.problems import Problem, Routes

LARGEST = 65_535
"""Its distances are 16 bit."""


class FastTSP(Solver):
    """Near-optimal tours within hundredths of a second.

    It takes no seed and stops by the clock: tours of equal quality may differ from
    run to run.
    """

    name = "fast-tsp"
    problems = ("tsp",)
    package = "fast-tsp"

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        solver = self._import("fast_tsp")
        matrix = whole(distances(instance), LARGEST).astype(np.uint16)
        tour = solver.find_tour(matrix, duration_seconds=seconds, max_threads=1)
        return [[int(node) for node in tour]]
