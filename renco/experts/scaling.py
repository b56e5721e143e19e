"""Numbers as the solvers want them: nearly all of them compute with integers.

Handing the coordinates of a unit square to a solver that rounds makes all distances
zero or one, without a warning. So every distance is measured here, in the metric of
the instance, and scaled to use the range of the solver.
"""

import math
from fractions import Fraction

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from renco import metrics
from renco.problems import CVRP, Problem

FINEST = 1_000_000
"""Largest denominator of a demand that is taken to be meant as a fraction."""
NOISE = 1e-13
"""Rounding errors of a demand, relative to the capacity, that are ignored."""


def distances(instance: Problem) -> Float64[ndarray, "node node"]:
    """Returns all distances of a single instance, zero from a node to itself."""
    nodes = np.arange(instance.coords.shape[1])
    matrix = instance.legs(0, *np.broadcast_arrays(nodes[:, None], nodes)).copy()
    np.fill_diagonal(matrix, 0.0)
    return matrix


def factor(
    matrix: Float64[ndarray, "node node"], largest: int, limit: float = 0.0
) -> float:
    """Returns what to multiply distances by so that they reach `largest` at most.

    Distances that are whole numbers already stay exact where the range allows. A
    limit on the length of tours has to fit the range as well.
    """
    longest = max(limit, float(matrix.max(initial=0.0)))
    if longest == 0:
        return 1.0
    scale = largest / longest
    if scale >= 1 and (matrix == np.rint(matrix)).all():
        return float(math.floor(scale))
    return scale


def whole(
    matrix: Float64[ndarray, "node node"], largest: int
) -> Int64[ndarray, "node node"]:
    """Returns distances as integers of at most `largest`, nearest to the scaled."""
    scaled = np.rint(matrix * factor(matrix, largest))
    return np.minimum(scaled, largest).astype(np.int64)


def positions(
    instance: Problem, side: float, margin: float = 0.0
) -> Float64[ndarray, "node 2"]:
    """Returns coordinates in a square of the given side, near the metric's plane."""
    points = metrics.plane(instance.metric, instance.coords[0])
    points = points - points.min(axis=0)
    extent = float(points.max(initial=0.0))
    return np.asarray(points * (side / extent if extent > 0 else 1.0) + margin)


def whole_demands(instance: CVRP) -> tuple[Int64[ndarray, " node"], int]:
    """Returns demands and capacity as integers that admit exactly the same routes.

    Raises:
        ValueError: A demand is not a fraction with a denominator of up to `FINEST`,
            or there is no common denominator that small.
    """
    capacity = float(instance.capacity[0])
    fractions = []
    for node, demand in enumerate(instance.demands[0].tolist()):
        fraction = _fraction(demand, capacity)
        if fraction is None:
            raise ValueError(
                f"demand {demand!r} of node {node} is not a fraction with a "
                f"denominator of at most {FINEST}: give whole demands"
            )
        fractions.append(fraction)
    common = math.lcm(*(fraction.denominator for fraction in fractions))
    if common > FINEST:
        raise ValueError(
            f"the demands have the common denominator {common}, more than {FINEST}: "
            "give whole demands"
        )
    amounts = [int(fraction * common) for fraction in fractions]
    room = _fraction(capacity, capacity) or Fraction(capacity)
    # Loads are multiples of the greatest common divisor, so the rest never fills.
    divisor = math.gcd(*amounts) or 1
    return (
        np.array([amount // divisor for amount in amounts], dtype=np.int64),
        math.floor(room * common / divisor),
    )


def _fraction(value: float, unit: float) -> Fraction | None:
    """Returns the simple fraction that a float stands for, if it does."""
    fraction = Fraction(value).limit_denominator(FINEST)
    return fraction if abs(float(fraction) - value) <= NOISE * unit else None
