"""LKH in a Python package: elkai, free for academic use only."""

import time

import numpy as np

from renco.experts.base import Solver
from renco.experts.scaling import distances, whole
from renco.problems import Problem, Routes

LONGEST = 1_000_000
"""Scaled longest distance: beyond some 1e7 it overflows without a word."""


class Elkai(Solver):
    """LKH, repeated with the nodes in another order until the time is up.

    The package takes neither seed nor time limit. It runs at least once, however
    long that takes.
    """

    name = "elkai"
    problems = ("tsp",)
    package = "elkai"
    extra = "elkai"

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        end = time.perf_counter() + seconds
        elkai = self._import("elkai")
        matrix = whole(distances(instance), LONGEST)
        rng = np.random.default_rng(seed)
        best, shortest = [], np.inf
        while True:
            began = time.perf_counter()
            order = rng.permutation(instance.n)
            shuffled = elkai.DistanceMatrix(matrix[np.ix_(order, order)].tolist())
            # Its tours are closed: the first node comes last again.
            tour = order[np.array(shuffled.solve_tsp(runs=1)[:-1], dtype=np.int64)]
            length = matrix[tour, np.roll(tour, -1)].sum()
            if length < shortest:
                best, shortest = tour.tolist(), length
            now = time.perf_counter()
            if now + (now - began) > end:
                return [best]
