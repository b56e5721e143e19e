"""How to collect most prize: PyVRP's search under a price for length.

Maximising prize alone leaves a search without a sense of direction: most moves
change only the length. So a unit of prize is given a price in length, and length
beyond the limit a penalty that adapts. The right price depends on the instance: too
low and it pays to stay at home, too high and all tours look alike. It is set from
the prize that a unit of length earns in the best tour so far, and raised between
searches that start where the last one ended.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from renco.experts.insertion import improve, insert_all
from renco.experts.scaling import distances, factor
from renco.problems import OP

LONGEST = 10_000_000
"""Scaled limit: large, since distances are rounded up."""
STAGES = ((2.0, 0.1), (1.4, 0.45), (1.9, 0.45))
"""Price of prize, times limit / collected prize; and share of the time."""


@runtime_checkable
class TourSearch(Protocol):
    """A search for a short tour of much prize."""

    def __call__(
        self,
        lengths: Int64[ndarray, "node node"],
        prizes: Int64[ndarray, " node"],
        limit: int,
        start: list[int],
        share: float,
    ) -> list[int]:
        """Minimises length plus missed prizes.

        Args:
            lengths: Whole distances; node 0 is the depot.
            prizes: Of each node, in units of length.
            limit: Longest tour.
            start: Tour to begin with, without the depot.
            share: Part of all the time to use.

        Returns:
            A tour within the limit, without the depot.
        """
        ...


def orienteer(search: TourSearch, instance: OP) -> list[int]:
    """Returns a tour of much prize, by repeated search under different prices."""
    matrix, prizes = distances(instance), instance.prizes[0]
    limit = float(instance.limit[0])
    # What cannot be reached only slows the search down.
    useful = (matrix[0] + matrix[:, 0] <= limit) & (prizes > 0)
    useful[0] = True
    nodes = np.flatnonzero(useful)
    tour = _collect(search, matrix[np.ix_(nodes, nodes)], prizes[nodes], limit)
    return [int(nodes[node]) for node in tour]


def _collect(
    search: TourSearch, matrix: ndarray, prizes: ndarray, limit: float
) -> list[int]:
    best = insert_all([], matrix, prizes, limit)
    scale = factor(matrix, LONGEST, limit)
    # Rounded up: a tour within the limit here is one in the instance as well.
    lengths = np.ceil(matrix * scale).astype(np.int64)
    for price, share in STAGES:
        if len(best) == len(prizes) - 1:
            break  # everything is collected
        unit = price * limit * scale / prizes[best].sum()
        worth = np.rint(prizes * unit).astype(np.int64)
        tour = search(lengths, worth, int(limit * scale), best, share)
        tour = improve(tour, matrix, prizes, limit)
        if prizes[tour].sum() > prizes[best].sum():
            best = tour
    return best
