"""Ruin and recreate for the OP: a stretch of the tour goes, other nodes come in.

As in `fleet`, after Christiaens and Vanden Berghe (Transportation Science, 2020). But
an orienteering tour need not take back what it lost, and length that one place sets
free can be spent at another: what comes in is looked for around two places.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import NamedTuple, Self, cast

import numpy as np

from renco.local import Hurry, Matrix, Prizes, at_leisure

LONGEST_STRING = 25
"""Nodes in a row that are taken out, at most."""
NEAR = 10
"""Nearest nodes beside which a node may come in."""
AROUND = 20
"""Nearest nodes of a place that may come in."""
BLINK = 0.01
"""How often a place beside a node is overlooked."""
NOISE = 2.0
"""By which power of e the worth of a node is blurred, at most."""
PRICE = 1.0
"""Of length that is used, in prizes that the best tour collects on as much of it."""
PATIENCE = 64
"""Iterations between two looks at the clock."""


class Park(NamedTuple):
    """What does not change: an instance in plain lists, and views of its matrix.

    Attributes:
        legs: Distances, a row for each node.
        near: Each node, and then its nearest nodes that have a prize.
        prizes: By node.
        limit: Of the tour's length.
    """

    legs: Sequence[Sequence[float]]
    near: list[list[int]]
    prizes: list[float]
    limit: float

    @classmethod
    def of(cls, matrix: Matrix, prizes: Prizes, limit: float) -> Self:
        """Draws the map of an instance."""
        away = matrix.copy()
        away[:, prizes <= 0] = np.inf
        np.fill_diagonal(away, -1.0)
        count = min(AROUND + 1, int((prizes > 0).sum()))
        near = away.argsort(axis=1, kind="stable")[:, :count]
        legs = cast(Sequence[Sequence[float]], [memoryview(row) for row in matrix])
        return cls(legs, near.tolist(), prizes.tolist(), limit)


@dataclass
class Walk:
    """A closed tour as a chain.

    Attributes:
        after: The node after each one; -1 where that is not on the tour.
        before: The node before it.
        length: Of the tour.
        prize: That it collects.
    """

    after: list[int]
    before: list[int]
    length: float = 0.0
    prize: float = 0.0

    @classmethod
    def of(cls, tour: list[int], park: Park) -> Self:
        """Links the nodes of a tour from the depot to the depot."""
        nodes = len(park.prizes)
        walk = cls([-1] * nodes, [-1] * nodes)
        for a, b in pairwise([0, *tour, 0]):
            walk.after[a], walk.before[b] = b, a
        walk.measure(park)
        return walk

    def measure(self, park: Park) -> None:
        """Sums length and prize anew: what is added and taken away drifts."""
        tour = self.tour()
        self.length = math.fsum(park.legs[a][b] for a, b in pairwise([0, *tour, 0]))
        self.prize = math.fsum(park.prizes[node] for node in tour)

    def copy(self) -> Self:
        """Returns a chain that can be changed alone."""
        return type(self)(self.after[:], self.before[:], self.length, self.prize)

    def tour(self) -> list[int]:
        """Returns the nodes between the depot and the depot."""
        found, node = [], self.after[0]
        while node:
            found.append(node)
            node = self.after[node]
        return found

    def beats(self, other: "Walk") -> bool:
        """Returns whether it has more prize, or as much on less length."""
        return (self.prize, -self.length) > (other.prize, -other.length)


class Outing:
    """A tour that is disturbed and repaired, and the best one met so far."""

    def __init__(self, tour: list[int], park: Park, rng: Random) -> None:
        """Takes a tour within the limit of an instance that has prizes."""
        self._park, self._rng = park, rng
        self._now = self._best = Walk.of(tour, park)

    @property
    def routes(self) -> list[list[int]]:
        """The best tour, as a solution of one route."""
        return [self._best.tour()]

    def anneal(self, times: int, heat: float, hurry: Hurry = at_leisure) -> None:
        """Ruins and recreates so many times.

        Args:
            times: Iterations.
            heat: How much prize, on average, a tour may lose at once.
            hurry: Asked now and then whether to stop.
        """
        park, random = self._park, self._rng.random
        price = PRICE * self._best.prize / max(park.limit, 1e-12)
        for turn in range(times):
            if turn % PATIENCE == 0 and hurry():
                return
            kept = self._now
            now = self._now = kept.copy()
            here, there = (1 + int(random() * (len(park.prizes) - 1)) for _ in range(2))
            self._recreate(self._ruin(here), here, there)
            lost = kept.prize - now.prize + price * (now.length - kept.length)
            if lost > -heat * math.log(1.0 - random()):
                self._now = kept
            elif now.beats(self._best):
                now.measure(park)
                if now.length > park.limit:
                    self._now = kept
                elif now.beats(self._best):
                    # Chains are copied before they change, so the best one stays.
                    self._best = now

    def _ruin(self, place: int) -> list[int]:
        """Takes a string of nodes around a place out of the tour and returns it."""
        now, random, (legs, near, prizes, _) = self._now, self._rng.random, self._park
        after, before = now.after, now.before
        gone: list[int] = []
        node = next((node for node in near[place] if after[node] >= 0), 0)
        count = 1 + int(random() * LONGEST_STRING)
        for _ in range(int(random() * count)):
            node = before[node] or node
        while node and len(gone) < count:
            a, b = before[node], after[node]
            now.length -= legs[a][node] + legs[node][b] - legs[a][b]
            now.prize -= prizes[node]
            after[a], before[b] = b, a
            after[node] = before[node] = -1
            gone.append(node)
            node = b
        return gone

    def _recreate(self, gone: list[int], *places: int) -> None:
        """Lets nodes in while they fit: those gone, and others around places."""
        now, random, (_, near, prizes, limit) = self._now, self._rng.random, self._park
        waiting = {*gone}
        for place in places:
            waiting.update(n for n in near[place] if now.after[n] < 0 and prizes[n])
        power, order = 0.5 + 0.5 * random(), []
        for node in waiting:
            extra, *_ = self._least(node)
            worth = prizes[node] / max(extra, 1e-12) ** power
            order.append((worth * math.exp(NOISE * random()), node))
        for _, node in sorted(order, reverse=True):
            extra, a, b = self._least(node)
            if now.length + extra > limit:
                continue
            now.after[a] = now.before[b] = node
            now.before[node], now.after[node] = a, b
            now.length += extra
            now.prize += prizes[node]

    def _least(self, node: int) -> tuple[float, int, int]:
        """Returns the least extra length of a node, and between which two that is."""
        (legs, near, *_), random = self._park, self._rng.random
        after, before, here = self._now.after, self._now.before, legs[node]
        a, b = before[0], after[0]
        least = (here[0] + here[b] - legs[0][b], 0, b)
        if (extra := here[0] + here[a] - legs[a][0]) < least[0]:
            least = (extra, a, 0)
        for other in near[node][1 : NEAR + 1]:
            b = after[other]
            if b < 0 or random() < BLINK:
                continue
            a, to = before[other], here[other]
            if (extra := to + here[a] - legs[a][other]) < least[0]:
                least = (extra, a, other)
            if (extra := to + here[b] - legs[other][b]) < least[0]:
                least = (extra, other, b)
        return least
