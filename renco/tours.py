"""Local search on closed tours: 2-opt and Or-opt between near nodes, and kicks.

What `renco.local` does for short routes, for tours of any size: a move is looked for
only where one of its new legs joins a node to one of its nearest, and only at nodes
whose legs have changed since they were last looked at.
"""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from renco.local import LEAST, LONGEST_SEGMENT, Hurry, Matrix, at_leisure

SMALLEST = 2 * (LONGEST_SEGMENT + 2)
"""Nodes of the smallest tour that `Tour` takes."""
NEAR = 8
"""Nearest nodes of each node that moves may join it to."""
SPAN = 100
"""Nodes of the stretch of a tour that a kick changes."""

Nodes = Int64[ndarray, " node"]


class Move(NamedTuple):
    """A kind of move at a node a that makes it a neighbour of a near node c.

    Attributes:
        side: Whether the leg of c to the next (1) or previous (-1) node is given up.
        ahead: Or-opt: where the segment lies, seen from its end a.
        size: Or-opt: nodes of the segment; 2-opt: 0, the tour is turned round
            between the legs of a and c on the same side.
    """

    side: int
    ahead: int = 0
    size: int = 0


_SIDES = np.array([1, -1])
_SIZES = np.arange(1, LONGEST_SEGMENT + 1)[:, None]
MOVES = (
    *(Move(side) for side in (1, -1)),
    *itertools.starmap(
        lambda ahead, size, side: Move(side, ahead, size),
        itertools.product((1, -1), range(1, LONGEST_SEGMENT + 1), (1, -1)),
    ),
)
"""All kinds of moves."""


class Around(NamedTuple):
    """The nearest nodes of each node, and how far they are."""

    node: Int64[ndarray, "node near"]
    distance: Float64[ndarray, "node near"]


def nearest(matrix: Matrix, count: int = NEAR) -> Around:
    """Returns the nearest other nodes of each node."""
    away = matrix.copy()
    np.fill_diagonal(away, np.inf)
    count = min(count, len(matrix) - 1)
    node = np.argpartition(away, count - 1, axis=1)[:, :count]
    return Around(node, np.take_along_axis(matrix, node, axis=1))


class Tour:
    """A closed tour and where each node stands in it."""

    def __init__(self, order: Nodes, matrix: Matrix, around: Around) -> None:
        """Takes all nodes in their order.

        Raises:
            ValueError: There are fewer than `SMALLEST` nodes.
        """
        if len(order) < SMALLEST:
            raise ValueError(
                f"a tour of {len(order)} nodes, at least {SMALLEST} needed"
            )
        self.order, self.matrix, self.around = order.copy(), matrix, around
        self.place = np.empty_like(self.order)
        self._number()

    @property
    def length(self) -> float:
        """The length of all legs."""
        return float(self.matrix[self.order, np.roll(self.order, -1)].sum())

    def copy(self) -> "Tour":
        """Returns a tour that can be changed alone."""
        return Tour(self.order, self.matrix, self.around)

    def shorten(self, active: Nodes | None = None, hurry: Hurry = at_leisure) -> None:
        """Applies the best move until none at an active node shortens the tour.

        Args:
            active: Nodes to look at first; None for all, and for all again in the
                end. Those at the ends of changed legs become active.
            hurry: Asked between moves.
        """
        everyone = np.arange(len(self.order))
        everywhere = active is None
        if active is None:
            active = everyone
        least = -LEAST * self.length
        while len(active) and not hurry():
            change = self._changes(active)
            gains = change.min(axis=(0, 2)) < least
            if not gains.any():
                if not everywhere or len(active) == len(everyone):
                    return
                # A segment may fit into a leg that has changed far away from it.
                active = everyone
                continue
            kind, row, near = np.unravel_index(change.argmin(), change.shape)
            a = int(active[row])
            touched = self._apply(MOVES[kind], a, int(self.around.node[a, near]))
            active = np.union1d(active[gains], touched)

    def kick(self, rng: np.random.Generator) -> Nodes:
        """Swaps two neighbouring parts of a short stretch (a local double bridge).

        Neither 2-opt nor Or-opt undoes this in one move, unless a part is short.

        Returns:
            The nodes at the ends of changed legs.
        """
        n = len(self.order)
        a, b, c = np.sort(rng.choice(min(SPAN, n - 2), 3, replace=False)) + 1
        # The stretch begins at place 0: which node that is does not matter.
        order = np.roll(self.order, -rng.integers(n))
        self.order = np.concatenate([order[:a], order[b:c], order[a:b], order[c:]])
        self._number()
        return order[[a - 1, a, b - 1, b, c - 1, c]]

    def _number(self) -> None:
        self.place[self.order] = np.arange(len(self.order))

    def _at(self, place: ndarray) -> ndarray:
        return self.order[place % len(self.order)]

    def _changes(self, active: Nodes) -> Float64[ndarray, "move active near"]:
        """Returns what each of `MOVES` would change, at each node to each near one."""
        n, legs, at = len(self.order), self.matrix, self.place[active]
        near, close = self.around.node[active], self.around.distance[active]
        to = self.place[near]
        there = self._at(to + _SIDES[:, None, None])
        opened = close - legs[near, there]
        beside = self._at(at + _SIDES[:, None])
        reversal = opened + legs[beside[..., None], there]
        reversal -= legs[active, beside][..., None]
        # From here on: direction of the segment, its size, side of c, a, c.
        before = self._at(at - _SIDES[:, None])[:, None]
        far = self._at(at + _SIDES[:, None, None] * (_SIZES - 1))
        after = self._at(at + _SIDES[:, None, None] * _SIZES)
        freed = legs[before, after] - legs[before, active] - legs[far, after]
        transfer = freed[:, :, None, :, None] + opened
        transfer += legs[far[:, :, None, :, None], there]
        # Neither end of the gap may be in the segment itself.
        steps = (to - at[:, None]) * _SIDES[:, None, None]
        beyond = steps[:, None] + np.multiply.outer(_SIDES, _SIDES)[..., None, None]
        inside = np.minimum(steps[:, None] % n, beyond % n)
        transfer[inside[:, None] < _SIZES[:, None, :, None]] = np.inf
        return np.concatenate([reversal, transfer.reshape(-1, *near.shape)])

    def _apply(self, move: Move, a: int, c: int) -> Nodes:
        """Changes the tour and returns the ends of all changed legs."""
        n, at, to = len(self.order), int(self.place[a]), int(self.place[c])
        there = int(self.order[(to + move.side) % n])
        if move.size == 0:
            beside = int(self.order[(at + move.side) % n])
            first, last = (at + 1, to) if move.side == 1 else (at, to - 1)
            count = (last - first) % n + 1
            if 2 * count > n:  # the rest the other way round is the same tour
                first, count = last + 1, n - count
            places = (first + np.arange(count)) % n
            self.order[places] = self.order[places[::-1]]
            self.place[self.order[places]] = places
            return np.array([a, beside, c, there])
        places = (at + move.ahead * np.arange(move.size)) % n
        segment = self.order[places]
        outside = self._at(np.array([at - move.ahead, at + move.ahead * move.size]))
        rest = np.delete(self.order, places)
        gap = int(np.flatnonzero(rest == c)[0]) + (move.side == 1)
        self.order = np.insert(rest, gap, segment[:: move.side])
        self._number()
        return np.array([a, int(segment[-1]), *outside.tolist(), c, there])
