"""What is left of a CVRP that a policy has begun, as a CVRP that solvers understand."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from renco.experts.base import ExpertFailed
from renco.experts.scaling import distances, positions, whole_demands
from renco.problems import CVRP, Routes

FORBIDDEN = 10.0
"""Length, in longest distances, of a leg that must not be taken."""


@dataclass(frozen=True)
class UnderWay:
    """The depot, the vehicle that is under way, and the customers left.

    The vehicle is a customer where it stands: what it has loaded is the demand, from
    the depot it costs nothing to get there, and from anywhere else it is further than
    any detour.

    Attributes:
        begun: Decisions so far.
        nodes: Depot, where the vehicle stands, and customers, as the instance numbers
            them.
        points: Their coordinates, in the unit square.
        lengths: Distances between them, in longest distances of the instance; not
            symmetric.
        demands: Of each.
        capacity: Of a vehicle.
    """

    begun: list[int]
    nodes: list[int]
    points: Float64[ndarray, "node 2"]
    lengths: Float64[ndarray, "node node"]
    demands: Int64[ndarray, " node"]
    capacity: int

    @classmethod
    def after(cls, instance: CVRP, decisions: list[int]) -> Self:
        """Returns what some decisions leave of an instance."""
        demands, capacity = whole_demands(instance)
        visited = [decision // 2 for decision in decisions]
        since = max((i for i, d in enumerate(decisions) if d % 2), default=0)
        left = sorted(set(range(1, instance.n + 1)) - set(visited))
        nodes = [0, visited[-1], *left]
        lengths = distances(instance)
        lengths /= lengths.max() or 1.0
        lengths = lengths[np.ix_(nodes, nodes)]
        lengths[0, 1] = 0.0
        lengths[2:, 1] = FORBIDDEN
        loads = demands[nodes]
        loads[1] = demands[visited[since:]].sum()
        points = positions(instance, side=1.0)[nodes]
        return cls(decisions, nodes, points, lengths, loads, capacity)

    def finished(self, routes: Routes) -> list[int]:
        """Returns all decisions, given routes of these nodes.

        Raises:
            ExpertFailed: One of them leads back to where the vehicle had been.
        """
        first = next(route for route in routes if 1 in route)
        if first[0] != 1:
            raise ExpertFailed("a solver went back to where a vehicle had been")
        found = [2 * self.nodes[node] for node in first[1:]]
        for route in routes:
            if route is not first:
                found += [2 * self.nodes[node] + (node == route[0]) for node in route]
        return [*self.begun, *found]
