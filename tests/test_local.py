"""Local moves between routes, against brute force."""

import itertools

import numpy as np
import pytest

from renco.local import Loads, exchange, split
from renco.problems import CVRP, Routes
from renco.quick import filled


def neighbours(routes: Routes) -> list[Routes]:
    """Returns all routes that one of the three moves leads to, feasible or not."""
    found: list[Routes] = []
    for r, s in itertools.permutations(range(len(routes)), 2):
        one, two = routes[r], routes[s]
        others = [x for i, x in enumerate(routes) if i not in (r, s)]
        pairs = []
        for i in range(len(one)):
            less = one[:i] + one[i + 1 :]
            for j in range(len(two) + 1):
                pairs.append((less, [*two[:j], one[i], *two[j:]]))
            for j in range(len(two)):
                mine = [*one[:i], two[j], *one[i + 1 :]]
                pairs.append((mine, [*two[:j], one[i], *two[j + 1 :]]))
        for i in range(len(one) + 1):
            for j in range(len(two) + 1):
                pairs.append((one[:i] + two[j:], two[:j] + one[i:]))
        found += [[x for x in (*pair, *others) if x] for pair in pairs]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_move_between_routes_is_left(seed: int) -> None:
    """The result is feasible, shorter, and none of its neighbours is shorter yet."""
    problem = CVRP.random(1, 14, seed=seed, capacity=20)
    demands, capacity = problem.demands[0], float(problem.capacity[0])
    nodes = np.arange(15)
    matrix = problem.legs(0, *np.broadcast_arrays(nodes[:, None], nodes))
    start = filled(problem, 0)
    found = exchange(start, matrix, demands, capacity)
    cost = problem.cost([found])[0]  # checks it
    assert cost < problem.cost([start])[0]
    tried = 0
    for other in neighbours(found):
        if max(demands[route].sum() for route in other) <= capacity:
            tried += 1
            assert problem.cost([other])[0] >= cost * (1 - 1e-9)
    assert tried > 50
    assert exchange(start, matrix, demands, capacity, hurry=lambda: True) == start


def test_loads_know_what_comes_before_and_in_all() -> None:
    """Running sums restart at each depot."""
    loads = Loads.of([[3, 1], [2]], np.array([0.0, 1.0, 5.0, 2.0]))
    assert loads.at.tolist() == [0, 3, 1, 0, 2, 0]
    assert loads.route.tolist() == [0, 0, 0, 1, 1, 2]
    assert loads.before.tolist() == [0, 2, 3, 0, 5, 0]
    assert loads.total.tolist() == [3, 3, 3, 5, 5, 0]
    assert split(loads.at) == [[3, 1], [2]]
