"""When a search ends: one-call rules that can be combined with `|`.

A search asks its rule before every iteration, with the best cost so far. Anything
that can be called like that is a rule; those of this module can also be started
again and tell how much time is left, so that a search plans what still fits.
"""

import math
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Protocol, runtime_checkable


@runtime_checkable
class Stop(Protocol):
    """Decides whether a search ends."""

    def __call__(self, best_cost: float) -> bool:
        """Returns whether to stop, asked once before every iteration."""
        ...


class Rule(ABC):
    """A `Stop` that can be combined, started again, and asked for the time left.

    A search starts its rule when it begins, so one rule serves many searches, one
    after the other. Used by hand, a rule starts with its first call.
    """

    @abstractmethod
    def __call__(self, best_cost: float) -> bool:
        """Returns whether to stop, asked once before every iteration."""

    @abstractmethod
    def start(self) -> None:
        """Forgets what happened so far and starts the clock."""

    def seconds_left(self) -> float:
        """Returns the time until the rule stops at the latest; infinity if none."""
        return math.inf

    def __or__(self, other: Stop) -> "MultipleCriteria":
        """Returns the rule that stops as soon as one of the two does."""
        return MultipleCriteria([self, other])


class MaxRuntime(Rule):
    """Stops after some seconds of wall-clock time."""

    def __init__(self, seconds: float | int) -> None:
        """Takes the limit; zero asks for the first solution that can be had.

        Raises:
            ValueError: The limit is negative or not a number.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must not be negative, got {seconds}")
        self.seconds = seconds
        self._began: float | None = None

    def start(self) -> None:
        """Starts the clock."""
        self._began = perf_counter()

    def seconds_left(self) -> float:
        """Returns the time left, negative once the limit has passed."""
        now = perf_counter()
        if self._began is None:
            self._began = now
        return self._began + self.seconds - now

    def __call__(self, best_cost: float) -> bool:
        """Returns whether the time is up."""
        return self.seconds_left() <= 0


class MaxIterations(Rule):
    """Stops after a number of iterations."""

    def __init__(self, iterations: int) -> None:
        """Takes the limit; zero asks for the initial solution.

        Raises:
            ValueError: The limit is negative.
        """
        if iterations < 0:
            raise ValueError(f"iterations must not be negative, got {iterations}")
        self.iterations = iterations
        self._calls = 0

    def start(self) -> None:
        """Starts to count."""
        self._calls = 0

    def __call__(self, best_cost: float) -> bool:
        """Returns whether the iterations are used up."""
        self._calls += 1
        return self._calls > self.iterations


class NoImprovement(Rule):
    """Stops after a number of iterations in a row that found nothing better."""

    def __init__(self, iterations: int) -> None:
        """Takes the number of iterations to wait for an improvement.

        Raises:
            ValueError: The number is negative.
        """
        if iterations < 0:
            raise ValueError(f"iterations must not be negative, got {iterations}")
        self.iterations = iterations
        self._best = math.inf
        self._since = 0

    def start(self) -> None:
        """Forgets the best cost."""
        self._best, self._since = math.inf, 0

    def __call__(self, best_cost: float) -> bool:
        """Returns whether the wait was in vain."""
        if best_cost < self._best:
            self._best, self._since = best_cost, 0
        else:
            self._since += 1
        return self._since >= self.iterations


class MultipleCriteria(Rule):
    """Stops as soon as one of several rules does."""

    def __init__(self, criteria: Sequence[Stop]) -> None:
        """Takes the rules.

        Raises:
            ValueError: There are none.
        """
        if not criteria:
            raise ValueError("at least one stop rule is needed, got none")
        self.criteria = tuple(criteria)

    def start(self) -> None:
        """Starts every rule."""
        for rule in self.criteria:
            start(rule)

    def seconds_left(self) -> float:
        """Returns the shortest time left."""
        return min(seconds_left(rule) for rule in self.criteria)

    def __call__(self, best_cost: float) -> bool:
        """Returns whether one of the rules says so."""
        answers = [rule(best_cost) for rule in self.criteria]  # all see every call
        return any(answers)


def start(stop: Stop) -> None:
    """Starts a rule if it is one that can be started."""
    if isinstance(stop, Rule):
        stop.start()


def seconds_left(stop: Stop) -> float:
    """Returns the time a rule leaves; infinity if it does not say."""
    return stop.seconds_left() if isinstance(stop, Rule) else math.inf


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Turns SIGTERM into KeyboardInterrupt, so that both end a search in order.

    Only the main thread can: elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
