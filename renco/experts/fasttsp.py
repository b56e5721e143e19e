"""Fast-tsp: Or-opt and Lin-Kernighan moves under iterated local search, in Rust."""

import time

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from renco.experts.base import ExpertFailed, Solver
from renco.experts.scaling import distances, whole
from renco.problems import Problem, Routes

LARGEST = 65_535
"""Its distances are 16 bit."""
EXACT = range(15, 21)
"""Sizes that it solves exactly, in up to 90 milliseconds, whatever time it is given."""
LEAST_SHARE = 0.1
"""Part of its time that it gets to finish a tour of which hardly anything is left."""
ENOUGH = 0.8
"""Part of its time that it must have had a processor."""
TRIES = 4
LONGEST_WAIT = 32
"""How many times its time it may run for want of a processor."""


class FastTSP(Solver):
    """Near-optimal tours within hundredths of a second.

    It takes no seed and stops by the clock: tours of equal quality may differ from
    run to run. On a machine so busy that it hardly computes, it is run again for
    longer, and the best tour counts: labels must not depend on what else runs.
    """

    name = "fast-tsp"
    problems = ("tsp",)
    package = "fast-tsp"
    completes = ("tsp",)

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        return [self._tour(whole(distances(instance), LARGEST), seconds)]

    def _complete(
        self, instance: Problem, decisions: list[int], seconds: float, seed: int
    ) -> list[int]:
        """Returns the shortest way home through all nodes that are left.

        Here and home become neighbors in a tour at no cost; a toll on every other
        leg makes leaving that one out dearer than any detour it could save. Few nodes
        that are left take no longer than many: home stands there several times. Of
        its time it gets what so many nodes need.
        """
        here = decisions[-1]
        left = sorted(set(range(1, instance.n)) - set(decisions))
        nodes = [here, *left, 0]
        if len(nodes) in EXACT:
            nodes += [0] * (EXACT.stop - len(nodes))
        matrix = whole(distances(instance)[np.ix_(nodes, nodes)], LARGEST // 3)
        matrix += 2 * (LARGEST // 3)
        np.fill_diagonal(matrix, 0)
        matrix[0, -1] = matrix[-1, 0] = 0
        share = max(LEAST_SHARE, (len(nodes) / instance.n) ** 1.5)
        tour = self._tour(matrix, seconds * min(1.0, share))
        place = tour.index(0)
        tour = tour[place:] + tour[:place]
        if tour[1] == len(nodes) - 1:
            tour = [0, *tour[:0:-1]]
        if tour[-1] != len(nodes) - 1:
            raise ExpertFailed("fast-tsp did not join the ends of the path")
        found = (nodes[place] for place in tour if 0 < place <= len(left))
        return [*decisions, *found]

    def _tour(self, matrix: Int64[ndarray, "node node"], seconds: float) -> list[int]:
        solver = self._import("fast_tsp")
        matrix = matrix.astype(np.uint16)
        best, shortest = [], np.inf
        budget = seconds
        for _ in range(TRIES):
            clock, work = time.perf_counter(), time.process_time()
            tour = solver.find_tour(matrix, duration_seconds=budget, max_threads=1)
            clock, work = time.perf_counter() - clock, time.process_time() - work
            length = matrix[tour, np.roll(tour, -1)].sum(dtype=np.int64)
            if length < shortest:
                best, shortest = [int(node) for node in tour], length
            # It returns early where it solves exactly, up to 20 nodes.
            if work >= ENOUGH * seconds or clock < budget:
                break
            share = max(work / clock, 1 / LONGEST_WAIT)
            budget = max(budget, seconds / share)
        return best
