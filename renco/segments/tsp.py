"""Segments of tours: windows whose first and last node stay where they are."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.local import Hurry, shorten
from renco.problems import Problem, Routes
from renco.problems.tsp import TSPState
from renco.segments.base import GAIN, Cut, CutSettings, Segments
from renco.tours import SMALLEST, Around, Tour, nearest


@dataclass(frozen=True, eq=False, kw_only=True)
class TSPCut(Cut):
    """Windows of tours.

    Attributes:
        place: Positions in the tour of the nodes of each segment.
        first: Position where each segment starts, in the direction of the tour.
    """

    place: Int[ndarray, "segment point"]
    first: Int[ndarray, " segment"]


class TSPSegments(Segments[TSPCut]):
    """Windows of tours, each solved as a path problem between its ends.

    Neighbouring windows share an end node, so together they can cover every edge.
    """

    def __init__(
        self, problem: Problem, routes: list[Routes], device: torch.device
    ) -> None:
        """Takes one tour per instance."""
        super().__init__(problem, routes, device)
        self._around: dict[int, Around] = {}

    def sample_subproblem(
        self, count: int, settings: CutSettings, rng: np.random.Generator
    ) -> TSPCut | None:
        """Cuts windows of `n_sub` nodes at random offsets, in random directions.

        A tour with fewer nodes is cut open at a random node, which then is both
        start and destination.
        """
        batch, n = len(self.problem), self.problem.n
        if n < 4:  # there is only one tour
            return None
        size = min(settings.n_sub, n + 1)
        first = self._offsets(count, size - 1, rng)
        instance = np.repeat(np.arange(batch), count)
        place = (first[:, None] + np.arange(size)) % n
        flip = rng.integers(0, 2, len(place)).astype(bool)
        place[flip] = place[flip, ::-1]
        tours = np.array([tour for (tour,) in self._solutions])
        node = tours[instance[:, None], place]
        xy, side = self._framed(instance, node, rng)
        state = TSPState(
            node=self._order(*place.shape),
            origin=self._order(*place.shape),
            instance=torch.arange(len(place), device=self.device),
            travelled=torch.zeros(len(place), device=self.device),
            xy=self._tensor(xy),
            side=self._tensor(side.astype(np.float32)),
        )
        return TSPCut(
            state=state, instance=instance, node=node, place=place, first=first
        )

    def _offsets(
        self, count: int, edges: int, rng: np.random.Generator
    ) -> Int[ndarray, " segment"]:
        """Draws where windows of so many edges start, `count` for each instance.

        As many as fit are disjoint: slots of a grid with a random origin. Then
        comes another grid.
        """
        batch, n = len(self.problem), self.problem.n
        fitting = n // edges
        grids = -(-count // fitting)
        shape = (batch, grids, fitting)
        slot = rng.permuted(np.broadcast_to(np.arange(fitting), shape), axis=2)
        origin = rng.integers(0, n, (batch, grids, 1))
        return ((origin + slot * edges) % n).reshape(batch, -1)[:, :count].reshape(-1)

    def _claims(self, cut: TSPCut, row: int) -> set[int]:
        edges = cut.first[row] + np.arange(cut.place.shape[1] - 1)
        return set((edges % self.problem.n).tolist())

    def _gains(
        self, cut: TSPCut, decisions: Int[ndarray, "segment step"]
    ) -> Float64[ndarray, " segment"]:
        new = self._renewed(cut, decisions)
        before = self._legs(cut.instance, cut.node[:, :-1], cut.node[:, 1:]).sum(1)
        after = self._legs(cut.instance, new[:, :-1], new[:, 1:]).sum(1)
        gain = before - after
        return np.where(gain > GAIN * before, gain, 0.0)

    def _renewed(
        self, cut: TSPCut, decisions: Int[ndarray, "segment step"]
    ) -> Int[ndarray, "segment point"]:
        """Returns the nodes of each segment in their new order."""
        inside = np.take_along_axis(cut.node, decisions, axis=1)
        return np.concatenate([cut.node[:, :1], inside, cut.node[:, -1:]], axis=1)

    def _pasted(
        self, cut: TSPCut, decisions: Int[ndarray, "segment step"], rows: list[int]
    ) -> Routes:
        tour = np.array(self._solutions[cut.instance[rows[0]]][0])
        tour[cut.place[rows]] = self._renewed(cut, decisions)[rows]
        return [tour.tolist()]

    def _polished(self, index: int, hurry: Hurry) -> Routes:
        if self.problem.n < SMALLEST:
            (order,) = self._solutions[index]
            first = order.index(0)
            rest = [*order[first + 1 :], *order[:first]]
            return [[0, *shorten(rest, self._matrix(index), hurry=hurry)]]
        tour = self._tour(index)
        tour.shorten(hurry=hurry)
        return [tour.order.tolist()]

    def _kicked(
        self,
        index: int,
        times: int,
        left: float,
        rng: np.random.Generator,
        hurry: Hurry,
    ) -> Routes | None:
        if self.problem.n < SMALLEST:
            return None
        best = self._tour(index)
        length = start = best.length
        for _ in range(times):
            if hurry():
                break
            tour = best.copy()
            tour.shorten(tour.kick(rng))
            if tour.length < (1 - GAIN) * length:
                best, length = tour, tour.length
        return [best.order.tolist()] if length < start else None

    def _tour(self, index: int) -> Tour:
        matrix = self._matrix(index)
        if index not in self._around:
            self._around[index] = nearest(matrix)
        (order,) = self._solutions[index]
        return Tour(np.array(order), matrix, self._around[index])
