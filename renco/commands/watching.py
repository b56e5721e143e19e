"""Progress on standard error, and Ctrl-C that keeps the best solution."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from renco.commands.console import say
from renco.lns import Progress
from renco.progress import Progress as Count
from renco.progress import ProgressBar
from renco.result import number
from renco.stop import Rule

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Interrupt(Rule):
    """Turns the first Ctrl-C or SIGTERM into the end of the current search.

    It is a stop rule: searches that improve a solution end in order. Others have
    nothing to show yet and end with KeyboardInterrupt, as does a second signal.
    """

    def __init__(self) -> None:
        """Watches nothing yet."""
        self.asked = False
        self._finish = False
        self._before: dict[int, Any] = {}

    def __call__(self, best_cost: float) -> bool:
        """Returns whether a signal came."""
        return self.asked

    def start(self) -> None:
        """Does nothing: a signal ends all searches of the call."""

    def seconds_left(self) -> float:
        """Returns no time at all after a signal."""
        return 0.0 if self.asked else inf

    @contextmanager
    def letting_finish(self, finish: bool) -> Iterator[None]:
        """Tells whether what runs meanwhile ends by itself."""
        self._finish = finish
        try:
            yield
        finally:
            self._finish = False

    def __enter__(self) -> Self:
        """Takes over the signals; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
                self._before[name] = signal.signal(name, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives the signals back."""
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _handle(self, name: int, frame: FrameType | None) -> None:
        first, self.asked = not self.asked, True
        if not (first and self._finish):
            raise KeyboardInterrupt


class Watcher:
    """Shows which instance is being solved and how well: the search's callback.

    A live line on a terminal; a plain line now and then elsewhere.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        """Shows nothing yet."""
        self.total, self.quiet = total, quiet
        self.done = 0
        self._name, self._count = "", 1
        self._seconds: float | None = None
        self._bars: Bars | None = None
        self._task: Any = None
        self._next = monotonic() + EVERY

    def __enter__(self) -> Self:
        """Opens the live line if standard error is a terminal."""
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("[bold]{task.description}", markup=True),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bars.add_task("", total=None, text="")
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes the live line."""
        if self._bars is not None:
            self._bars.stop()

    def begin(self, name: str, count: int, seconds: float | None) -> None:
        """Announces an instance, or several that are solved together.

        Args:
            name: Name of the first one.
            count: How many they are.
            seconds: Time limit; None if there is none.
        """
        others = f" and {count - 1} more" if count > 1 else ""
        place = f"[{self.done + 1}/{self.total}] " if self.total > 1 else ""
        self._name, self._seconds = f"{place}{name}{others}", seconds
        if self._bars is not None:
            from rich.markup import escape

            self._bars.reset(self._task, total=seconds, description=escape(self._name))
            self._bars.update(self._task, text="")

    def end(self, count: int) -> None:
        """Counts instances as solved."""
        self.done += count

    def __call__(self, progress: Progress) -> None:
        """Shows the state of a search."""
        cost = number(float(f"{progress.cost.mean():.8g}"))
        text = (
            f"{progress.seconds:.1f} s, cost {cost}, {progress.iterations} iterations"
        )
        if self._bars is not None:
            self._bars.update(self._task, completed=progress.seconds, text=text)
        elif not self.quiet and monotonic() >= self._next and progress.iterations:
            self._next = monotonic() + EVERY
            say(f"{self._name}: {text}")


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows how many of a number of instances are done."""
    began = monotonic()
    with ProgressBar(title) as bar:
        yield lambda done, total: bar(Count(done, total, done, 0, monotonic() - began))
