"""Segments of routes: they end at the depot and may start inside a route."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.fleet import Fleet, Map
from renco.local import Hurry, exchange, shorten
from renco.problems import CVRP, Routes
from renco.problems.cvrp import CVRPState
from renco.segments.base import GAIN, Cut, CutSettings, RouteChoice, Segments

HOT, COLD = 1.0, 0.01
"""Legs of usual length by which kicks make a solution longer, at first and last."""


@dataclass(frozen=True)
class Window:
    """Some routes of a solution, all open but the head of one of them.

    Attributes:
        routes: Positions in the solution of the routes.
        head: Customers of the cut route that stay; empty if none is cut.
        open: The other customers, in their current order.
        via: Which of these are now visited via the depot.
    """

    routes: list[int]
    head: list[int]
    open: list[int]
    via: list[int]


@dataclass(frozen=True, eq=False, kw_only=True)
class CVRPCut(Cut):
    """Windows of solutions; points are where we stand, the open ones, the depot."""

    windows: list[Window]


class CVRPSegments(Segments[CVRPCut]):
    """Parts of solutions, each solved from where the kept route ends to the depot.

    Unlike the paper, which cuts one segment of a random sequence of routes, several
    disjoint segments are cut at once, and of routes that are neighbours.
    """

    problem: CVRP

    def __init__(
        self, problem: CVRP, routes: list[Routes], device: torch.device
    ) -> None:
        """Takes one feasible solution per instance."""
        super().__init__(problem, routes, device)
        self._maps: dict[int, Map] = {}

    def sample_subproblem(
        self, count: int, settings: CutSettings, rng: np.random.Generator
    ) -> CVRPCut | None:
        """Cuts segments of exactly `n_sub` customers, or all there are."""
        problem, size = self.problem, min(settings.n_sub, self.problem.n)
        if size < 2:
            return None
        windows, instances = [], []
        for index in range(len(problem)):
            cut = list(self._windows(index, count, size, settings.order, rng))
            windows += cut
            instances += [index] * len(cut)
        instance = np.array(instances)
        here = [[window.head[-1] if window.head else 0] for window in windows]
        opened = [window.open for window in windows]
        node = np.concatenate([here, opened, np.zeros_like(here)], axis=1)
        xy, side = self._framed(instance, node, rng)
        load = np.array(
            [
                problem.demands[i, w.head].sum()
                for i, w in zip(instances, windows, strict=True)
            ]
        )
        order = self._order(*node.shape).clone()
        # At the depot, start and destination must be one node to the state.
        order[self._tensor(node[:, 0] == 0), 0] = size + 1
        state = CVRPState(
            node=order,
            origin=self._order(*node.shape),
            instance=torch.arange(len(node), device=self.device),
            travelled=torch.zeros(len(node), device=self.device),
            xy=self._tensor(xy),
            side=self._tensor(side.astype(np.float32)),
            room=self._tensor(problem.capacity[instance] - load),
            demand=self._tensor(problem.demands[instance[:, None], node]),
            capacity=self._tensor(problem.capacity[instance]),
        )
        return CVRPCut(state=state, instance=instance, node=node, windows=windows)

    def _windows(
        self,
        index: int,
        count: int,
        size: int,
        order: RouteChoice,
        rng: np.random.Generator,
    ) -> Iterator[Window]:
        """Draws windows, disjoint until too few customers are left for another."""
        routes = self._solutions[index]
        free = np.arange(len(routes))
        customers = np.array([len(route) for route in routes])
        for _ in range(count):
            if customers[free].sum() < size:
                free = np.arange(len(routes))
            arranged = self._arranged(index, free, order, rng)
            total = customers[arranged].cumsum()
            taken = int((total < size).sum()) + 1
            *whole, last = arranged[:taken].tolist()
            cut = routes[last][:: rng.choice([-1, 1])]
            kept = int(total[taken - 1]) - size
            parts = [cut[kept:], *(routes[i] for i in whole)]
            yield Window(
                routes=[*whole, last],
                head=cut[:kept],
                open=[node for part in parts for node in part],
                via=[
                    int(number > 0 and place == 0)
                    for number, part in enumerate(parts)
                    for place in range(len(part))
                ],
            )
            free = np.setdiff1d(free, arranged[:taken])

    def _arranged(
        self,
        index: int,
        free: Int[ndarray, " route"],
        order: RouteChoice,
        rng: np.random.Generator,
    ) -> Int[ndarray, " route"]:
        """Returns the free routes at random, or by distance to a random customer."""
        free = rng.permutation(free)
        if order == "random":
            return free
        routes = [self._solutions[index][i] for i in free]
        nodes: ndarray = np.concatenate(routes)
        points = self._points[index]
        offsets = points[nodes] - points[rng.choice(nodes)]
        starts = np.cumsum([0, *(len(route) for route in routes[:-1])])
        nearest = np.minimum.reduceat((offsets**2).sum(axis=1), starts)
        return free[np.argsort(nearest, kind="stable")]

    def _gains(
        self, cut: CVRPCut, decisions: Int[ndarray, "segment step"]
    ) -> Float64[ndarray, " segment"]:
        old = np.array([window.via for window in cut.windows])
        before = self._lengths(cut.instance, cut.node[:, :-1], old)
        customer, via = np.divmod(decisions, 2)
        new = np.take_along_axis(cut.node, customer, axis=1)
        new = np.concatenate([cut.node[:, :1], new], axis=1)
        gain = before - self._lengths(cut.instance, new, via)
        return np.where(gain > GAIN * before, gain, 0.0)

    def _lengths(
        self,
        instance: Int[ndarray, " segment"],
        node: Int[ndarray, "segment stop"],
        via: Int[ndarray, "segment leg"],
    ) -> Float64[ndarray, " segment"]:
        """Returns the lengths from the first of the nodes to the depot."""
        direct = self._legs(instance, node[:, :-1], node[:, 1:])
        home = self._legs(instance, node, np.zeros_like(node))
        legs = np.where(via, home[:, :-1] + home[:, 1:], direct)
        return np.asarray(legs.sum(axis=1) + home[:, -1])

    def _claims(self, cut: CVRPCut, row: int) -> set[int]:
        return set(cut.windows[row].routes)

    def _pasted(
        self, cut: CVRPCut, decisions: Int[ndarray, "segment step"], rows: list[int]
    ) -> Routes:
        routes = self._solutions[cut.instance[rows[0]]]
        replaced = {i for row in rows for i in cut.windows[row].routes}
        kept = [route for i, route in enumerate(routes) if i not in replaced]
        for row in rows:
            new = [list(cut.windows[row].head)]
            for decision in decisions[row].tolist():
                customer, via = divmod(decision, 2)
                if via:
                    new.append([])
                new[-1].append(int(cut.node[row, customer]))
            kept += new
        return kept

    def _polished(self, index: int, hurry: Hurry) -> Routes:
        problem, routes = self.problem, self._solutions[index]
        matrix, demands = self._matrix(index), problem.demands[index]
        capacity = float(problem.capacity[index])
        while not hurry() and problem.n:
            routes = [shorten(route, matrix, hurry=hurry) for route in routes]
            better = exchange(routes, matrix, demands, capacity, hurry)
            if better == routes:
                break
            routes = better
        return routes

    def _kicked(
        self,
        index: int,
        times: int,
        left: float,
        rng: np.random.Generator,
        hurry: Hurry,
    ) -> Routes | None:
        if self.problem.n < 2:
            return None
        fleet = self._annealer(index, rng, partial(self._fleet, index))
        gained = fleet.gained
        stops = self.problem.n + len(self._solutions[index])
        leg = float(self.cost[index]) / stops
        fleet.anneal(times, leg * HOT**left * COLD ** (1 - left), hurry)
        return fleet.routes if fleet.gained > gained else None

    def _fleet(self, index: int, routes: Routes, rng: Random) -> Fleet:
        if index not in self._maps:
            problem = self.problem
            demands, capacity = problem.demands[index], float(problem.capacity[index])
            self._maps[index] = Map.of(self._matrix(index), demands, capacity)
        return Fleet(routes, self._maps[index], rng)
