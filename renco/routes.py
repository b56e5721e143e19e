"""Makes routes shorter, all of them at once: what `routes.h` does, in Python.

All routes stand in one row, the tour: the vehicle, its customers, the depot, the
customers of another route, the depot, and so on. To turn a stretch of it around is a
move whether it begins and ends on one route or on two; whole routes in between are the
same routes when they are turned. Beside that, tails of two routes change places, one
or two customers move, and two are swapped: always so that a customer comes beside one
of its nearest, or beside the vehicle.

Customers are looked at in an order that does not depend on how they are listed, the
farthest from the depot first, so that the same instance has the same plan.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

GAIN = 1e-4
"""What is less is rounding."""
ROUNDS = 4
"""Changes per customer after which a plan is good enough."""

Kind = Literal["turn", "trade", "move", "swap"]


class Change(NamedTuple):
    """What becomes of the places `start` to `end` of a tour.

    turn: they are turned around. trade: the tails of two routes, which begin there,
    change places. move: what begins at `middle` comes before what begins at `start`,
    one of the two (`flip`) turned around. swap: the first and the last change places.
    """

    gain: float
    kind: Kind
    start: int
    middle: int
    end: int
    flip: int = 0


class Routes:
    """A plan that gets shorter.

    Customers are 0 to `open` - 1, the vehicle is `open`, the depot `open` + 1.
    """

    def __init__(
        self,
        tour: Sequence[int],
        apart: Sequence[Sequence[float]],
        load: Sequence[float],
        near: Sequence[Sequence[int]],
        full: float,
    ) -> None:
        """Takes a plan as a row, distances, and the nearest of each customer."""
        self.tour, self._apart, self._load = [*tour], apart, load
        self._near, self._full, self._open = near, full, len(near)
        self._todo = [True] * self._open
        self._survey()

    def _survey(self) -> None:
        """Finds where everything is."""
        self._place = [0] * (self._open + 1)
        self._line: list[int] = []
        self._before: list[float] = []
        self._sum: list[float] = []
        load = 0.0
        for place, node in enumerate(self.tour):
            self._line.append(len(self._sum))
            if node == self._open + 1:
                self._sum.append(load)
                self._before.append(load)
                load = 0.0
                continue
            load += self._load[node]
            self._place[node] = place
            self._before.append(load)

    def improve(self, order: Sequence[int]) -> None:
        """Changes the tour until no customer, in this order, can make it shorter."""
        left, busy = ROUNDS * self._open, True
        while busy and left:
            busy = False
            for node in order:
                while self._todo[node] and left:
                    found = self._best_change(node)
                    self._todo[node] = False
                    if found is None:
                        break
                    self._apply(found)
                    self._todo[node], busy = True, True
                    left -= 1

    def _best_change(self, a: int) -> Change | None:
        best, least = None, GAIN
        tour, legs, i = self.tour, self._apart[a], self._place[a]
        most = max(legs[tour[i - 1]], legs[tour[i + 1]])
        for b in (self._open, *self._near[a]):
            if legs[b] >= most:
                if b == self._open:
                    continue
                break
            j = self._place[b]
            low, high = min(i, j), max(i, j)
            for ways in (
                self._turns(low, high, least),
                self._trades(low, high, least),
                self._moves(i, j, least),
                self._swaps(i, j, least),
            ):
                for change in ways:
                    if change.gain > least:
                        best, least = change, change.gain
        return best

    def _turns(self, i: int, j: int, least: float) -> Iterator[Change]:
        """Cuts beside both of two places, and turns what is between."""
        tour, apart, line = self.tour, self._apart, self._line
        p, q = line[i], line[j]
        for a, b in ((i, j), (i - 1, j - 1)):
            if a < 0 or a + 1 >= b:
                continue
            here, there = apart[tour[a]], apart[tour[b]]
            gain = here[tour[a + 1]] + there[tour[b + 1]]
            gain = gain - here[tour[b]] - apart[tour[a + 1]][tour[b + 1]]
            if gain <= least:
                continue
            if p != q:
                first, second = self._up_to(a, p), self._up_to(b, q)
                rest = self._sum[p] - first + self._sum[q] - second
                if first + second > self._full or rest > self._full:
                    continue
            yield Change(gain, "turn", a + 1, a + 1, b)

    def _up_to(self, place: int, line: int) -> float:
        """Returns the load of a route up to a place, which may be just before it."""
        return self._before[place] if self._line[place] == line else 0.0

    def _trades(self, i: int, j: int, least: float) -> Iterator[Change]:
        """Trades tails of two routes, so that the nodes at two places meet."""
        tour, apart = self.tour, self._apart
        p, q = self._line[i], self._line[j]
        if p == q:
            return
        for a, b in ((i + 1, j), (i, j + 1)):
            if a < 1:
                continue
            here, there = apart[tour[a - 1]], apart[tour[b - 1]]
            gain = here[tour[a]] + there[tour[b]] - here[tour[b]] - there[tour[a]]
            if gain <= least:
                continue
            first, second = self._up_to(a - 1, p), self._up_to(b - 1, q)
            loads = first + self._sum[q] - second, second + self._sum[p] - first
            if max(loads) <= self._full:
                yield Change(gain, "trade", a, a, b)

    def _moves(self, i: int, j: int, least: float) -> Iterator[Change]:
        """Moves a node beside another, alone or with a neighbour of its own."""
        tour, apart, a = self.tour, self._apart, self.tour[i]
        for extra in (-1, 0, 1):
            low, high = i + min(extra, 0), i + max(extra, 0)
            if low <= j <= high or max(tour[low], tour[high]) >= self._open:
                continue
            other = tour[low if extra < 0 else high]
            weight = self._load[a] + (self._load[other] if extra else 0)
            p, q = self._line[i], self._line[j]
            if p != q and self._sum[q] + weight > self._full:
                continue
            off = apart[tour[low - 1]][tour[low]] + apart[tour[high]][tour[high + 1]]
            off = off - apart[tour[low - 1]][tour[high + 1]]
            for after in (0, 1):
                to = j + after  # in front of this place
                if to < 1 or low <= to <= high + 1:
                    continue
                left, right = tour[to - 1], tour[to]
                on = apart[tour[j]][a] + apart[other][right if after else left]
                gain = off - (on - apart[left][right])
                if gain <= least:
                    continue
                flip = int(tour[low if after else high] != a)
                if to > high:
                    yield Change(gain, "move", low, high + 1, to - 1, flip)
                else:
                    yield Change(gain, "move", to, low, high, 2 * flip)

    def _swaps(self, i: int, j: int, least: float) -> Iterator[Change]:
        """Swaps a node with a neighbour of another, beside which it comes to stand."""
        tour, apart, a = self.tour, self._apart, self.tour[i]
        for k in (j - 1, j + 1):
            if k < 1 or abs(k - i) < 2 or tour[k] >= self._open:
                continue
            c = tour[k]
            ours, theirs = apart[a], apart[c]
            gain = ours[tour[i - 1]] + ours[tour[i + 1]] - theirs[tour[i - 1]]
            gain = gain - theirs[tour[i + 1]] + theirs[tour[k - 1]]
            gain = gain + theirs[tour[k + 1]] - ours[tour[k - 1]] - ours[tour[k + 1]]
            if gain <= least:
                continue
            p, q, more = self._line[i], self._line[k], self._load[c] - self._load[a]
            fits = max(self._sum[p] + more, self._sum[q] - more) <= self._full
            if p == q or fits:
                yield Change(gain, "swap", min(i, k), min(i, k), max(i, k))

    def _apply(self, change: Change) -> None:
        tour, (_, kind, start, middle, end, flip) = self.tour, change
        for place in (start - 1, start, start + 1, middle - 1, middle, end - 1):
            self._look_again(place)
        self._look_again(end)
        self._look_again(end + 1)
        first, last = tour[start:middle], tour[middle : end + 1]
        if kind == "turn":
            tour[start : end + 1] = tour[start : end + 1][::-1]
        elif kind == "swap":
            tour[start], tour[end] = tour[end], tour[start]
        elif kind == "move":
            first, last = (
                first[:: -1 if flip == 1 else 1],
                last[:: -1 if flip == 2 else 1],
            )
            tour[start : end + 1] = last + first
        else:
            depot = self._open + 1
            stop, rest = tour.index(depot, start), tour.index(depot, end)
            tour[start:rest] = tour[end:rest] + tour[stop:end] + tour[start:stop]
        self._survey()

    def _look_again(self, place: int) -> None:
        if 0 <= place < len(self.tour) and self.tour[place] < self._open:
            self._todo[self.tour[place]] = True
