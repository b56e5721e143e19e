"""The orienteering problem as a path problem (appendices A and C)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from numpy import ndarray
from torch import Tensor

from renco import metrics
from renco.problems.base import (
    TOLERANCE,
    Infeasible,
    Problem,
    Routes,
    as_points,
    generators,
    per_instance,
    per_node,
    uniform_points,
)
from renco.state import State

LIMIT = 4.0  # D of appendix C
SLACK = 1e-12  # of the limit: rounding of a sum must not close an exact fit
LARGEST_PRIZE = 100  # appendix C: 1 + floor(99 d_0i / max_j d_0j)


def margin(metric: str) -> float:
    """Returns what the triangle inequality may be wrong by, see `OPState`."""
    return 1e-9 if metric == "euclidean" else math.inf


@dataclass(frozen=True, eq=False)
class OPState(State):
    """Paths that collect as much prize as the remaining length allows.

    Lengths are float64 distances of the instance's own metric, in units of the
    frame: whether a node can still be reached must not depend on rounding.

    Attributes:
        remaining: Length left; negative once a row has gone home.
        collected: Prize so far.
        prize: Prize of each point of an instance.
        distance: Distances between the points of an instance.
        margin: What the triangle inequality may be wrong by: nothing in the plane,
            anything where distances are rounded or given.
    """

    lengths: ClassVar[tuple[int, ...]] = (3,)
    amounts: ClassVar[tuple[int, ...]] = (2,)
    row_fields: ClassVar[tuple[str, ...]] = (
        *State.row_fields,
        "remaining",
        "collected",
    )

    remaining: Float64[Tensor, " batch"]
    collected: Float64[Tensor, " batch"]
    prize: Float64[Tensor, "instance point"]
    highest: Float64[Tensor, " instance"]
    distance: Float64[Tensor, "instance point point"]
    margin: Float64[Tensor, " instance"]

    def features(self) -> Float[Tensor, "batch node 4"]:
        """Returns coordinates, prize / max prize, and the remaining length."""
        prize = self._rows_of(self.prize) / self.highest[self.instance][:, None]
        remaining = self.remaining[:, None].expand_as(prize)
        xy = self._rows_of(self.xy)
        return torch.cat([xy, torch.stack([prize, remaining], -1).to(xy.dtype)], -1)

    def feasible(self) -> Bool[Tensor, "batch node"]:
        """Returns the nodes from which home can still be reached.

        Home is open only when nothing else is. A row that went home then has this
        one action, with probability one, until all rows are done.
        """
        mask = self._reach <= self.remaining[:, None]
        mask[:, 0] = mask[:, -1] = False
        mask[:, -1] = ~mask.any(dim=1)
        return mask

    def present(self) -> Bool[Tensor, "batch node"]:
        """Returns both ends and the nodes that can still be reached.

        By the triangle inequality what is out of reach stays out of reach.
        """
        length = self.remaining + self.margin[self.instance]
        mask = self._reach <= length[:, None]
        mask[:, 0] = mask[:, -1] = True
        return mask

    def trimmed(self) -> Self:
        """Returns the state without the nodes that no row can reach.

        What a row can reach comes first, in order. Unlike the paper, which keeps all
        unvisited nodes.
        """
        last = self.node.shape[1] - 1
        away = ~self.present()[:, :last]
        count = int((~away).sum(dim=1).max())
        if count == last:
            return self
        order = away.to(torch.int8).argsort(dim=1, stable=True)[:, :count]
        order = torch.cat([order, torch.full_like(order[:, :1], last)], dim=1)
        node, origin = self.node.gather(1, order), self.origin.gather(1, order)
        return replace(self, node=node, origin=origin)

    def place(self) -> Int[Tensor, " batch"]:
        """Returns a number for where each row stands and what it can still reach.

        Rows that have gone home are all in one place, whatever they left out.
        """
        code = self._codes() * self.present()
        code[:, 0] *= 3
        return torch.where(self.remaining < 0, 0, code.sum(1))

    def spent(self) -> Float64[Tensor, "batch 2"]:
        """Returns minus the length that is left, and minus the prize so far."""
        return torch.stack([-self.remaining, -self.collected], dim=-1)

    def step(self, action: Int[Tensor, " batch"]) -> Self:
        """Moves to the chosen node and collects its prize."""
        order = self._order(action)
        node = self.node.gather(1, order)
        leg = self.distance[self.instance, self.node[:, 0], node[:, 0]]
        home = action == self.node.shape[1] - 1
        left = self.remaining - leg
        return replace(
            self,
            node=node,
            origin=order,
            travelled=self.travelled + leg.to(self.travelled.dtype),
            # Below zero even a node at the depot itself is out of reach.
            remaining=torch.where(home, -1.0, left),
            collected=self.collected + self.prize[self.instance, node[:, 0]],
        )

    @property
    def cost(self) -> Float[Tensor, " batch"]:
        """Minus the collected prize."""
        return -self.collected.to(self.travelled.dtype)

    @property
    def done(self) -> bool:
        """Whether every row has gone home, or has nowhere else to go."""
        return super().done or bool((self.remaining < 0).all())

    @cached_property
    def _reach(self) -> Float64[Tensor, "batch node"]:
        """The length of the way home via each node."""
        return self._legs(self.node[:, :1]) + self._legs(self.node[:, -1:])

    def _legs(self, here: Int[Tensor, "batch 1"]) -> Float64[Tensor, "batch node"]:
        """Returns the distance from one node of each row to all of its nodes."""
        return self.distance[self.instance[:, None], here, self.node]


@dataclass(frozen=True, eq=False, kw_only=True, init=False)
class OP(Problem):
    """A batch of orienteering instances; node 0 is the depot.

    Attributes:
        prizes: Prize of each node, zero at the depot.
        limit: D of each instance, in the units of its metric.
    """

    name: ClassVar[str] = "op"
    arrays: ClassVar[tuple[str, ...]] = ("coords", "prizes", "limit")

    prizes: Float64[ndarray, "batch node"]
    limit: Float64[ndarray, " batch"]

    def __init__(self, coords: Any, prizes: Any, limit: Any, **common: Any) -> None:
        """Takes one instance or a batch; `prizes` includes the depot's zero."""
        points = as_points(coords)
        self._set(
            coords=points,
            prizes=per_node("prizes", prizes, points),
            limit=per_instance("limit", limit, points),
            **common,
        )
        self._check_prizes()

    def _check_prizes(self) -> None:
        for i, limit in enumerate(self.limit):
            if limit < 0:
                raise ValueError(f"limit must not be negative, got {limit:g}")
            prizes = self.prizes[i]
            if prizes[0] != 0:
                raise ValueError(f"prize of the depot must be 0, got {prizes[0]:g}")
            if (prizes < 0).any():
                node = int(np.flatnonzero(prizes < 0)[0])
                raise ValueError(f"prize {prizes[node]:g} of node {node} is negative")

    @property
    def n(self) -> int:
        """The number of nodes that can be visited."""
        return self.coords.shape[1] - 1

    @classmethod
    def random(
        cls,
        batch: int,
        n: int,
        *,
        seed: int = 0,
        first: int = 0,
        limit: float = LIMIT,
    ) -> Self:
        """Draws uniform points; the farther from the depot, the higher the prize."""
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        coords = uniform_points(generators(seed, first, batch), n + 1)
        out = np.hypot(*np.moveaxis(coords - coords[:, :1], -1, 0))
        farthest = np.maximum(out.max(axis=1, keepdims=True), np.finfo(float).tiny)
        prizes = 1 + np.floor((LARGEST_PRIZE - 1) * (out / farthest))
        prizes[:, 0] = 0
        return cls(coords, prizes, limit)

    def start(self, device: torch.device | str | None = None) -> OPState:
        """Returns s_0: stand at the depot with the whole length to spend."""
        order = torch.arange(self.n + 1, device=device).expand(len(self), -1)
        return self.path(torch.cat([order, order[:, :1]], dim=1))

    def path(self, node: Int[Tensor, "batch node"]) -> OPState:
        """Returns the path problems over the given nodes, nothing spent yet."""
        xy, side = self.frame()
        rows, n = node.shape
        device = node.device
        distance = self.distances() / side[:, None, None]
        return OPState(
            node=node,
            origin=torch.arange(n, device=device).expand(rows, n),
            instance=torch.arange(rows, device=device),
            travelled=torch.zeros(rows, device=device),
            xy=torch.from_numpy(xy).to(device),
            side=torch.from_numpy(side).to(device, torch.float32),
            remaining=torch.from_numpy(self.limit * (1 + SLACK) / side).to(device),
            collected=torch.zeros(rows, dtype=torch.float64, device=device),
            prize=torch.tensor(self.prizes, device=device),
            highest=torch.from_numpy(
                np.maximum(self.prizes.max(1), np.finfo(float).tiny)
            ).to(device),
            distance=torch.from_numpy(distance).to(device),
            margin=torch.full(
                (rows,), margin(self.metric), dtype=torch.float64, device=device
            ),
        )

    def distances(self) -> Float64[ndarray, "batch node node"]:
        """Returns all distances of each instance in its metric."""
        if self.matrix is not None:
            return self.matrix[None]
        a, b = self.coords[:, :, None], self.coords[:, None]
        return metrics.distance(self.metric, a, b)

    def replay(self, decisions: Int[Tensor, "batch step"], step: int) -> OPState:
        """Returns s_step of the decisions, without stepping.

        Nodes that the decisions never visit follow those they do.
        """
        if len(decisions) != len(self) or not 0 <= step <= decisions.shape[1]:
            raise ValueError(
                f"decisions of {len(self)} instances with a step {step}: "
                f"got shape {tuple(decisions.shape)}"
            )
        rows, device = len(self), decisions.device
        home = decisions.new_zeros(len(self), 1)
        visited = torch.zeros(rows, self.n + 1, dtype=torch.bool, device=device)
        visited = visited.scatter(1, decisions, True).index_fill(
            1, torch.zeros(1, dtype=torch.long, device=device), True
        )
        # A stable sort brings the unvisited ids to the front, in order.
        others = visited.to(torch.int8).argsort(dim=1, stable=True)
        node = torch.cat([decisions, others], dim=1)
        # Rows that went home early are filled up with zeros: those are no open nodes.
        node = node.gather(1, (node == 0).to(torch.int8).argsort(dim=1, stable=True))
        node = torch.cat([home, node[:, : self.n]], dim=1)[:, step:]
        past = torch.cat([home, decisions[:, :step]], dim=1)
        finished = (past[:, 1:] == 0).any(dim=1)
        node[:, 0] = torch.where(finished, 0, node[:, 0])
        state = self.path(torch.cat([node, home], dim=1))
        legs = state.distance[state.instance[:, None], past[:, :-1], past[:, 1:]]
        left = state.remaining - legs.sum(1)
        return replace(
            state,
            travelled=legs.sum(1).to(state.travelled.dtype),
            remaining=torch.where(finished, -1.0, left),
            collected=state.prize[state.instance[:, None], past].sum(1),
        )

    def routes(self, decisions: Int[Tensor, "batch step"]) -> list[Routes]:
        """Returns the nodes visited before going home."""
        if len(decisions) != len(self):
            raise ValueError(
                f"decisions of {len(decisions)} rows for {len(self)} instances"
            )
        return [[[node for node in row if node != 0]] for row in decisions.tolist()]

    def decisions(self, routes: Sequence[Routes]) -> Int[Tensor, "batch step"]:
        """Returns the visited nodes, filled up with zeros: gone home."""
        self.cost(routes)
        rows = [torch.tensor(solution[0], dtype=torch.long) for solution in routes]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def _check(self, index: int, routes: Routes) -> None:
        if len(routes) != 1:
            raise Infeasible(f"an orienteering tour is one route, got {len(routes)}")
        self._check_visits(routes, range(1, self.n + 1), all_required=False)
        length, limit = self._length(index, routes), float(self.limit[index])
        if length > limit * (1 + TOLERANCE):
            raise Infeasible(f"the tour is {length:.12g} long, the limit is {limit:g}")

    def _objective(self, index: int, routes: Routes, length: float) -> float:
        return -math.fsum(self.prizes[index, node] for node in routes[0])

    def _closed(self, route: list[int]) -> list[int]:
        return [0, *route, 0]

    def slices(
        self,
        decisions: Int[ndarray, "batch step"],
        nodes: int,
        rng: np.random.Generator,
    ) -> tuple[State, Int[Tensor, "batch label"]]:
        """Cuts a sub-path that leaves `nodes` nodes open out of each expert tour.

        All tours must be of one length: the decision to go home is never a label,
        it follows from the mask. Either the way home from some node, as it is met
        when a tour is built, or the way between any two nodes of it; in both
        directions. The length that the tour does not use stays to spend, so the
        expert's sub-path is as good as its tour: a better one would mend both.

        Returns:
            The path problems, and the expert's actions: position 1 at every step.
        """
        batch, steps = decisions.shape
        first = self.n + 2 - nodes
        if not 0 <= first < steps:
            raise ValueError(f"tours of {steps} nodes have no state of {nodes} nodes")
        reverse = rng.integers(0, 2, (batch, 1)).astype(bool)
        tours = np.where(reverse, decisions[:, ::-1], decisions).astype(np.int64)
        home = np.zeros((batch, 1), np.int64)
        closed = np.concatenate([home, tours, home], axis=1)
        anywhere = rng.integers(0, first, batch, endpoint=True)
        begin = np.where(rng.integers(0, 2, batch).astype(bool), first, anywhere)
        place = begin[:, None] + np.arange(steps - first + 2)
        window = np.take_along_axis(closed, place, axis=1)
        visited = np.zeros((batch, self.n + 1), bool)
        np.put_along_axis(visited, closed, True, axis=1)
        others = visited.argsort(axis=1, kind="stable")[:, : self.n - steps]
        node = np.concatenate([window[:, :-1], others, window[:, -1:]], axis=1)
        state = self.path(torch.from_numpy(node))
        used = path_lengths(state, closed) - path_lengths(state, window)
        actions = torch.ones(batch, steps - first, dtype=torch.long)
        return replace(state, remaining=state.remaining - used), actions


def path_lengths(
    state: OPState, path: Int[ndarray, "batch step"]
) -> Float64[Tensor, " batch"]:
    """Returns the length of a path of each row."""
    node = torch.from_numpy(path)
    row = state.instance[:, None]
    return state.distance[row, node[:, :-1], node[:, 1:]].sum(1)
