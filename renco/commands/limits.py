"""Time and iteration limits, as `renco solve` and `renco evaluate` take them."""

from dataclasses import dataclass
from typing import Self

from renco.searches import SECONDS, find_search
from renco.stop import MaxIterations, MaxRuntime, MultipleCriteria, Rule


@dataclass(frozen=True)
class Limits:
    """How long a search may go on.

    Attributes:
        seconds: Time per instance, None for no limit.
        iterations: Iterations per instance, None for no limit.
    """

    seconds: float | None
    iterations: int | None

    @classmethod
    def of(cls, search: str, seconds: float | None, iterations: int | None) -> Self:
        """Returns the limits of a search; one that improves always has some."""
        if not find_search(search).improves:
            return cls(None, None)
        if seconds is None and iterations is None:
            seconds = SECONDS
        return cls(seconds, iterations)

    def times(self, instances: int) -> "Limits":
        """Returns the limits of several instances that are solved together."""
        if self.seconds is None:
            return self
        return Limits(self.seconds * instances, self.iterations)

    @property
    def rule(self) -> Rule | None:
        """The stop rule; None for searches that end by themselves."""
        rules: list[Rule] = []
        if self.seconds is not None:
            rules.append(MaxRuntime(self.seconds))
        if self.iterations is not None:
            rules.append(MaxIterations(self.iterations))
        return MultipleCriteria(rules) if rules else None

    def __str__(self) -> str:
        """Returns the limits in words, e.g. `10 s`."""
        words = [] if self.seconds is None else [f"{self.seconds:g} s"]
        if self.iterations is not None:
            words.append(f"{self.iterations} iterations")
        return " or ".join(words)
