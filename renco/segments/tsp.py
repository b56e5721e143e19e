"""Segments of tours: windows whose first and last node stay where they are."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.problems import Routes
from renco.problems.tsp import TSPState
from renco.segments.base import GAIN, Cut, CutSettings, Segments


@dataclass(frozen=True, eq=False, kw_only=True)
class TSPCut(Cut):
    """Windows of tours.

    Attributes:
        place: Positions in the tour of the nodes of each segment.
    """

    place: Int[ndarray, "segment point"]


class TSPSegments(Segments[TSPCut]):
    """Windows of tours, each solved as a path problem between its ends.

    Neighbouring windows share an end node, so a layer can cover every edge.
    """

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
        fitting = n // (size - 1)
        windows, layers = min(count, fitting), max(1, count // fitting)
        groups = batch * layers
        slot = rng.permuted(np.tile(np.arange(fitting), (groups, 1)), axis=1)
        first = rng.integers(0, n, (groups, 1)) + slot[:, :windows] * (size - 1)
        place = (first.reshape(-1, 1) + np.arange(size)) % n
        flip = rng.integers(0, 2, len(place)).astype(bool)
        place[flip] = place[flip, ::-1]
        instance, layer = np.divmod(np.repeat(np.arange(groups), windows), layers)
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
            state=state, instance=instance, layer=layer, node=node, place=place
        )

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
