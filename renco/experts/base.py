"""What an expert is: one signature around every solver that can make labels.

An adapter only translates. It scales the numbers to what its solver can read, runs
it, and returns routes; the caller checks and costs them from the original
coordinates, so a solver's own idea of the cost is never used.
"""

import importlib
import math
from abc import ABC, abstractmethod
from importlib import metadata
from types import ModuleType
from typing import Any, ClassVar, Protocol, runtime_checkable

from renco.experts.tiny import TINY, best_of_all
from renco.problems import Problem, Routes


class MissingExpert(ImportError):
    """An expert's package or program is not installed; the message says which."""


class ExpertFailed(RuntimeError):
    """A solver crashed, ran out of time or answered something that is no solution."""


@runtime_checkable
class Expert(Protocol):
    """Turns one instance into routes.

    Attributes:
        name: How users choose it.
        version: Version of the solver behind it.
        problems: Names of the problems it can solve.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102

    @property
    def problems(self) -> tuple[str, ...]: ...  # noqa: D102

    def __call__(self, instance: Problem, *, seconds: float, seed: int) -> Routes:
        """Solves a batch of one in about the given wall-clock time."""
        ...


class Solver(ABC):
    """The part that all experts share: checks, and instances too small to send.

    Attributes:
        name: How users choose it.
        problems: Names of the problems it can solve.
        completes: Names of the problems of which it can finish a partial solution.
        package: Distribution that the solver comes from.
        extra: Extra of renco that installs it.
    """

    name: ClassVar[str]
    problems: ClassVar[tuple[str, ...]]
    completes: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""
    extra: ClassVar[str] = "experts"

    @property
    def version(self) -> str:
        """Version of the solver's package."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            raise self.missing() from None

    def check(self) -> None:
        """Raises `MissingExpert` unless the solver can be run."""
        self._import(self.package.replace("-", "_"))

    def missing(self) -> MissingExpert:
        """Returns the error that says how to get the solver."""
        return MissingExpert(
            f"expert {self.name} needs the package {self.package}: "
            f"pip install renco[{self.extra}]"
        )

    def __call__(self, instance: Problem, *, seconds: float, seed: int = 0) -> Routes:
        """Solves a batch of one in about the given wall-clock time.

        Instances of up to three customers are solved by enumeration: several
        solvers refuse them.

        Raises:
            ValueError: The instance is a batch, of a problem that this expert does
                not know, or the seconds are not positive.
            MissingExpert: The solver is not installed.
            ExpertFailed: The solver gave no solution.
        """
        if len(instance) != 1:
            raise ValueError(f"experts solve one instance, got {len(instance)}")
        if instance.name not in self.problems:
            raise ValueError(cannot(self, instance.name))
        if not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(f"seconds must be positive and finite, got {seconds}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.check()
        if instance.n <= TINY:
            return best_of_all(instance)
        return self._solve(instance, seconds, seed)

    def complete(
        self, instance: Problem, decisions: list[int], *, seconds: float, seed: int = 0
    ) -> list[int]:
        """Returns the given decisions and the best that can follow them.

        Raises:
            ValueError: This expert cannot finish partial solutions of the problem.
            MissingExpert: The solver is not installed.
            ExpertFailed: The solver gave no solution.
        """
        if instance.name not in self.completes:
            raise ValueError(
                f"expert {self.name} cannot finish partial solutions of {instance.name}"
            )
        self.check()
        return self._complete(instance, decisions, seconds, seed)

    def _complete(
        self, instance: Problem, decisions: list[int], seconds: float, seed: int
    ) -> list[int]:
        """Finishes a partial solution of a problem that is in `completes`."""
        raise NotImplementedError

    @abstractmethod
    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        """Solves an instance of more than `TINY` customers."""

    def _import(self, module: str) -> ModuleType:
        try:
            return importlib.import_module(module)
        except ImportError:
            raise self.missing() from None


def cannot(expert: Any, problem: str) -> str:
    """Returns the message for a problem that an expert does not solve."""
    return (
        f"expert {expert.name} cannot solve {problem}, "
        f"it can solve {', '.join(expert.problems)}"
    )
