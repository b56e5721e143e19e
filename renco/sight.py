"""What a policy looks at: all nodes of a state, or those near to where it stands.

A policy that has learnt on 100 nodes is lost among 1000: it has never seen so many, and
every step costs ten times as much. What comes next is near, though. Where nodes are
many, the encoders get the nearest ones only, and the end of the path; the nodes are
chosen anew whenever the base encoder runs. Unlike the paper, which looks at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Int
from torch import Tensor

from renco.state import State

AGAIN = 10
"""Steps after which nodes are chosen anew, at the latest."""
LEAST = 2 * AGAIN
"""Nodes to look at, at least: some must be left when AGAIN have been visited."""
MANY = 300
"""Nodes among which the shipped policies, trained on 100 and 200, are at home."""
NEAR = {"tsp": 100, "cvrp": 200, "op": 200}
"""How many to look at where there are more; 200 for any other problem."""


def usual(problem: str, n: int) -> int | None:
    """Returns how many nodes to look at among n; None for all."""
    return NEAR.get(problem, 200) if n > MANY else None


def renewal(k: int, near: int | None, nodes: int) -> int:
    """Returns after how many steps E runs again, where k are asked for."""
    return min(k, AGAIN) if near is not None and near < nodes else k


@dataclass(frozen=True, eq=False)
class Sight:
    """States, and the parts of them that a policy looks at.

    Attributes:
        whole: The states.
        seen: The same with fewer open nodes; the very same object where all are seen.
    """

    whole: State
    seen: State

    @classmethod
    def of(cls, state: State) -> Self:
        """Looks at all of a state."""
        return cls(state, state)

    def renewed(self, near: int | None) -> Self:
        """Looks at the open nodes that are nearest to where each row stands."""
        whole = self.whole
        last = whole.node.shape[1] - 1
        if near is None or last - 1 <= near:
            return self.of(whole)
        xy = whole.features()[..., :2]
        distance = torch.linalg.vector_norm(xy - xy[:, :1], dim=-1)
        present = whole.present()
        if present is not None:  # what is out of reach comes last
            distance = distance.masked_fill(~present, torch.finfo(xy.dtype).max)
        nearest = distance[:, 1:last].topk(near, largest=False).indices + 1
        ends = nearest.new_tensor([0, last]).expand(len(nearest), 2)
        order = torch.cat([ends[:, :1], nearest, ends[:, 1:]], dim=1)
        origin = torch.arange(near + 2, device=order.device).expand_as(order)
        seen = replace(whole, node=whole.node.gather(1, order), origin=origin)
        return replace(self, seen=seen)

    def rows(self, index: Int[Tensor, " row"]) -> Self:
        """Returns the given rows, as `State.rows`."""
        return self._each(lambda state: state.rows(index))

    def trimmed(self, trim: Callable[[State], State]) -> Self:
        """Drops nodes that no longer matter."""
        return self._each(trim)

    def step(self, action: Int[Tensor, " batch"]) -> Self:
        """Takes an action among what is seen."""
        seen = self.seen.step(action)
        if self.seen is self.whole:
            return self.of(seen)
        choices = self.whole.choices
        chosen = self.seen.decision(action) // choices
        # Not at place 0: there a tour may stand at its own end.
        place = (self.whole.node[:, 1:] == chosen[:, None]).int().argmax(dim=1) + 1
        whole = self.whole.step(place * choices + action % choices)
        return replace(self, whole=whole, seen=seen)

    def _each(self, change: Callable[[State], State]) -> Self:
        whole = change(self.whole)
        same = self.seen is self.whole
        return replace(self, whole=whole, seen=whole if same else change(self.seen))
