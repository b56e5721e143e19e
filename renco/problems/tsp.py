"""The traveling salesman problem as a path problem (appendices A and C)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from renco.problems.base import (
    Infeasible,
    Problem,
    Routes,
    as_points,
    check_decisions,
    generators,
    uniform_points,
)
from renco.state import State, span


@dataclass(frozen=True, eq=False)
class TSPState(State):
    """Paths through all open nodes, as short as possible."""

    def features(self) -> Float[Tensor, "batch node 2"]:
        """Returns the coordinates of each node."""
        return self._rows_of(self.xy)

    def feasible(self) -> Bool[Tensor, "1 node"]:
        """Returns true for every open node: all but the first and the last."""
        mask = torch.ones(1, self.node.shape[1], dtype=torch.bool)
        mask[:, 0] = mask[:, -1] = False
        return mask.to(self.node.device)

    def step(self, action: Int[Tensor, " batch"]) -> Self:
        """Moves to the chosen node."""
        order = self._order(action)
        node = self.node.gather(1, order)
        leg = span(self._point(self.node[:, 0]), self._point(node[:, 0]))
        return replace(self, node=node, origin=order, travelled=self.travelled + leg)

    @property
    def cost(self) -> Float[Tensor, " batch"]:
        """The length of the path, the leg to the end included."""
        return self._to_end() * self.side[self.instance]


@dataclass(frozen=True, eq=False, kw_only=True, init=False)
class TSP(Problem):
    """A batch of traveling salesman instances."""

    name: ClassVar[str] = "tsp"

    def __init__(self, coords: Any, **common: Any) -> None:
        """Takes coordinates, `(nodes, 2)` or `(batch, nodes, 2)`."""
        self._set(coords=as_points(coords), **common)

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.coords.shape[1]

    @classmethod
    def random(cls, batch: int, n: int, *, seed: int = 0, first: int = 0) -> Self:
        """Draws points uniformly from the unit square."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        return cls(uniform_points(generators(seed, first, batch), n))

    def start(self, device: torch.device | str | None = None) -> TSPState:
        """Returns s_0: stand at node 0, return to it in the end."""
        order = torch.arange(self.n, device=device).expand(len(self), self.n)
        return self.path(torch.cat([order, order[:, :1]], dim=1))

    def path(self, node: Int[Tensor, "batch node"]) -> TSPState:
        """Returns the path problems over the given nodes, first to last."""
        xy, side = self.frame()
        rows, n = node.shape
        return TSPState(
            node=node,
            origin=torch.arange(n, device=node.device).expand(rows, n),
            instance=torch.arange(rows, device=node.device),
            travelled=torch.zeros(rows, device=node.device),
            xy=torch.from_numpy(xy).to(node.device),
            side=torch.from_numpy(side).to(node.device, torch.float32),
        )

    def replay(self, decisions: Int[Tensor, "batch step"], step: int) -> TSPState:
        """Returns s_step of the decisions, without stepping."""
        check_decisions(decisions, len(self), self.n - 1, step)
        home = decisions.new_zeros(len(self), 1)
        tour = torch.cat([home, decisions, home], dim=1)
        state = self.path(tour[:, step:])
        here, there = state.xy[state.instance[:, None], tour[:, : step + 1]].unbind(-1)
        legs = torch.hypot(here.diff(dim=1), there.diff(dim=1))
        return replace(state, travelled=legs.sum(1))

    def routes(self, decisions: Int[Tensor, "batch step"]) -> list[Routes]:
        """Returns one closed tour per instance, starting at node 0."""
        check_decisions(decisions, len(self), self.n - 1)
        return [[[0, *tour]] for tour in decisions.tolist()]

    def decisions(self, routes: Sequence[Routes]) -> Int[Tensor, "batch step"]:
        """Returns the nodes after node 0 in the order of each tour."""
        self.cost(routes)
        tours = np.array([solution[0] for solution in routes], dtype=np.int64)
        shift = (tours == 0).argmax(1)[:, None] + np.arange(1, self.n)
        return torch.from_numpy(np.take_along_axis(tours, shift % self.n, axis=1))

    def _check(self, index: int, routes: Routes) -> None:
        if len(routes) != 1:
            raise Infeasible(f"a tour is one route, got {len(routes)}")
        self._check_visits(routes, range(self.n))

    def _objective(self, index: int, routes: Routes, length: float) -> float:
        return length

    def _closed(self, route: list[int]) -> list[int]:
        return [*route, *route[:1]]

    def slices(
        self,
        decisions: Int[ndarray, "batch step"],
        nodes: int,
        rng: np.random.Generator,
    ) -> tuple[TSPState, Int[Tensor, "batch label"]]:
        """Cuts a random sub-path of `nodes` nodes out of each expert tour.

        Any node of the tour may come first, in either direction. The whole tour is
        `nodes = n + 1`: its first node comes again at the end.

        Returns:
            The path problems with their nodes in the expert's order, and the
            expert's actions: position 1 at every step.
        """
        if not 3 <= nodes <= self.n + 1:
            raise ValueError(f"a slice has 3..{self.n + 1} nodes, got {nodes}")
        batch = len(self)
        tour = np.concatenate([np.zeros((batch, 1), np.int64), decisions], axis=1)
        sign = rng.integers(0, 2, (batch, 1)) * 2 - 1
        place = rng.integers(0, self.n, (batch, 1)) + sign * np.arange(nodes)
        window = torch.from_numpy(np.take_along_axis(tour, place % self.n, axis=1))
        return self.path(window), torch.ones(batch, nodes - 2, dtype=torch.long)
