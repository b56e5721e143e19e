"""What still fits into the time that a stop rule leaves."""

from math import inf, isinf
from time import perf_counter

import torch
from jaxtyping import Int
from numpy import ndarray

from renco import stop as stops
from renco.model import Policy
from renco.state import State
from renco.stop import Stop

GRACE = 0.1
"""Seconds by which a step may overrun the limit rather than be dropped."""
ASIDE = 0.2
"""Part of the time that local moves may take."""
KICKING = 0.8
"""Part of the time that kicks may take."""
TOKENS_PER_CORE = 1024
"""Nodes, times beams, that keep a core busy; more at once are no faster."""
GROWTH = 4
"""How much more than all before it an iteration may do: first gains come early."""
TOKENS_ON_GPU = 1 << 18
CORE_SPEED = 1e11
"""Floating-point operations per second that no core exceeds in practice."""


class OutOfTime(Exception):
    """The time limit would be overrun."""


class Pace:
    """Measures how fast a search is and plans what it can still do."""

    def __init__(self, stop: Stop) -> None:
        """Starts the clock."""
        stops.start(stop)
        self._stop = stop
        self._began = self._last = self._step = perf_counter()
        self._unit = inf  # seconds per beam and squared size; not known yet
        self._work = 0  # beams times squared size, so far

    @property
    def limited(self) -> bool:
        """Whether there is a time limit."""
        return not isinf(self.left())

    def left(self) -> float:
        """Returns the seconds left."""
        return stops.seconds_left(self._stop)

    def part_left(self) -> float:
        """Returns the part of the time that is left; half if there is no limit."""
        left = max(0.0, self.left())
        return left / (self.elapsed() + left) if self.limited else 0.5

    def elapsed(self) -> float:
        """Returns the seconds since the start."""
        return perf_counter() - self._began

    def late(self) -> bool:
        """Returns whether the limit is overrun by all that is tolerable."""
        return self.left() < -GRACE

    def strays(self, before: float, began: float) -> bool:
        """Returns whether something beside the search has taken its share of time.

        Args:
            before: Seconds that it has taken in earlier turns.
            began: When the present turn began, in seconds since the start.
        """
        now = self.elapsed()
        return self._over(before + now - began, ASIDE * (now + self.left()))

    def ahead(self, before: float, began: float) -> bool:
        """Returns whether kicks have taken their share of the time so far.

        Unlike local moves, which soon find nothing, they would use all of their time
        at once. Arguments as for `strays`.
        """
        now = self.elapsed()
        return self._over(before + now - began, KICKING * now)

    def _over(self, taken: float, allowed: float) -> bool:
        return self.limited and (self.left() <= 0 or taken > allowed)

    def begin(self) -> None:
        """Begins to measure."""
        self._last = self._step = perf_counter()

    def on_step(self) -> None:
        """Raises OutOfTime unless another step as long as the last one fits."""
        now = perf_counter()
        if self.left() + GRACE < now - self._step:
            raise OutOfTime
        self._step = now

    def solved(self, rows: int, size: int) -> None:
        """Notes that so many beams of sub-problems were solved since `begin`."""
        work = rows * size**2
        self._unit = (perf_counter() - self._last) / work
        self._work += work

    def times(self, seconds: float, share: float) -> int:
        """Returns how often something that long fits into a share of what is left."""
        return max(0, int(share * self.left() / max(seconds, 1e-9)))

    def plan(self, count: int, width: int, batch: int, size: int) -> tuple[int, int]:
        """Returns sub-problems per instance and beam width of the next iteration.

        The given ones, or less where they would overrun the time limit. The first
        iteration under a limit is the smallest: it measures the pace. The next ones
        grow, so that a slow policy on a large instance has something to show soon.
        """
        if not self.limited:
            return count, width
        # As many steps as nodes, each over all nodes that are left.
        work = min(max(0.0, self.left()) / self._unit, GROWTH * self._work)
        rows = int(work / size**2)
        count = max(1, min(count, rows // (width * batch)))
        return count, max(1, min(width, rows // (count * batch)))


def tokens_at_once(device: torch.device) -> int:
    """Returns how many nodes, times beams, are best encoded at once."""
    if device.type != "cpu":
        return TOKENS_ON_GPU
    return TOKENS_PER_CORE * torch.get_num_threads()


def least_seconds(policy: Policy, sizes: Int[ndarray, " step"], k: int) -> float:
    """Returns a time that a greedy construction certainly takes on a CPU.

    Known without running the network even once, which for a large instance takes
    longer than a short limit.

    Args:
        policy: Constructs.
        sizes: Nodes that it looks at, step by step.
        k: Steps between two runs of the base encoder.
    """
    parts = (
        (policy.base, policy.config.base),
        (policy.recurrent, policy.config.recurrent),
    )
    work = []
    for encoder, shape in parts:
        if encoder is None or shape is None:
            continue
        # A multiplication and an addition per weight and node; the same twice
        # (scores, values) for all pairs of nodes.
        weights = sum(weight.numel() for weight in encoder.parameters())
        pairs = float((sizes**2).sum())
        work.append(2 * weights * sizes.sum() + 4 * shape.layers * shape.d * pairs)
    operations = work[0] / k + work[-1] * (1 - 1 / k)
    return operations / (CORE_SPEED * torch.get_num_threads())


@torch.inference_mode()
def step_seconds(policy: Policy, state: State, k: int) -> float:
    """Measures the first step, by both encoders as often as each is used."""
    if state.done:
        return 1e-6
    policy.encode(state)  # the first call is slower
    began = perf_counter()
    h = policy.encode(state)
    score = policy.score(h, state)
    base = perf_counter() - began
    after = state.step(score.argmax(dim=-1))
    if k == 1 or after.done:
        return base
    began = perf_counter()
    policy.score(policy.update(h, after), after)
    return base / k + (perf_counter() - began) * (1 - 1 / k)
