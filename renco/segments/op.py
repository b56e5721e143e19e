"""Segments of orienteering tours: stretches with the length they may use."""

import math
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy import ndarray

from renco.local import Hurry, improve
from renco.outing import Outing, Park
from renco.problems import OP, Routes
from renco.problems.op import SLACK, OPState, margin
from renco.segments.base import GAIN, Cut, CutSettings, Segments

HOT, COLD = 3.0, 0.01
"""Usual prizes that kicks let go at once, at first and last."""
EQUAL_PRIZE = 1e-100
"""Weight of a shorter tour with equal prize: less than any prize counts."""


@dataclass(frozen=True)
class Stretch:
    """The part of a tour between two of its nodes.

    Attributes:
        instance: The instance.
        path: The closed tour, in the direction of the cut.
        first: Position in the path of the node where the stretch starts.
        last: Position of the node where it ends.
    """

    instance: int
    path: list[int]
    first: int
    last: int

    @property
    def inside(self) -> list[int]:
        """The nodes between the ends."""
        return self.path[self.first + 1 : self.last]


@dataclass(frozen=True, eq=False, kw_only=True)
class OPCut(Cut):
    """Stretches of tours, and unvisited nodes near them."""

    stretches: list[Stretch]


class OPSegments(Segments[OPCut]):
    """Stretches of tours, solved with all length and prizes that they set free.

    The paper has no such search. Stretches of one instance compete for the same
    length and the same nodes, so only the best of an iteration is pasted.
    """

    problem: OP

    def __init__(self, problem: OP, routes: list[Routes], device: torch.device) -> None:
        """Takes one feasible solution per instance."""
        super().__init__(problem, routes, device)
        self._parks: dict[int, Park] = {}

    def sample_subproblem(
        self, count: int, settings: CutSettings, rng: np.random.Generator
    ) -> OPCut | None:
        """Cuts random stretches; up to `n_sub` nodes are open, the nearest first."""
        problem = self.problem
        if problem.n < 1:
            return None
        drawn = [
            self._stretch(index, settings, rng)
            for index in range(len(problem))
            for _ in range(count)
        ]
        unused = [problem.n + 2 - len(stretch.path) for stretch in drawn]
        inside = [len(stretch.inside) for stretch in drawn]
        open_nodes = np.add(unused, inside)
        size = min(settings.n_sub, max(*inside, int(open_nodes.min()), 1))
        stretches = [drawn[i] for i in np.flatnonzero(open_nodes >= size)]
        node = np.array([self._nodes(stretch, size) for stretch in stretches])
        instance = np.array([stretch.instance for stretch in stretches])
        return OPCut(
            state=self._state(stretches, instance, node, rng),
            instance=instance,
            node=node,
            stretches=stretches,
        )

    def _stretch(
        self, index: int, settings: CutSettings, rng: np.random.Generator
    ) -> Stretch:
        tour = self._solutions[index][0][:: rng.choice([-1, 1])]
        # Half of the open nodes may be new.
        longest = min(len(tour), max(1, settings.n_sub // 2))
        inside = int(rng.integers(min(1, longest), longest, endpoint=True))
        first = len(tour) - inside
        if settings.inner and rng.random() < 0.5:
            first = int(rng.integers(0, first, endpoint=True))
        return Stretch(index, [0, *tour, 0], first, first + inside + 1)

    def _nodes(self, stretch: Stretch, size: int) -> list[int]:
        """Returns the ends of a stretch and `size` open nodes between them."""
        path, first, last = stretch.path, stretch.first, stretch.last
        unused = np.setdiff1d(np.arange(self.problem.n + 1), path)
        wanted = size - len(stretch.inside)
        if wanted < len(unused):
            around = np.array(path[first : last + 1])
            legs = self.problem.legs(
                stretch.instance, *np.broadcast_arrays(unused[:, None], around)
            )
            detour = legs[:, 0] + legs[:, -1]
            reachable = detour <= self._length_left(stretch)
            nearest = np.lexsort((legs.min(axis=1), ~reachable))
            unused = unused[nearest[:wanted]]
        return [path[first], *stretch.inside, *unused.tolist(), path[last]]

    def _length_left(self, stretch: Stretch) -> float:
        """Returns the length that the rest of the tour leaves to a stretch."""
        path, first, last = np.array(stretch.path), stretch.first, stretch.last
        legs = self.problem.legs(stretch.instance, path[:-1], path[1:])
        limit = float(self.problem.limit[stretch.instance]) * (1 + SLACK)
        return limit - math.fsum([*legs[:first], *legs[last:]])

    def _state(
        self,
        stretches: list[Stretch],
        instance: Int[ndarray, " segment"],
        node: Int[ndarray, "segment point"],
        rng: np.random.Generator,
    ) -> OPState:
        problem, rows = self.problem, len(stretches)
        xy, side = self._framed(instance, node, rng)
        a, b = np.broadcast_arrays(node[:, :, None], node[:, None])
        flat = (rows, -1)
        legs = self._legs(instance, a.reshape(flat), b.reshape(flat)).reshape(a.shape)
        left = np.array([self._length_left(stretch) for stretch in stretches])
        prize = problem.prizes[instance[:, None], node]
        prize[:, -1] = 0.0  # the rest of the tour has it already
        highest = np.maximum(problem.prizes.max(axis=1), np.finfo(float).tiny)
        return OPState(
            node=self._order(*node.shape),
            origin=self._order(*node.shape),
            instance=torch.arange(rows, device=self.device),
            travelled=torch.zeros(rows, device=self.device),
            xy=self._tensor(xy),
            side=self._tensor(side.astype(np.float32)),
            remaining=self._tensor(left / side),
            collected=torch.zeros(rows, dtype=torch.float64, device=self.device),
            prize=self._tensor(prize),
            highest=self._tensor(highest[instance]),
            distance=self._tensor(legs / side[:, None, None]),
            margin=self._tensor(np.full(rows, margin(problem.metric))),
        )

    def _gains(
        self, cut: OPCut, decisions: Int[ndarray, "segment step"]
    ) -> Float64[ndarray, " segment"]:
        """Returns the gain in prize; at equal prize, a trace of that in length."""
        gains = np.zeros(len(cut))
        for row, stretch in enumerate(cut.stretches):
            single = self._single[stretch.instance]
            old, new = [stretch.path[1:-1]], self._pasted(cut, decisions, [row])
            prizes = self.problem.prizes[stretch.instance]
            more = math.fsum(prizes[new[0]]) - math.fsum(prizes[old[0]])
            before, after = single.length([old])[0], single.length([new])[0]
            if more > 0:
                gains[row] = more
            elif more == 0 and before - after > GAIN * before:
                gains[row] = EQUAL_PRIZE * (before - after) / before
        return gains

    def _claims(self, cut: OPCut, row: int) -> set[int]:
        return {0}  # all segments of a tour share its limit

    def _pasted(
        self, cut: OPCut, decisions: Int[ndarray, "segment step"], rows: list[int]
    ) -> Routes:
        (row,) = rows
        stretch, home = cut.stretches[row], cut.node.shape[1] - 1
        chosen = decisions[row]
        inside = cut.node[row, chosen[chosen != home]].tolist()
        path = stretch.path
        tour = [*path[1 : stretch.first + 1], *inside, *path[stretch.last : -1]]
        return [tour]

    def _polished(self, index: int, hurry: Hurry) -> Routes:
        (tour,), matrix = self._solutions[index], self._matrix(index)
        limit, prizes = float(self.problem.limit[index]), self.problem.prizes[index]
        return [improve(tour, matrix, prizes, limit, hurry=hurry)]

    def offer(self, index: int, routes: Routes) -> None:
        """Takes a whole tour if it has more prize, or as much on less length."""
        single = self._single[index]
        new, old = [routes], [self._solutions[index]]
        found = (single.cost(new)[0], single.length(new)[0])
        if found < (self.cost[index], single.length(old)[0]):
            self._commit(index, routes, found[0])

    def _kicked(
        self,
        index: int,
        times: int,
        left: float,
        rng: np.random.Generator,
        hurry: Hurry,
    ) -> Routes | None:
        prizes = self.problem.prizes[index]
        if not prizes.any():
            return None
        outing = self._annealer(index, rng, partial(self._outing, index))
        usual = float(prizes[prizes > 0].mean())
        outing.anneal(times, usual * HOT**left * COLD ** (1 - left), hurry)
        return outing.routes

    def _outing(self, index: int, routes: Routes, rng: Random) -> Outing:
        if index not in self._parks:
            problem = self.problem
            prizes, limit = problem.prizes[index], float(problem.limit[index])
            self._parks[index] = Park.of(self._matrix(index), prizes, limit)
        return Outing(routes[0], self._parks[index], rng)
