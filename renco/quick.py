"""First solutions without a network, within milliseconds.

A search needs something to return when its time is up before the first
construction is done, and something to compare that construction with.
"""

import math

import numpy as np
from numpy import ndarray

from renco import metrics
from renco.local import Hurry, at_leisure
from renco.problems import CVRP, OP, TSP, Problem, Routes

NEIGHBOURS = 40
"""Savings of farther pairs are small; all pairs would take quadratic memory."""

POWERS = (0.5, 0.75, 1.0)
"""Of the added length, by which prizes are divided: none is best everywhere."""
ATTEMPTS = 12
"""Orienteering tours, each around another node, of which the best is taken."""


def quick_start(
    problem: Problem, rng: np.random.Generator, hurry: Hurry = at_leisure
) -> list[Routes]:
    """Returns a feasible solution of each instance.

    Random insertion for the TSP, savings for the CVRP, insertion by prize and
    length for the OP.

    Args:
        problem: The instances.
        rng: Source of randomness.
        hurry: Asked now and then; once true, solutions are only feasible.
    """
    match problem:
        case TSP():
            return [[insertion(problem, i, rng, hurry)] for i in range(len(problem))]
        case CVRP():
            return [savings(problem, i, hurry) for i in range(len(problem))]
        case OP():
            return [[prizes_first(problem, i, rng, hurry)] for i in range(len(problem))]
    raise ValueError(f"no quick start for {problem.name}")


def insertion(
    problem: TSP, index: int, rng: np.random.Generator, hurry: Hurry
) -> list[int]:
    """Inserts nodes in random order where they lengthen the tour least."""
    order = rng.permutation(problem.n)
    tour = order[:1]
    legs = np.zeros(1)
    for node in order[1:]:
        if hurry():
            return strips(problem, index)
        out = problem.legs(index, np.full(len(tour), node), tour)
        back = np.roll(out, -1)
        place = int((out + back - legs).argmin())
        tour = np.insert(tour, place + 1, node)
        legs = np.insert(legs, place, out[place])
        legs[place + 1] = back[place]
    return [int(node) for node in tour]


def strips(problem: Problem, index: int) -> list[int]:
    """Returns all nodes on a walk up and down strips of the square."""
    points = metrics.plane(problem.metric, problem.coords[index])
    points = points - points.min(axis=0)
    width = max(float(points[:, 0].max()), np.finfo(float).tiny)
    count = math.ceil(math.sqrt(len(points) / 3))
    strip = np.minimum(points[:, 0] / width * count, count - 1).astype(int)
    height = np.where(strip % 2 == 0, points[:, 1], -points[:, 1])
    return [int(node) for node in np.lexsort((height, strip))]


def savings(problem: CVRP, index: int, hurry: Hurry) -> Routes:
    """Joins routes end to end where it saves most (Clarke and Wright, 1964)."""
    pairs = _saving_pairs(problem, index, hurry)
    if pairs is None:
        return filled(problem, index)
    demands, capacity = problem.demands[index], problem.capacity[index]
    route_of = [[node] for node in range(problem.n + 1)]
    load = {id(route): demands[node] for node, route in enumerate(route_of)}
    for number, (a, b) in enumerate(pairs):
        if number % 1024 == 0 and hurry():
            return filled(problem, index)
        first, second = route_of[a], route_of[b]
        if first is second or a not in (first[0], first[-1]):
            continue
        if b not in (second[0], second[-1]):
            continue
        total = load[id(first)] + load[id(second)]
        if total > capacity:
            continue
        if first[-1] != a:
            first.reverse()
        if second[0] != b:
            second.reverse()
        first += second
        load[id(first)] = total
        for node in second:
            route_of[node] = first
    unique = {id(route): route for route in route_of[1:]}
    return list(unique.values())


def _saving_pairs(
    problem: CVRP, index: int, hurry: Hurry
) -> list[tuple[int, int]] | None:
    """Returns near customers whose routes are worth joining, the best first."""
    n = problem.n
    if n < 2:
        return []
    customers = np.arange(1, n + 1)
    home = problem.legs(index, np.zeros(n, np.int64), customers)
    near = min(NEIGHBOURS, n - 1)
    found = []
    for low in range(0, n, 256):
        if hurry():
            return None
        rows = customers[low : low + 256, None]
        legs = problem.legs(index, *np.broadcast_arrays(rows, customers))
        legs[rows[:, 0] - rows[0], rows[:, 0] - 1] = np.inf
        mates = np.argpartition(legs, near - 1, axis=1)[:, :near]
        gain = home[rows - 1] + home[mates] - np.take_along_axis(legs, mates, axis=1)
        found.append(np.stack(np.broadcast_arrays(gain, rows, mates + 1)))
    gain, a, b = np.concatenate(found, axis=1).reshape(3, -1)
    best = np.argsort(-gain, kind="stable")
    best = best[gain[best] > 0]
    ends = np.stack([a[best], b[best]], axis=1).astype(int)
    return [(a, b) for a, b in ends.tolist()]


def filled(problem: CVRP, index: int) -> Routes:
    """Fills one vehicle after the other along strips of the square."""
    routes: Routes = []
    room = 0.0
    for node in strips(problem, index):
        if node == 0:
            continue
        demand = float(problem.demands[index, node])
        if not routes or demand > room:
            routes.append([])
            room = float(problem.capacity[index])
        routes[-1].append(node)
        room -= demand
    return routes


def prizes_first(
    problem: OP, index: int, rng: np.random.Generator, hurry: Hurry
) -> list[int]:
    """Returns the best of several tours, each around a random node."""
    best: list[int] = []
    prizes = problem.prizes[index]
    for attempt in range(ATTEMPTS if problem.n else 0):
        first = int(rng.integers(1, problem.n, endpoint=True))
        power = POWERS[attempt % len(POWERS)]
        tour = prize_insertion(problem, index, first, power, hurry)
        if prizes[tour].sum() > prizes[best].sum():
            best = tour
        if hurry():
            break
    return best


def prize_insertion(
    problem: OP, index: int, first: int, power: float, hurry: Hurry
) -> list[int]:
    """Inserts the node with most prize for its added length while the limit holds.

    Args:
        problem: The instances.
        index: Which of them.
        first: The node to insert first, if the limit allows.
        power: Of the added length, by which prizes are divided.
        hurry: Once true, the tour stays as it is.
    """
    limit, prizes = problem.limit[index], problem.prizes[index]
    everything = np.arange(problem.n + 1)

    def legs_from(node: int) -> ndarray:
        return problem.legs(index, np.full_like(everything, node), everything)

    path, home = [0, 0], legs_from(0)
    length = 0.0
    added = (2 * home)[:, None]  # by every node (row) between each pair (column)
    added[0] = np.inf
    rest = {0: home}
    while not hurry():
        place = added.argmin(axis=1)
        least = added[everything, place]
        fits = length + least <= limit
        worth = np.where(fits, prizes / np.maximum(least, 1e-12) ** power, 0.0)
        node = first if len(path) == 2 and worth[first] > 0 else int(worth.argmax())
        if worth[node] <= 0:
            break
        here = int(place[node])
        before, after = path[here], path[here + 1]
        rest[node] = legs_from(node)
        length += float(least[node])
        path.insert(here + 1, node)
        columns = [
            rest[a] + rest[b] - rest[a][b] for a, b in ((before, node), (node, after))
        ]
        added = np.insert(added, here, columns[0], axis=1)
        added[:, here + 1] = columns[1]
        added[path] = np.inf
    return path[1:-1]
