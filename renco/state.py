"""A batch of path problems: the one interface that search and model see.

Section 3.1 of the paper: every state of a construction is itself a path problem,
from where we stand to where we must end. One type is therefore the start of an
instance, every later step, a suffix of an expert's solution, and a segment that the
large neighborhood search cuts out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def span(a: Float[Tensor, "batch 2"], b: Float[Tensor, "batch 2"]) -> Tensor:
    """Returns the Euclidean distance between points of the frame."""
    return torch.linalg.vector_norm(a - b, dim=-1)


@lru_cache(maxsize=8)
def _codes(points: int, device: torch.device) -> Int[Tensor, " point"]:
    """Returns a random number for each point, always the same."""
    rng = torch.Generator().manual_seed(0)
    return torch.randint(-(2**63), 2**63 - 1, (points,), generator=rng).to(device)


@dataclass(frozen=True, eq=False)
class State(ABC):
    """A batch of path problems of equal size: stand at node 0, end at node -1.

    Per-node data never move: `node` indexes tables that all rows of an instance
    share, so a step reorders one index and beams copy no coordinates.

    Attributes:
        node: Id of each node in its instance.
        origin: Position of each node in the previous state; the realignment of
            h_{t-1} into h~_t is exactly this index. The identity at a start.
        instance: Row of the tables that each row of the batch belongs to.
        travelled: Length so far, in units of the frame.
    """

    choices: ClassVar[int] = 1
    """Actions per node: action = position * choices + choice."""

    lengths: ClassVar[tuple[int, ...]] = ()
    """Which features are lengths, in the unit of the coordinates."""
    amounts: ClassVar[tuple[int, ...]] = ()
    """Which features are what a node has an amount of, to be fetched or brought."""

    row_fields: ClassVar[tuple[str, ...]] = (
        "node",
        "origin",
        "instance",
        "travelled",
    )
    """Fields with one entry per row of the batch; all others are shared tables."""

    node: Int[Tensor, "batch node"]
    origin: Int[Tensor, "batch node"]
    instance: Int[Tensor, " batch"]
    travelled: Float[Tensor, " batch"]
    xy: Float[Tensor, "instance point 2"]
    side: Float[Tensor, " instance"]

    @abstractmethod
    def features(self) -> Float[Tensor, "batch node feature"]:
        """Returns s_t, the input of the encoders; x and y come first."""

    @abstractmethod
    def feasible(self) -> Bool[Tensor, "#batch action"]:
        """Returns which actions keep the path problem solvable; never none."""

    @abstractmethod
    def step(self, action: Int[Tensor, " batch"]) -> Self:
        """Takes one action in each row and returns the smaller state."""

    @property
    @abstractmethod
    def cost(self) -> Float[Tensor, " batch"]:
        """The cost in the instance's units if each row went straight to its end."""

    @property
    def done(self) -> bool:
        """Whether no decision is left in any row."""
        return self.node.shape[1] <= 2

    def present(self) -> Bool[Tensor, "batch node"] | None:
        """Returns which nodes still matter; None where all do.

        The networks do not see the others.
        """
        return None

    def trimmed(self) -> Self:
        """Returns the state without nodes that matter in no row."""
        return self

    def spent(self) -> Float[Tensor, "batch resource"]:
        """Returns what each row has used up on its way here; less is better.

        All that decides what a row can still do, and at what cost, beside where it
        stands and which nodes are open.
        """
        return self.travelled[:, None]

    def place(self) -> Int[Tensor, " batch"]:
        """Returns a number for where each row stands and which nodes are open.

        A sum of random 64-bit numbers, one per node: equal for equal sets, and for no
        others but by a chance of 2^-64.
        """
        code = self._codes()
        # Where it stands counts with another number than the same node if open.
        return code.sum(1) + 2 * code[:, 0]

    def _codes(self) -> Int[Tensor, "batch node"]:
        """Returns the random number of each node."""
        return _codes(self.xy.shape[1], self.node.device)[self.node]

    def rows(self, index: Int[Tensor, " row"]) -> Self:
        """Returns the given rows, repeated or reordered as the index says."""
        picked = {name: getattr(self, name)[index] for name in self.row_fields}
        return replace(self, **picked)

    def to(self, device: torch.device | str) -> Self:
        """Returns the state on another device."""
        moved = {
            field.name: getattr(self, field.name).to(device) for field in fields(self)
        }
        return replace(self, **moved)

    def decision(self, action: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """Translates actions to decisions: node id * choices + choice."""
        if self.choices == 1:
            return self._node_at(action)
        position = action // self.choices
        return self._node_at(position) * self.choices + action % self.choices

    def _node_at(self, position: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        return self.node.gather(1, position[:, None])[:, 0]

    def _order(self, position: Int[Tensor, " batch"]) -> Int[Tensor, "batch node"]:
        """Returns the positions that remain after moving to `position`.

        Drop node 0, move the chosen node to the front, keep the rest in order. The
        end may be chosen too (OP goes home): it comes first and stays last, and an
        arbitrary open node is dropped in its place.
        """
        n = self.node.shape[1]
        column = position[:, None]
        rest = torch.arange(1, n - 1, device=position.device)
        return torch.cat([column, rest + (rest >= column % (n - 1))], dim=1)

    def _rows_of(
        self, table: Float[Tensor, "instance point *rest"]
    ) -> Float[Tensor, "batch node *rest"]:
        """Looks each node up in a table of its instance."""
        if table.shape[0] == 1:
            return table[0][self.node]
        return table[self.instance[:, None], self.node]

    def _point(self, node: Int[Tensor, " batch"]) -> Float[Tensor, "batch 2"]:
        """Returns where a node of each row lies in the frame."""
        return self.xy[self.instance, node]

    def _to_end(self) -> Float[Tensor, " batch"]:
        """Returns the length so far plus the leg from here to the end."""
        here, end = self._point(self.node[:, 0]), self._point(self.node[:, -1])
        return self.travelled + span(here, end)
