"""What a plan by insertions says about the tour of an orienteering problem.

Nodes are inserted where they cost the shortest detour, those with much prize for little
of it first (the square of the prize counts, as in the heuristic of Tsiligirides,
Heuristic methods applied to orienteering, 1984), and the path is made shorter by local
moves, as long as anything fits. Then stretches are left out and the path is filled
again, with blurred scores; what collects more stays. A network learns where the plan is
wrong; by itself it does not find one soon.

The base encoder begins without a plan, at every state anew. The recurrent encoder goes
on from that of the state before, with a few more stretches: places in the plan are
realigned with the embeddings.

Nothing is left to chance: what is blurred, and how, follows from coordinates and the
length that is left, so that the same state and plan give the same plan.
"""

import ctypes
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt32
from numpy import ndarray
from torch import Tensor

from renco.compiled import call, load
from renco.features import View
from renco.squeezed import offset, squeezed

TOLD = 12
"""Features that a plan gives to each node."""
GAIN = np.float32(1e-4)
"""What is less is rounding."""
SHORT = np.float32(1e-3)
"""Shorter detours are as good as none."""
LONGEST = 16
"""Nodes that are left out in a row, at most."""
FIRST, NEXT = 30, 4
"""Stretches that are left out: from no plan, and from that of the state before."""
PRIZE, REMAINING = 2, 3
"""Where the prize of each node and the length that is left are in `View.s`."""


@cache
def compiled() -> ctypes.CDLL | None:
    """Returns `insertions.c`; None where it cannot be had."""
    told = (f"-DTOLD={TOLD}", f"-DLONGEST={LONGEST}")
    return load("insertions", "-fopenmp", "-ffp-contract=off", *told)


def insertion_features(
    seen: View, place: Float[Tensor, "batch node"] | None = None
) -> tuple[Float[Tensor, "batch node plan"], Float[Tensor, "batch node"]]:
    """Returns what a plan says about each node, and the place of each node in it.

    Of all nodes: the length that the plan leaves, how many nodes it visits, and the
    price of length. Of each open node: whether the plan visits it, and after how many
    others; the length of its detour, be it made or not, and what its prize is worth
    beyond that; the detour of going there at once; and where the nodes before and after
    it lie. Of the current node: where the next one lies.

    Args:
        seen: The state.
        place: Places in the plan of the state before, 0 for nodes that it does not
            visit; None to begin without.
    """
    # There is nothing to gain from a GPU: one insertion comes after the other.
    left = (seen.s[:, 0, REMAINING] / seen.unit[:, 0, 0]).detach()
    given = (seen.xy.detach(), seen.s[..., PRIZE].detach(), left)
    xy, prize, limit = (x.to("cpu", torch.float32).contiguous() for x in given)
    batch, n, _ = xy.shape
    told, found = torch.zeros(batch, n, TOLD), torch.zeros(batch, n)
    if place is not None:
        found.copy_(place.detach())
    times = FIRST if place is None else NEXT
    if (library := compiled()) is not None:
        call(library.insertions, xy, prize, limit, times, batch, n, found, told)
    elif n > 2:
        for row in range(batch):
            outing = Outing(xy[row].numpy(), prize[row].numpy(), limit[row].item())
            outing.plan(found[row].numpy(), times)
            told[row] = torch.from_numpy(outing.told())
            found[row] = torch.from_numpy(outing.places())
    return told.to(seen.xy.device), found.to(seen.xy.device)


class Outing:
    """A plan for one state, as `insertions.c` makes it.

    Attributes:
        path: From where the vehicle is, which is node 0, to the destination.
        length: Of the path.
    """

    def __init__(
        self,
        xy: Float32[ndarray, "node 2"],
        prize: Float32[ndarray, " node"],
        limit: float,
    ) -> None:
        """Begins with a path that visits nothing."""
        self._xy, self._prize, self._limit = xy, prize, limit
        x, y = (xy[:, None, i] - xy[None, :, i] for i in (0, 1))
        self._apart = np.sqrt(x * x + y * y)
        self.path, self.length = [0, len(xy) - 1], float(self._apart[0, -1])
        self._cost = np.zeros(len(xy), np.float32)
        self._after = np.zeros(len(xy), np.int64)
        self._blur = np.ones(len(xy), np.float32)

    def plan(self, place: Float32[ndarray, " node"], times: int) -> None:
        """Goes on from the plan of the state before, by so many stretches."""
        self._begin(place)
        self._complete()
        self._vary(times)

    def _begin(self, place: Float32[ndarray, " node"]) -> None:
        """Begins with what is left of the plan of the state before."""
        inner, chosen = place[1:-1], place[0]
        # The path goes on behind the node that was chosen, or back where it came from:
        # where there is more of it.
        ahead, behind = inner > chosen, (inner > 0) & (inner < chosen)
        back = behind.sum() > ahead.sum()
        kept = (behind if back else ahead).nonzero()[0] + 1
        order = (-place if back else place)[kept].argsort(kind="stable")
        self.path[1:1] = kept[order].tolist()
        self.length = sum(self._apart[a, b].item() for a, b in pairwise(self.path))
        while len(self.path) > 2 and self.length > self._limit:
            prize = self._prize[self.path[1:-1]]
            spared = [self._spared(place) for place in range(1, len(self.path) - 1)]
            scores = prize * prize / np.array(spared).clip(SHORT)
            self._leave_out(int(scores.argmin()) + 1)

    def _leave_out(self, place: int) -> None:
        self.length -= float(self._spared(place))
        del self.path[place]

    def _vary(self, times: int) -> None:
        """Leaves out stretches, and fills the path with blurred scores."""
        best, most = ([*self.path], self.length), self._worth()
        keys = _mixed(_bits(self._xy[:, 0]) + _mixed(_bits(self._xy[:, 1])))
        seed = _mixed(_bits(np.array([self._limit], np.float32)))
        for _ in range(times):
            if (visits := len(self.path) - 2) == 0:
                break
            size = min(1 + int(_chances(seed)[0] * np.float32(LONGEST)), visits)
            choices = np.float32(visits + 1 - size)
            start = 1 + int(_chances(seed ^ np.uint32(1))[0] * choices)
            for _ in range(size):
                self._leave_out(start)
            self._blur = np.float32(0.4) + 2 * _chances(keys + seed)
            self._complete()
            now = self._worth()
            if now > most or (now == most and self.length < best[1]):
                best, most = ([*self.path], self.length), now
            else:
                self.path, self.length = [*best[0]], best[1]
            seed = seed + np.uint32(0x9E3779B9)
        self._look_at_all()

    def places(self) -> Float32[ndarray, " node"]:
        """Returns the place of each node in the plan; 0 for others and both ends."""
        found = np.zeros(len(self._xy), np.float32)
        found[self.path[1:-1]] = range(1, len(self.path) - 1)
        return found

    def _off(self) -> list[int]:
        """Returns the open nodes that are not on the path."""
        on = set(self.path)
        return [node for node in range(1, len(self._xy) - 1) if node not in on]

    def _worth(self) -> float:
        return sum((float(self._prize[node]) for node in self.path[1:-1]), 0.0)

    def _complete(self) -> None:
        """Inserts and shortens while anything fits."""
        while True:
            self._look_at_all()
            if not self._fill() or not self._shorten():
                return

    def _look_at_all(self) -> None:
        self._look(self._off())

    def _look(self, nodes: list[int]) -> None:
        """Finds the cheapest detours to nodes."""
        if not nodes:
            return
        path = np.array(self.path)
        away, legs = self._apart[nodes][:, path], self._apart[path[:-1], path[1:]]
        cost = away[:, :-1] + away[:, 1:] - legs
        at = cost.argmin(axis=1)
        self._cost[nodes] = cost[np.arange(len(nodes)), at]
        self._after[nodes] = path[at]

    def _fill(self) -> bool:
        """Inserts what fits: much prize for a short detour first."""
        filled = False
        while off := self._off():
            fits = self.length + self._cost[off].astype(np.float64) <= self._limit
            prize = self._prize[off]
            scores = prize * prize / self._cost[off].clip(SHORT) * self._blur[off]
            scores = np.where(fits, scores, 0)
            best = int(scores.argmax())
            if scores[best] <= 0:
                break
            self._insert(off[best])
            filled = True
        return filled

    def _insert(self, node: int) -> None:
        at = self.path.index(int(self._after[node]))
        before, behind = self.path[at : at + 2]
        self.path.insert(at + 1, node)
        self.length += float(self._cost[node])
        off, apart = np.array(self._off(), np.int64), self._apart
        lost = self._after[off] == before
        self._look(off[lost].tolist())
        off = off[~lost]
        for a, b, after in ((before, node, before), (node, behind, node)):
            cost = apart[off, a] + apart[off, b] - apart[a, b]
            less = cost < self._cost[off]
            self._cost[off[less]], self._after[off[less]] = cost[less], after

    def _shorten(self) -> bool:
        """Takes the best move while there is one: see `insertions.c`."""
        any_taken = False
        while True:
            q = self._apart[self.path][:, self.path]
            legs = q.diagonal(1)
            gain = self._turn(q, legs)
            if gain is None:
                gain = self._move(q, legs)
            if gain is None:
                return any_taken
            self.length -= float(gain)
            any_taken = True

    def _turn(
        self, q: Float32[ndarray, "stop stop"], legs: Float32[ndarray, " leg"]
    ) -> np.float32 | None:
        """Turns a stretch, if that makes the path shorter."""
        gain = legs[:, None] + legs[None, :] - q[:-1, :-1] - q[1:, 1:]
        gain[np.tril_indices(len(legs), 1)] = 0
        i, j = divmod(int(gain.argmax()), len(legs))
        if gain[i, j] <= GAIN:
            return None
        self.path[i + 1 : j + 1] = self.path[i + 1 : j + 1][::-1]
        return gain[i, j]

    def _move(
        self, q: Float32[ndarray, "stop stop"], legs: Float32[ndarray, " leg"]
    ) -> np.float32 | None:
        """Moves up to three nodes in a row elsewhere, if that makes it shorter."""
        m, best, found = len(q), GAIN, None
        k = np.arange(m - 1)
        for size in (1, 2, 3):
            if (first := np.arange(1, m - size)).size == 0:
                continue
            last = first + size - 1
            off = q[first - 1, first] + q[last, last + 1] - q[first - 1, last + 1]
            ends = np.stack([first, last], axis=1)
            on = q[ends][:, :, :-1] + q[ends[:, ::-1]][:, :, 1:] - legs
            gain = off[:, None, None] - on.clip(0)
            inside = (k >= first[:, None] - 1) & (k <= last[:, None])
            gain[np.broadcast_to(inside[:, None], gain.shape)] = 0
            if gain.max() > best:
                at = np.unravel_index(gain.argmax(), gain.shape)
                best, found = gain[at], (int(first[at[0]]), size, *map(int, at[1:]))
        if found is None:
            return None
        start, size, flip, to = found
        moved = self.path[start : start + size][:: -1 if flip else 1]
        del self.path[start : start + size]
        to -= size * (to > start)
        self.path[to + 1 : to + 1] = moved
        return best

    def _spared(self, place: int) -> np.float32:
        """Returns what the node at a place of the path costs in length."""
        before, node, after = self.path[place - 1 : place + 2]
        apart = self._apart
        return apart[before, node] + apart[node, after] - apart[before, after]

    def told(self) -> Float32[ndarray, "node plan"]:
        """Returns what the plan says about each node."""
        told, xy, path = (
            np.zeros((len(self._xy), TOLD), np.float32),
            self._xy,
            self.path,
        )
        told[:, 0] = squeezed(np.float32(self._limit) - np.float32(self.length))
        told[:, 1] = np.log(len(path) - 1) / 2
        price = np.float32(self._worth() / self._limit if len(path) > 2 else 0)
        told[:, 2] = squeezed(price)
        for place, node in enumerate(path[1:-1], start=1):
            told[node, 3:5] = 1, np.log1p(place) / 2
        told[0, 10:12] = offset(xy[path[1]] - xy[0])
        for node in range(1, len(xy) - 1):
            on = told[node, 3] > 0
            place = path.index(node if on else int(self._after[node]))
            cost = self._spared(place) if on else self._cost[node]
            now = self._apart[0, node] + self._apart[node, path[1]]
            told[node, 5:8] = (
                squeezed(cost),
                squeezed(self._prize[node] - price * cost),
                squeezed(now - self._apart[0, path[1]]),
            )
            told[node, 8:10] = offset(xy[path[place - 1 if on else place]] - xy[node])
            told[node, 10:12] = offset(xy[path[place + 1]] - xy[node])
        return told


def _mixed(x: UInt32[ndarray, " any"]) -> UInt32[ndarray, " any"]:
    """Mixes bits: the finalizer of MurmurHash3, which is in the public domain."""
    x = (x ^ x >> 16) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * np.uint32(0xC2B2AE35)
    return x ^ x >> 16


def _bits(x: Float32[ndarray, " any"]) -> UInt32[ndarray, " any"]:
    return np.ascontiguousarray(x).view(np.uint32)


def _chances(x: UInt32[ndarray, " any"]) -> Float32[ndarray, " any"]:
    """Returns numbers from 0 to 1."""
    return (_mixed(x) >> 8).astype(np.float32) * np.float32(2**-24)
