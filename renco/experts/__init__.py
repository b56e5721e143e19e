"""Experts: classical solvers that provide the solutions to learn from."""

from renco.experts.base import Expert, ExpertFailed, MissingExpert, Solver, cannot
from renco.experts.elkai_lkh import Elkai
from renco.experts.fasttsp import FastTSP
from renco.experts.hgs import HGS
from renco.experts.ortools_routing import ORTools
from renco.experts.programs import LKH, Concorde, OPSolver
from renco.experts.pyvrp_search import PyVRP

EXPERTS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        FastTSP(),
        HGS(),
        PyVRP(),
        ORTools(),
        Elkai(),
        Concorde(),
        LKH(),
        OPSolver(),
    )
}
"""All experts by name, installed or not."""

BEST = {
    "tsp": ("fast-tsp", "ortools"),
    "cvrp": ("hygese", "pyvrp", "ortools"),
    "op": ("pyvrp",),
}
"""What `auto` tries, best first: freely licensed and installable from PyPI.

OR-Tools is no choice for OP: in two seconds it collects 10 to 30 % less than PyVRP in
half a second.
"""

__all__ = [
    "BEST",
    "EXPERTS",
    "Expert",
    "ExpertFailed",
    "MissingExpert",
    "Solver",
    "default_seconds",
    "find",
]


def find(name: str, problem: str) -> Solver | None:
    """Returns an expert for the problem by name.

    Args:
        name: A name of `EXPERTS`; `auto` for the best one that is installed; `none`
            for no expert.
        problem: Name of the problem to solve.

    Raises:
        ValueError: There is no expert of that name, or it cannot solve the problem.
        MissingExpert: It is not installed.
    """
    if problem not in BEST:
        raise ValueError(f"unknown problem {problem!r}: expected {', '.join(BEST)}")
    if name == "none":
        return None
    if name == "auto":
        return _best(problem)
    if name not in EXPERTS:
        choices = ", ".join([*EXPERTS, "auto", "none"])
        raise ValueError(f"unknown expert {name!r}: choose from {choices}")
    expert = EXPERTS[name]
    if problem not in expert.problems:
        raise ValueError(cannot(expert, problem))
    expert.check()
    return expert


def _best(problem: str) -> Solver:
    for name in BEST[problem]:
        try:
            EXPERTS[name].check()
        except MissingExpert:
            continue
        return EXPERTS[name]
    raise MissingExpert(
        f"no expert for {problem} is installed "
        f"({', '.join(BEST[problem])}): pip install renco[experts]"
    )


SECONDS = {"tsp": (0.0215, 2.0), "cvrp": (0.58, 1.5), "op": (1.0, 1.5)}
"""Seconds for n = 100, and the power of n with which they grow."""
SHORTEST = 0.01


def default_seconds(problem: str, n: int) -> float:
    """Returns a time per instance that gives labels good enough to learn from."""
    if problem not in SECONDS:
        raise ValueError(f"unknown problem {problem!r}: expected {', '.join(SECONDS)}")
    base, power = SECONDS[problem]
    return round(max(SHORTEST, base * (n / 100) ** power), 4)
