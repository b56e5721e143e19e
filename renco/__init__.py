"""Recurrent state encoders for efficient neural combinatorial optimization.

>>> import renco
>>> result = renco.solve(renco.read("berlin52.tsp"), stop=renco.MaxRuntime(5))
>>> print(result.summary())

The names below are imported when they are first used: `import renco` does not load
torch, so the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from renco.checkpoints import load as load
    from renco.checkpoints import save_policy as save_policy
    from renco.checkpoints import shipped as shipped
    from renco.construct import beam_search as beam_search
    from renco.construct import greedy as greedy
    from renco.evaluate import relative_gap as relative_gap
    from renco.formats import FormatError as FormatError
    from renco.formats import read as read
    from renco.formats import read_json as read_json
    from renco.formats import read_solution as read_solution
    from renco.formats import write as write
    from renco.formats import write_solution as write_solution
    from renco.lns import LNSSettings as LNSSettings
    from renco.lns import large_neighborhood_search as large_neighborhood_search
    from renco.model import Policy as Policy
    from renco.problems import CVRP as CVRP
    from renco.problems import OP as OP
    from renco.problems import PROBLEMS as PROBLEMS
    from renco.problems import TSP as TSP
    from renco.problems import Infeasible as Infeasible
    from renco.problems import Problem as Problem
    from renco.result import Result as Result
    from renco.solver import default_model as default_model
    from renco.solver import solve as solve
    from renco.stop import MaxIterations as MaxIterations
    from renco.stop import MaxRuntime as MaxRuntime
    from renco.stop import NoImprovement as NoImprovement

__version__ = "0.1.0"

_HOME = {
    "checkpoints": ("load", "save_policy", "shipped"),
    "construct": ("beam_search", "greedy"),
    "evaluate": ("relative_gap",),
    "formats": (
        *("FormatError", "read", "read_json", "read_solution"),
        *("write", "write_solution"),
    ),
    "lns": ("LNSSettings", "large_neighborhood_search"),
    "model": ("Policy",),
    "problems": ("CVRP", "OP", "PROBLEMS", "TSP", "Infeasible", "Problem"),
    "result": ("Result",),
    "solver": ("default_model", "solve"),
    "stop": ("MaxIterations", "MaxRuntime", "NoImprovement"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *_MODULE]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names, imported or not."""
    return sorted(__all__)
