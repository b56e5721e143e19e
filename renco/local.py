"""Local moves that improve tours, in NumPy.

Tours are lists of nodes without their ends: both are the depot, node 0, unless another
`end` is given, which has no prize. Lengths are float64 in the
metric of the instance, so nothing is lost to the rounding of a solver.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

Matrix = Float64[ndarray, "node node"]
Prizes = Float64[ndarray, " node"]

Hurry = Callable[[], bool]
"""Asked between moves; once true, the tour stays as it is."""


def at_leisure() -> bool:
    """Is never in a hurry."""
    return False


LEAST = 1e-10
"""Improvements below this part of the tour's length are taken to be rounding."""
LONGEST_SEGMENT = 3


def length_of(route: list[int], matrix: Matrix, end: int = 0) -> float:
    """Returns the length of the tour from the depot to its end."""
    tour = np.array([0, *route, end])
    return float(matrix[tour[:-1], tour[1:]].sum())


def improve(
    route: list[int],
    matrix: Matrix,
    prizes: Prizes,
    limit: float,
    end: int = 0,
    hurry: Hurry = at_leisure,
) -> list[int]:
    """Shortens, inserts and swaps until none of the three gains anything.

    A tour within the limit stays within it and never loses prize.
    """
    while True:
        route = shorten(route, matrix, end, hurry)
        route = insert_all(route, matrix, prizes, limit, end)
        better = swap(route, matrix, prizes, limit, end)
        if better is None or hurry():
            return route
        route = better


def insert_all(
    route: list[int], matrix: Matrix, prizes: Prizes, limit: float, end: int = 0
) -> list[int]:
    """Inserts nodes where they fit, most prize per extra length first."""
    tour = [0, *route, end]
    room = limit - length_of(route, matrix, end)
    waiting = prizes > 0
    waiting[tour] = False
    while waiting.any():
        nodes = np.flatnonzero(waiting)
        extra = _extra(nodes, np.array(tour), matrix)
        place = extra.argmin(axis=1)
        least = extra[np.arange(len(nodes)), place]
        fits = least <= room
        if not fits.any():
            break
        # Where a node costs nothing (even less: rounded metrics), take it at once.
        worth = prizes[nodes] / np.maximum(least, LEAST * limit)
        best = int(np.where(fits, worth, -1.0).argmax())
        tour.insert(int(place[best]) + 1, int(nodes[best]))
        room -= least[best]
        waiting[nodes[best]] = False
    return tour[1:-1]


def swap(
    route: list[int], matrix: Matrix, prizes: Prizes, limit: float, end: int = 0
) -> list[int] | None:
    """Replaces the node for which another one brings the most additional prize.

    Returns:
        The better tour, or None if no replacement fits.
    """
    outside = prizes > 0
    outside[[0, *route]] = False
    nodes = np.flatnonzero(outside)
    if not len(route) or not len(nodes):
        return None
    tour = np.array([0, *route, end])
    before, inside, after = tour[:-2], tour[1:-1], tour[2:]
    saved = matrix[before, inside] + matrix[inside, after] - matrix[before, after]
    # The new node goes where the old one was, or to its best place elsewhere: of
    # any three places, one does not touch the old node.
    extra = _extra(nodes, tour, matrix)
    places = np.argsort(extra, axis=1)[:, :3]
    touches = (places[:, None] == np.arange(len(route))[:, None]) | (
        places[:, None] == np.arange(1, len(route) + 1)[:, None]
    )
    costs = np.where(touches, np.inf, np.take_along_axis(extra, places, 1)[:, None])
    pick = costs.argmin(axis=2)
    elsewhere = np.take_along_axis(costs, pick[..., None], 2)[..., 0]
    same = matrix[np.ix_(nodes, before)] + matrix[np.ix_(nodes, after)]
    same -= matrix[before, after]
    total = length_of(route, matrix, end) - saved + np.minimum(same, elsewhere)
    gain = prizes[nodes][:, None] - prizes[inside]
    gain = np.where((total <= limit) & (gain > 0), gain, 0.0)
    if not gain.any():
        return None
    new, old = map(int, np.unravel_index(gain.argmax(), gain.shape))
    result = list(route)
    result[old] = int(nodes[new])
    if elsewhere[new, old] < same[new, old]:
        place = int(places[new, pick[new, old]])
        del result[old]
        result.insert(place - (place > old), int(nodes[new]))
    return result


def shorten(
    route: list[int], matrix: Matrix, end: int = 0, hurry: Hurry = at_leisure
) -> list[int]:
    """Applies the best 2-opt or Or-opt move until none shortens the tour."""
    tour = np.array([0, *route, end])
    while len(tour) > 3 and not hurry():
        least = -LEAST * float(matrix[tour[:-1], tour[1:]].sum())
        gain, better = min(
            [_two_opt(tour, matrix), _or_opt(tour, matrix)], key=lambda move: move[0]
        )
        if gain >= least:
            break
        tour = better
    return [int(node) for node in tour[1:-1]]


def _extra(nodes: ndarray, tour: ndarray, matrix: Matrix) -> ndarray:
    """Returns how much longer each leg gets by passing through each node."""
    a, b = tour[:-1], tour[1:]
    return np.asarray(
        matrix[np.ix_(nodes, a)] + matrix[np.ix_(nodes, b)] - matrix[a, b]
    )


def _two_opt(tour: ndarray, matrix: Matrix) -> tuple[float, ndarray]:
    """Returns the change of length of the best reversal, and its tour."""
    a, b = tour[:-1], tour[1:]
    legs = matrix[a, b]
    change = matrix[np.ix_(a, a)] + matrix[np.ix_(b, b)] - legs[:, None] - legs
    change[np.tril_indices(len(a))] = 0.0
    i, j = map(int, np.unravel_index(change.argmin(), change.shape))
    better = tour.copy()
    better[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1]
    return float(change[i, j]), better


def _or_opt(tour: ndarray, matrix: Matrix) -> tuple[float, ndarray]:
    """Returns the change of length of the best move of a segment, and its tour."""
    best, move = 0.0, None
    legs = matrix[tour[:-1], tour[1:]]
    for size in range(1, min(LONGEST_SEGMENT, len(tour) - 3) + 1):
        first = np.arange(1, len(tour) - size)
        head, tail = tour[first], tour[first + size - 1]
        before, after = tour[first - 1], tour[first + size]
        cut = matrix[before, after] - matrix[before, head] - matrix[tail, after]
        place = np.arange(len(tour) - 1)
        inside = (place >= first[:, None] - 1) & (place < first[:, None] + size)
        for flip in (False, True):
            x, y = (tail, head) if flip else (head, tail)
            join = matrix[np.ix_(x, tour[:-1])] + matrix[np.ix_(y, tour[1:])] - legs
            change = np.where(inside, np.inf, cut[:, None] + join)
            i, j = map(int, np.unravel_index(change.argmin(), change.shape))
            if change[i, j] < best:
                best, move = float(change[i, j]), (int(first[i]), size, j, flip)
    if move is None:
        return 0.0, tour
    start, size, place_, flip = move
    segment = tour[start : start + size][:: -1 if flip else 1]
    rest = np.delete(tour, np.s_[start : start + size])
    at = place_ + 1 if place_ < start else place_ + 1 - size
    return best, np.insert(rest, at, segment)


class Loads(NamedTuple):
    """Routes of a CVRP one after the other, each from depot to depot.

    Attributes:
        at: The nodes, and a depot before and after each route.
        route: Which route each position belongs to; its first depot included.
        before: Load of its route up to each position, itself included.
        total: Load of the whole route of each position.
    """

    at: Int64[ndarray, " position"]
    route: Int64[ndarray, " position"]
    before: Float64[ndarray, " position"]
    total: Float64[ndarray, " position"]

    @classmethod
    def of(cls, routes: list[list[int]], demands: Float64[ndarray, " node"]) -> Self:
        """Strings routes together."""
        at = np.array([node for route in routes for node in (0, *route)] + [0])
        route = np.cumsum(at == 0) - 1
        load = demands[at]
        running = np.cumsum(load)
        before = running - running[np.flatnonzero(at == 0)][route]
        total = np.bincount(route, load)[route]
        return cls(at, route, before, total)


def split(at: Int64[ndarray, " position"]) -> list[list[int]]:
    """Cuts a sequence at its depots; what has become empty is left out."""
    depots = np.flatnonzero(at == 0)
    found = [at[a + 1 : b].tolist() for a, b in itertools.pairwise(depots)]
    return [route for route in found if route]


def exchange(
    routes: list[list[int]],
    matrix: Matrix,
    demands: Float64[ndarray, " node"],
    capacity: float,
    hurry: Hurry = at_leisure,
) -> list[list[int]]:
    """Moves customers between routes until no move shortens them.

    The best of three kinds at a time: a customer to another route, two customers of
    different routes for each other, the ends of two routes for each other.
    """
    while not hurry():
        now = Loads.of(routes, demands)
        least = -LEAST * float(matrix[now.at[:-1], now.at[1:]].sum())
        moves = (_relocated, _swapped, _crossed)
        found = [move(now, matrix, demands, capacity) for move in moves]
        change, better = min(found, key=lambda move: move[0])
        if change >= least:
            break
        routes = split(better)
    return routes


def _best(change: ndarray, allowed: ndarray) -> tuple[float, int, int]:
    change = np.where(allowed, change, np.inf)
    i, j = np.unravel_index(change.argmin(), change.shape)
    return float(change[i, j]), int(i), int(j)


def _relocated(
    now: Loads, matrix: Matrix, demands: ndarray, capacity: float
) -> tuple[float, ndarray]:
    """Returns the change by the best move of one customer, and the new sequence."""
    at, place = now.at, np.flatnonzero(now.at)
    node, a, b = at[place], at[:-1], at[1:]
    prior, after = at[place - 1], at[place + 1]
    saved = matrix[prior, node] + matrix[node, after] - matrix[prior, after]
    extra = matrix[np.ix_(node, a)] + matrix[np.ix_(node, b)] - matrix[a, b]
    fits = demands[node][:, None] + now.total[:-1] <= capacity
    fits &= now.route[place][:, None] != now.route[:-1]
    change, i, j = _best(extra - saved[:, None], fits)
    old = int(place[i])
    longer = np.insert(at, j + 1, at[old])
    return change, np.delete(longer, old + (old > j))


def _swapped(
    now: Loads, matrix: Matrix, demands: ndarray, capacity: float
) -> tuple[float, ndarray]:
    """Returns the change by the best swap of two customers, and the new sequence."""
    at, place = now.at, np.flatnonzero(now.at)
    node, prior, after = at[place], at[place - 1], at[place + 1]
    mine = matrix[prior, node] + matrix[node, after]
    theirs = matrix[np.ix_(node, prior)] + matrix[np.ix_(node, after)]
    more = demands[node] - demands[node][:, None]  # if j comes in place of i
    total, route = now.total[place], now.route[place]
    fits = (total[:, None] + more <= capacity) & (total - more <= capacity)
    fits &= route[:, None] != route
    change, i, j = _best(theirs + theirs.T - mine[:, None] - mine, fits)
    better = at.copy()
    better[place[[i, j]]] = at[place[[j, i]]]
    return change, better


def _crossed(
    now: Loads, matrix: Matrix, demands: ndarray, capacity: float
) -> tuple[float, ndarray]:
    """Returns the change by the best swap of two ends, and the new sequence."""
    at, a, b = now.at, now.at[:-1], now.at[1:]
    before, rest = now.before[:-1], (now.total - now.before)[:-1]
    legs, route = matrix[a, b], now.route[:-1]
    joined = matrix[np.ix_(a, b)]  # from a of one route to b of the other
    fits = before[:, None] + rest <= capacity
    fits = fits & fits.T & (route[:, None] != route)
    change, i, j = _best(joined + joined.T - legs[:, None] - legs, fits)
    i, j = min(i, j), max(i, j)
    starts = np.flatnonzero(at == 0)
    end_i, end_j = (int(starts[route[x] + 1]) for x in (i, j))
    parts = [at[: i + 1], at[j + 1 : end_j]]
    parts += [at[end_i : j + 1], at[i + 1 : end_i], at[end_j:]]
    return change, np.concatenate(parts)
