"""The routing problems; a fourth one is a file here and a line below."""

from renco.problems.base import Infeasible, Problem, Routes
from renco.problems.cvrp import CVRP
from renco.problems.op import OP
from renco.problems.tsp import TSP

PROBLEMS: dict[str, type[TSP] | type[CVRP] | type[OP]] = {
    "tsp": TSP,
    "cvrp": CVRP,
    "op": OP,
}

__all__ = ["CVRP", "OP", "PROBLEMS", "TSP", "Infeasible", "Problem", "Routes"]
