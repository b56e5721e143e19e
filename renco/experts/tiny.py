"""Instances so small that trying everything is easier than calling a solver."""

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

from renco.problems import CVRP, OP, Infeasible, Problem, Routes

TINY = 3
"""Customers up to which all solutions are tried."""


def best_of_all(instance: Problem) -> Routes:
    """Returns the cheapest of all solutions; of equals, the shortest.

    Raises:
        Infeasible: There is no solution.
    """
    best: tuple[float, float] | None = None
    chosen: Routes = []
    for routes in _solutions(instance):
        try:
            cost = float(instance.cost([routes])[0])
        except Infeasible:
            continue
        key = cost, float(instance.length([routes])[0])
        if best is None or key < best:
            best, chosen = key, routes
    if best is None:
        raise Infeasible(f"no solution of {instance.name} with n = {instance.n} exists")
    return chosen


def _solutions(instance: Problem) -> Iterator[Routes]:
    if isinstance(instance, OP):
        for size in range(instance.n + 1):
            for some in permutations(range(1, instance.n + 1), size):
                yield [list(some)]
    elif isinstance(instance, CVRP):
        for order in permutations(range(1, instance.n + 1)):
            yield from _split(list(order))
    else:
        # The first node of a tour is arbitrary.
        for order in permutations(range(1, instance.n)):
            yield [[0, *order]]


def _split(order: list[int]) -> Iterator[Routes]:
    """Cuts an order of customers into routes in every possible way."""
    places = range(1, len(order))
    for cuts in (c for size in range(len(order)) for c in combinations(places, size)):
        ends = [0, *cuts, len(order)]
        yield [order[a:b] for a, b in pairwise(ends)]
    if not order:
        yield []
