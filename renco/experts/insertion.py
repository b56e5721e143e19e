"""Local improvements of orienteering tours, in NumPy.

Tours are lists of nodes without their ends: both are the depot, node 0, unless another
`end` is given, which has no prize. Lengths are float64 in the
metric of the instance, so nothing is lost to the rounding of a solver.
"""

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

Matrix = Float64[ndarray, "node node"]
Prizes = Float64[ndarray, " node"]

LEAST = 1e-10
"""Improvements below this part of the tour's length are taken to be rounding."""
LONGEST_SEGMENT = 3


def length_of(route: list[int], matrix: Matrix, end: int = 0) -> float:
    """Returns the length of the tour from the depot to its end."""
    tour = np.array([0, *route, end])
    return float(matrix[tour[:-1], tour[1:]].sum())


def improve(
    route: list[int], matrix: Matrix, prizes: Prizes, limit: float, end: int = 0
) -> list[int]:
    """Shortens, inserts and swaps until none of the three gains anything.

    A tour within the limit stays within it and never loses prize.
    """
    while True:
        route = insert_all(shorten(route, matrix, end), matrix, prizes, limit, end)
        better = swap(route, matrix, prizes, limit, end)
        if better is None:
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


def shorten(route: list[int], matrix: Matrix, end: int = 0) -> list[int]:
    """Applies the best 2-opt or Or-opt move until none shortens the tour."""
    tour = np.array([0, *route, end])
    while len(tour) > 3:
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
