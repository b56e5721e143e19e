"""Progress on standard error: a live bar on a terminal, sparse lines elsewhere."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

FIRST_LINE, NEXT_LINE = 10.0, 60.0
"""Seconds until the first and between further lines where there is no terminal."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        done: Labelled instances, those of earlier runs included.
        total: Instances to label in this run.
        made: Instances labelled by this run.
        failed: Instances given up by this run.
        seconds: Time since the start of this run.
    """

    done: int
    total: int
    made: int
    failed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Instances per second of this run."""
        return self.made / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> float:
        """Estimated seconds until the end; infinite before the first instance."""
        left = self.total - self.done - self.failed
        return left / self.rate if self.rate > 0 else math.inf


Callback = Callable[[Progress], None]


class ProgressBar:
    """Shows how far `renco.generate` has come; pass it as its `progress`."""

    def __init__(self, title: str = "labels") -> None:
        """Shows nothing yet."""
        self.title = title
        self._bar: Bar | None = None
        self._next_line = monotonic() + FIRST_LINE
        self._last: Progress | None = None

    def __enter__(self) -> Self:
        """Opens the bar if standard error is a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}"), BarColumn()
            self._bar = Progress(
                *columns,
                TextColumn("{task.fields[text]}"),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.title, total=None, text="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the bar, or writes the last line."""
        if self._bar is not None:
            self._bar.stop()
        elif self._last is not None:
            self._write(self._last)

    def __call__(self, progress: Progress) -> None:
        """Shows the state of a run."""
        self._last = progress
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=progress.done,
                total=progress.total,
                text=describe(progress),
            )
        elif monotonic() >= self._next_line:
            self._next_line = monotonic() + NEXT_LINE
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        sys.stderr.write(f"{self.title}: {describe(progress)}\n")
        sys.stderr.flush()


def describe(progress: Progress) -> str:
    """Returns one line: done, failed, rate and the time left."""
    text = f"{progress.done}/{progress.total}"
    if progress.failed:
        text += f", {progress.failed} failed"
    text += f", {progress.rate:.3g}/s"
    if 0 < progress.remaining < math.inf:
        text += f", {duration(progress.remaining)} left"
    return text


def duration(seconds: float) -> str:
    """Returns a duration as people say it: `45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
