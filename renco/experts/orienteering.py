"""How to collect most prize: PyVRP's search under a price for length.

Maximising prize alone leaves a search without a sense of direction: most moves
change only the length. So a unit of prize is given a price in length, and length
beyond the limit a penalty that adapts. The right price depends on the instance: too
low and it pays to stay at home, too high and all tours look alike. It is set from
the prize that a unit of length earns in the best tour so far. What a search leaves
undone, since length is not what counts, is done by `local.improve`: it gains in
two of five searches, 0.4 % of the prize on average.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from renco.experts.scaling import distances, factor
from renco.local import improve, insert_all
from renco.problems import OP

LONGEST = 10_000_000
"""Scaled limit: large, since distances are rounded up."""
RICHEST = 1e12
"""Most that a visit is worth: PyVRP adds within 2^44, and this outweighs any length."""
STAGES = ((2.0, 0.1, False), (1.5, 0.45, True), (1.8, 0.45, False))
"""Price of prize, times limit / collected prize; share of the time; start afresh.

The first only finds out how much prize there is to collect. The second starts from a
random tour, since a start by insertion leads to a worse region (0.3 % of the prize);
the third goes on from the best.
"""


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
        end: int,
    ) -> list[int]:
        """Minimises length plus missed prizes.

        Args:
            lengths: Whole distances; node 0 is the depot.
            prizes: Of each node, in units of length.
            limit: Longest tour.
            start: Tour to begin with, without its ends; empty for a random one.
            share: Part of all the time to use.
            end: Where tours end: the depot, or the last node.

        Returns:
            A tour within the limit, without its ends.
        """
        ...


def orienteer(search: TourSearch, instance: OP, own: Sequence[int] = ()) -> list[int]:
    """Returns a tour of much prize, by repeated search under different prices.

    Args:
        search: What searches under one price.
        instance: What to solve.
        own: Visits that the tour begins with.
    """
    matrix, prizes = distances(instance), instance.prizes[0].copy()
    here = own[-1] if own else 0
    past = np.array([0, *own])
    limit = float(instance.limit[0]) - float(matrix[past[:-1], past[1:]].sum())
    prizes[past] = 0.0
    # What cannot be reached only slows the search down.
    useful = (matrix[here] + matrix[:, 0] <= limit) & (prizes > 0)
    nodes = [here, *np.flatnonzero(useful).tolist()]
    end = 0
    if own:  # home is another place than here
        end = len(nodes)
        nodes.append(0)
        prizes[0] = 0.0
    near = matrix[np.ix_(nodes, nodes)]
    tour = _collect(search, near, prizes[nodes], limit, end)
    return [*own, *(nodes[node] for node in tour)]


def _collect(
    search: TourSearch, matrix: ndarray, prizes: ndarray, limit: float, end: int
) -> list[int]:
    best = insert_all([], matrix, prizes, limit, end)
    scale = factor(matrix, LONGEST, limit)
    # Rounded up: a tour within the limit here is one in the instance as well.
    lengths = np.ceil(matrix * scale).astype(np.int64)
    for price, share, afresh in STAGES:
        if len(best) == np.count_nonzero(prizes):
            break  # everything is collected
        unit = price * limit * scale / prizes[best].sum()
        worth = np.rint(np.minimum(prizes * unit, RICHEST)).astype(np.int64)
        start = [] if afresh else best
        tour = search(lengths, worth, int(limit * scale), start, share, end)
        tour = improve(tour, matrix, prizes, limit, end)
        if prizes[tour].sum() > prizes[best].sum():
            best = tour
    return best
