"""The capacitated vehicle routing problem as a path problem (appendices A and C)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from numpy import ndarray
from torch import Tensor

from renco.problems.base import (
    TOLERANCE,
    Infeasible,
    Problem,
    RouteOrder,
    Routes,
    as_points,
    check_decisions,
    generators,
    per_instance,
    per_node,
    uniform_points,
)
from renco.state import State, span

CAPACITY = {100: 50, 200: 70, 500: 130, 1000: 230}  # appendix C
DEMAND = (1, 9)  # the paper writes [1, 10]; every public generator draws 1..9
BLUR = 0.1  # of the longest way, by which the order of far routes varies
SLACK = 1e-12  # of Q: rounding of a sum must not close an exact fit


def default_capacity(n: int) -> int:
    """Returns Q_n of appendix C: 30 + n / 5, which gives the paper's four values."""
    return CAPACITY.get(n, 30 + n // 5)


@dataclass(frozen=True, eq=False)
class CVRPState(State):
    """Routes through all open customers, ending at the depot.

    Each customer can be visited directly (choice 0) or via the depot (choice 1).

    Attributes:
        room: Capacity left in the vehicle.
        demand: Demand of each point of an instance.
        capacity: Q of each instance.
    """

    choices: ClassVar[int] = 2
    amounts: ClassVar[tuple[int, ...]] = (2,)
    row_fields: ClassVar[tuple[str, ...]] = (*State.row_fields, "room")

    room: Float64[Tensor, " batch"]
    demand: Float64[Tensor, "instance point"]
    capacity: Float64[Tensor, " instance"]

    def features(self) -> Float[Tensor, "batch node 4"]:
        """Returns coordinates, demand / Q, and remaining / Q in every row."""
        capacity = self.capacity[self.instance]
        load = self._rows_of(self.demand) / capacity[:, None]
        room = (self.room / capacity)[:, None].expand_as(load)
        xy = self._rows_of(self.xy)
        return torch.cat([xy, torch.stack([load, room], -1).to(xy.dtype)], dim=-1)

    def feasible(self) -> Bool[Tensor, "batch action"]:
        """Returns the direct visits that still fit, and all visits via the depot.

        At the depot both choices are the same move; only the direct one is open, or
        beams would fill with duplicates.
        """
        room = self.room + SLACK * self.capacity[self.instance]
        fits = self._rows_of(self.demand) <= room[:, None]
        at_depot = (self.node[:, 0] == self.node[:, -1])[:, None]
        mask = torch.stack([fits | at_depot, ~at_depot.expand_as(fits)], dim=-1)
        mask[:, 0] = mask[:, -1] = False
        return mask.flatten(1)

    def spent(self) -> Float[Tensor, "batch 2"]:
        """Returns the length so far, and what is loaded."""
        return torch.stack([self.travelled.double(), -self.room], dim=-1)

    def step(self, action: Int[Tensor, " batch"]) -> Self:
        """Moves to the chosen customer, unloading a new vehicle if via the depot."""
        via = (action % 2).bool()
        order = self._order(action // 2)
        node = self.node.gather(1, order)
        here, there, depot = (
            self._point(i) for i in (self.node[:, 0], node[:, 0], node[:, -1])
        )
        detour = span(here, depot) + span(depot, there)
        leg = torch.where(via, detour, span(here, there))
        room = torch.where(via, self.capacity[self.instance], self.room)
        return replace(
            self,
            node=node,
            origin=order,
            travelled=self.travelled + leg,
            room=room - self.demand[self.instance, node[:, 0]],
        )

    @property
    def cost(self) -> Float[Tensor, " batch"]:
        """The length of the routes, the return to the depot included."""
        return self._to_end() * self.side[self.instance]


@dataclass(frozen=True, eq=False, kw_only=True, init=False)
class CVRP(Problem):
    """A batch of capacitated vehicle routing instances; node 0 is the depot.

    Attributes:
        demands: Demand of each node, zero at the depot.
        capacity: Q of each instance.
    """

    name: ClassVar[str] = "cvrp"
    arrays: ClassVar[tuple[str, ...]] = ("coords", "demands", "capacity")

    demands: Float64[ndarray, "batch node"]
    capacity: Float64[ndarray, " batch"]

    def __init__(self, coords: Any, demands: Any, capacity: Any, **common: Any) -> None:
        """Takes one instance or a batch; `demands` includes the depot's zero."""
        points = as_points(coords)
        self._set(
            coords=points,
            demands=per_node("demands", demands, points),
            capacity=per_instance("capacity", capacity, points),
            **common,
        )
        self._check_demands()

    def _check_demands(self) -> None:
        for i, capacity in enumerate(self.capacity):
            if capacity <= 0:
                raise ValueError(f"capacity must be positive, got {capacity:g}")
            demands = self.demands[i]
            if demands[0] != 0:
                raise ValueError(f"demand of the depot must be 0, got {demands[0]:g}")
            wrong = np.flatnonzero((demands < 0) | (demands > capacity))
            if len(wrong):
                node = int(wrong[0])
                rule = "negative" if demands[node] < 0 else f"above Q = {capacity:g}"
                raise ValueError(f"demand {demands[node]:g} of node {node} is {rule}")

    @property
    def n(self) -> int:
        """The number of customers."""
        return self.coords.shape[1] - 1

    @classmethod
    def random(
        cls,
        batch: int,
        n: int,
        *,
        seed: int = 0,
        first: int = 0,
        capacity: int | tuple[int, int] | None = None,
        demand: tuple[int, int] = DEMAND,
    ) -> Self:
        """Draws uniform points and whole demands.

        Args:
            batch: Number of instances.
            n: Number of customers.
            seed: Seed of the set.
            first: Index of the first instance in the set.
            capacity: Q, or the bounds to draw it from; None means Q_n of the paper.
            demand: Least and largest demand, both included.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        if not 0 <= demand[0] <= demand[1]:
            raise ValueError(f"demand bounds must satisfy 0 <= lo <= hi, got {demand}")
        if capacity is None:
            capacity = default_capacity(n)
        low, high = (capacity, capacity) if isinstance(capacity, int) else capacity
        if not demand[1] <= low <= high:
            raise ValueError(
                f"capacity {capacity} must cover demands up to {demand[1]}"
            )
        rngs = generators(seed, first, batch)
        coords = uniform_points(rngs, n + 1)
        demands = np.zeros((batch, n + 1))
        for i, rng in enumerate(rngs):
            demands[i, 1:] = rng.integers(demand[0], demand[1], n, endpoint=True)
        capacities = [float(rng.integers(low, high, endpoint=True)) for rng in rngs]
        return cls(coords, demands, capacities)

    def start(self, device: torch.device | str | None = None) -> CVRPState:
        """Returns s_0: an empty vehicle's room is Q, all customers are open."""
        order = torch.arange(self.n + 1, device=device).expand(len(self), -1)
        room = torch.from_numpy(self.capacity.copy()).to(order.device)
        return self.path(torch.cat([order, order[:, :1]], dim=1), room)

    def path(
        self, node: Int[Tensor, "batch node"], room: Float64[Tensor, " batch"]
    ) -> CVRPState:
        """Returns the path problems over the given nodes, with some room left."""
        xy, side = self.frame()
        rows, n = node.shape
        device = node.device
        return CVRPState(
            node=node,
            origin=torch.arange(n, device=device).expand(rows, n),
            instance=torch.arange(rows, device=device),
            travelled=torch.zeros(rows, device=device),
            xy=torch.from_numpy(xy).to(device),
            side=torch.from_numpy(side).to(device, torch.float32),
            room=room,
            demand=torch.tensor(self.demands, device=device),
            capacity=torch.tensor(self.capacity, device=device),
        )

    def replay(self, decisions: Int[Tensor, "batch step"], step: int) -> CVRPState:
        """Returns s_step of the decisions, without stepping."""
        check_decisions(decisions, len(self), self.n, step)
        home = decisions.new_zeros(len(self), 1)
        node = torch.cat([home, decisions // 2, home], dim=1)
        via = torch.cat([home, decisions % 2], dim=1)[:, : step + 1].bool()
        capacity = torch.tensor(self.capacity, device=node.device)
        state = self.path(node[:, step:], capacity)
        served = node[:, : step + 1]
        load = state.demand[state.instance[:, None], served]
        # The load of the current vehicle: everything since the last "via".
        route = via.cumsum(1)
        room = capacity - (load * (route == route[:, -1:])).sum(1)
        points = state.xy[state.instance[:, None], served]
        depot = points[:, :1]
        out = torch.linalg.vector_norm(points - depot, dim=-1)
        direct = torch.linalg.vector_norm(points.diff(dim=1), dim=-1)
        legs = torch.where(via[:, 1:], out[:, :-1] + out[:, 1:], direct)
        return replace(state, room=room, travelled=legs.sum(1))

    def routes(self, decisions: Int[Tensor, "batch step"]) -> list[Routes]:
        """Starts a new route at each customer that is visited via the depot."""
        check_decisions(decisions, len(self), self.n)
        solutions: list[Routes] = []
        for row in decisions.tolist():
            routes: Routes = []
            for decision in row:
                node, via = divmod(decision, 2)
                if via or not routes:
                    routes.append([])
                routes[-1].append(node)
            solutions.append(routes)
        return solutions

    def decisions(self, routes: Sequence[Routes]) -> Int[Tensor, "batch step"]:
        """Marks the first customer of every route but the first as via the depot."""
        self.cost(routes)
        rows = []
        for solution in routes:
            visited = [route for route in solution if route]
            rows.append(
                [
                    node * 2 + int(place == 0 and number > 0)
                    for number, route in enumerate(visited)
                    for place, node in enumerate(route)
                ]
            )
        return torch.tensor(rows, dtype=torch.long).reshape(len(self), self.n)

    def _check(self, index: int, routes: Routes) -> None:
        self._check_visits(routes, range(1, self.n + 1))
        capacity = float(self.capacity[index])
        for number, route in enumerate(routes):
            load = math.fsum(self.demands[index, node] for node in route)
            if load > capacity * (1 + TOLERANCE):
                raise Infeasible(f"route {number} loads {load:g} of Q = {capacity:g}")

    def _objective(self, index: int, routes: Routes, length: float) -> float:
        return length

    def _closed(self, route: list[int]) -> list[int]:
        return [0, *route, 0]

    def slices(
        self,
        decisions: Int[ndarray, "batch step"],
        nodes: int,
        rng: np.random.Generator,
        order: RouteOrder = "random",
    ) -> tuple[State, Int[Tensor, "batch label"]]:
        """Takes the last `nodes` nodes of each expert solution, its routes rearranged.

        Any order and direction of the routes describes the same solution.

        Args:
            decisions: The expert's decisions.
            nodes: Size of the path problems, current node and depot included.
            rng: Source of randomness.
            order: How routes are arranged: at random, sorted (fullest first, so the
                slack comes last), half of the rows each ("mixed"), or far (the
                emptiest last, the others by their farthest customer).

        Returns:
            The path problems with their nodes in the expert's order, and the
            expert's actions.
        """
        if not 3 <= nodes <= self.n + 2:
            raise ValueError(f"a slice has 3..{self.n + 2} nodes, got {nodes}")
        whole = self.arranged(decisions, 0, rng, order)
        return self.after(whole, self.n + 2 - nodes)

    def arranged(
        self,
        decisions: Int[ndarray, "batch step"],
        begun: int,
        rng: np.random.Generator,
        order: RouteOrder,
    ) -> Int[ndarray, "batch step"]:
        """Reorders and reverses the routes that start at step `begun` or later."""
        batch, n = decisions.shape
        node, via = decisions // 2, decisions % 2
        route = via.cumsum(1)
        row = np.arange(batch)[:, None]
        key = rng.random((batch, n + 1))
        number = np.arange(n + 1)
        fixed = np.zeros((batch, n + 1), bool)
        if begun:
            fixed = number <= route[:, begun - 1 : begun]
        if order != "random":
            load = np.zeros((batch, n + 1))
            np.add.at(load, (row, route), self.demands[row, node])
            ranked = 1.0 - load / self.capacity[:, None]
            blur = 1e-6  # equal routes still come in random order
            if order == "far":
                blur = BLUR
                ranked = self._by_distance(node, route, np.where(fixed, -1.0, ranked))
            sort = np.ones((batch, 1), bool)
            if order == "mixed":
                sort = rng.random((batch, 1)) < 0.5
            key = np.where(sort, ranked + blur * key, key)
        reverse = (rng.random((batch, n + 1)) < 0.5) & ~fixed
        key = np.where(fixed, number - n - 2.0, key)
        place = np.arange(n) * np.where(reverse[row, route], -1, 1)
        sequence = np.lexsort((place, route, key[row, route]), axis=1)
        node, route = node[row, sequence], route[row, sequence]
        starts = np.zeros((batch, n), dtype=np.int64)
        starts[:, 1:] = route[:, 1:] != route[:, :-1]
        return np.asarray(node * 2 + starts)

    def _by_distance(
        self,
        node: Int[ndarray, "batch step"],
        route: Int[ndarray, "batch step"],
        room: Float64[ndarray, "batch number"],
    ) -> Float64[ndarray, "batch number"]:
        """Returns keys that sort routes: far ones first, the one with most room last.

        Keys count from -1, the farthest, to 0; that of the last is 1.

        Most routes are as good as full, and by fullness in no order that could be
        learnt; far customers that were left behind are the dearest.
        """
        row = np.arange(len(node))[:, None]
        depot, there = self.coords[:, :1], self.coords[row, node]
        away = np.zeros_like(room)
        np.maximum.at(away, (row, route), np.linalg.norm(there - depot, axis=-1))
        away /= np.maximum(away.max(1, keepdims=True), np.finfo(float).tiny)
        emptiest = np.where(away > 0, room, -1.0).argmax(1)
        away[row[:, 0], emptiest] = -1.0
        return -away
