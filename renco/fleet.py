"""Ruin and recreate for the CVRP: slack induction by string removals.

Christiaens and Vanden Berghe (Transportation Science, 2020): strings of customers are
taken out of routes that are near each other, which leaves room there; each customer
goes back where it costs least, now and then not quite; and what is a little longer
than before may stay, the less the colder it gets.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Self, cast

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from renco.local import Hurry, Matrix, at_leisure

REMOVED = 10
"""Customers that are taken out, on average."""
LONGEST_STRING = 10
BLINK = 0.01
"""How often a place is overlooked."""
NEAR = 20
"""Nearest customers beside which a customer may go back."""
FAR = 100
"""Nearest customers among which strings are looked for."""
PATIENCE = 64
"""Iterations between two looks at the clock."""

Customers = list[list[int]]


class Map(NamedTuple):
    """What does not change: an instance in plain lists, and views of its matrix.

    An iteration touches some ten customers. To ask NumPy for each would take longer
    than all the rest.

    Attributes:
        legs: Distances, a row for each node.
        near: The nearest customers of each customer, itself first.
        demands: By node.
        capacity: Of each vehicle.
    """

    legs: Sequence[Sequence[float]]
    near: Customers
    demands: list[float]
    capacity: float

    @classmethod
    def of(
        cls, matrix: Matrix, demands: Float64[ndarray, " node"], capacity: float
    ) -> Self:
        """Draws the map of an instance."""
        away = matrix.copy()
        away[:, 0] = np.inf
        np.fill_diagonal(away, -1.0)
        near = away.argsort(axis=1, kind="stable")[:, : min(FAR, len(matrix) - 1)]
        legs = cast(Sequence[Sequence[float]], [memoryview(row) for row in matrix])
        return cls(legs, near.tolist(), demands.tolist(), capacity)


class Links(NamedTuple):
    """Routes as a chain of customers; before the first and after the last is 0.

    Attributes:
        after: The next customer of each.
        before: The previous one.
        route: Which route each customer is on.
        load: Demand on each route, zero for routes that are not used.
        size: Customers on each route.
    """

    after: list[int]
    before: list[int]
    route: list[int]
    load: list[float]
    size: list[int]

    @classmethod
    def of(cls, routes: Customers, demands: list[float]) -> Self:
        """Links the customers of each route."""
        after, before, route_of = ([0] * len(demands) for _ in range(3))
        for number, route in enumerate(routes):
            for a, b in zip([0, *route], [*route, 0], strict=True):
                after[a], before[b] = b, a
                route_of[a] = number
        load = [sum(demands[node] for node in route) for route in routes]
        return cls(after, before, route_of, load, [len(route) for route in routes])

    def copy(self) -> Self:
        """Returns chains that can be changed alone."""
        after, before, route, load, size = self
        return type(self)(after[:], before[:], route[:], load[:], size[:])

    def routes(self) -> Customers:
        """Returns the customers of each route that has any."""
        found = []
        for first in range(1, len(self.after)):
            if self.before[first] == 0:
                route = [first]
                while node := self.after[route[-1]]:
                    route.append(node)
                found.append(route)
        return found


class Fleet:
    """A solution that is disturbed and repaired, and the best one met so far.

    Attributes:
        gained: By how much the best one is shorter than the one at the start.
    """

    def __init__(self, routes: Customers, instance: Map, rng: Random) -> None:
        """Takes a feasible solution of at least one customer."""
        self._map, self._rng = instance, rng
        self._now = Links.of(routes, instance.demands)
        self._best = self._now
        self._change = 0.0
        self.gained = 0.0

    @property
    def routes(self) -> Customers:
        """The best solution."""
        return self._best.routes()

    def anneal(self, times: int, heat: float, hurry: Hurry = at_leisure) -> None:
        """Ruins and recreates so many times.

        Args:
            times: Iterations.
            heat: By how much longer, on average, a solution may become at once.
            hurry: Asked now and then whether to stop.
        """
        for turn in range(times):
            if turn % PATIENCE == 0 and hurry():
                return
            kept = self._now
            self._now = kept.copy()
            gone, shorter = self._ruin()
            change = self._recreate(gone) - shorter
            if change > -heat * math.log(1.0 - self._rng.random()):
                self._now = kept
                continue
            self._change += change
            if self._change < -self.gained:
                # Chains are copied before they change, so the best one stays.
                self.gained, self._best = -self._change, self._now

    def _ruin(self) -> tuple[list[int], float]:
        """Takes strings out of routes near some customer.

        Returns:
            The customers taken out, and by how much this makes the routes shorter.
        """
        after, before, route, load, size = self._now
        legs, demands, random = self._map.legs, self._map.demands, self._rng.random
        longest = min(float(LONGEST_STRING), (len(after) - 1) / sum(map(bool, size)))
        most = 4 * REMOVED / (1 + longest) - 1
        strings = int(1 + random() * most)
        gone: list[int] = []
        touched = set()
        shorter = 0.0
        for node in self._map.near[1 + int(random() * (len(after) - 1))]:
            number = route[node]
            if number in touched:
                continue
            touched.add(number)
            for out in self._string(node, min(float(size[number]), longest)):
                a, b = before[out], after[out]
                shorter += legs[a][out] + legs[out][b] - legs[a][b]
                after[a], before[b] = b, a
                load[number] -= demands[out]
                size[number] -= 1
                gone.append(out)
            if len(touched) == strings:
                break
        return gone, shorter

    def _string(self, node: int, longest: float) -> list[int]:
        """Draws customers of a route in a row, around one; or all but one of a row."""
        random, (after, before, *_) = self._rng.random, self._now
        count = int(1 + random() * longest)
        split = count > 1 and random() < 0.5
        total = count + split
        row, behind, ahead = [node], node, node
        for _ in range(int(random() * total)):
            if not (behind := before[behind]):
                break
            row.insert(0, behind)
        while len(row) < total and (ahead := after[ahead]):
            row.append(ahead)
        while len(row) < total and (behind := before[row[0]]):
            row.insert(0, behind)
        if split and len(row) > count:
            del row[int(random() * len(row))]
        return row

    def _recreate(self, gone: list[int]) -> float:
        """Puts customers back; returns by how much this makes the routes longer."""
        after, before, route, load, size = self._now
        legs, near, demands, capacity = self._map
        random, longer = self._rng.random, 0.0
        away = set(gone)
        for node in self._shuffled(gone):
            here, room = legs[node], capacity - demands[node]
            least, place = 2 * here[0], (0, 0)
            for other in near[node][1 : NEAR + 1]:
                if other in away or load[route[other]] > room:
                    continue
                to, a, b = here[other], before[other], after[other]
                extra = to + here[a] - legs[a][other]
                if extra < least and random() > BLINK:
                    least, place = extra, (a, other)
                extra = to + here[b] - legs[other][b]
                if extra < least and random() > BLINK:
                    least, place = extra, (other, b)
            a, b = place
            if a or b:
                number = route[a or b]
            elif 0 in size:
                number = size.index(0)
            else:
                number = len(size)
                size.append(0)
                load.append(0.0)
            after[a], before[node] = node, a
            before[b], after[node] = node, b
            route[node] = number
            load[number] += demands[node]
            size[number] += 1
            longer += least
            away.remove(node)
        return longer

    def _shuffled(self, nodes: list[int]) -> list[int]:
        """Returns customers by chance, demand, or distance from the depot."""
        kind, home = self._rng.random() * 11, self._map.legs[0]
        if kind < 4:
            self._rng.shuffle(nodes)
        elif kind < 8:
            nodes.sort(key=self._map.demands.__getitem__, reverse=True)
        else:
            nodes.sort(key=home.__getitem__, reverse=kind < 10)
        return nodes
