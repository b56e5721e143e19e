"""The routing library of OR-Tools, the only expert here for all three problems."""

import warnings
from typing import Any

import numpy as np

from renco.experts.base import ExpertFailed, Solver
from renco.experts.scaling import distances, factor, whole_demands
from renco.local import improve, insert_all
from renco.problems import CVRP, OP, Problem, Routes

LONGEST = 1_000_000
SPARE_VEHICLES = 1.3
"""Vehicles offered per vehicle needed; unused ones cost nothing."""
PRICE = 3.0
"""Length that a unit of prize is worth, times limit / collectable prize."""


class ORTools(Solver):
    """Guided local search; it has no seed, and always uses its time."""

    name = "ortools"
    problems = ("tsp", "cvrp", "op")
    package = "ortools"
    extra = "ortools"

    def _solve(self, instance: Problem, seconds: float, seed: int) -> Routes:
        with warnings.catch_warnings():  # its bindings trip over newer Pythons
            warnings.simplefilter("ignore", DeprecationWarning)
            solver = self._import("ortools.constraint_solver.pywrapcp")
            enums = self._import("ortools.constraint_solver.routing_enums_pb2")
        matrix = distances(instance)
        scale = factor(matrix, LONGEST)
        lengths = np.ceil(matrix * scale).astype(np.int64)
        vehicles, demands, capacity = 1, None, 0
        if isinstance(instance, CVRP):
            demands, capacity = whole_demands(instance)
            vehicles = -(-int(demands.sum()) // max(capacity, 1))
            vehicles = min(instance.n, int(vehicles * SPARE_VEHICLES) + 3)
        manager = solver.RoutingIndexManager(len(matrix), vehicles, 0)
        model = solver.RoutingModel(manager)
        # A matrix, not a callback: one that raises would count as all zeros.
        transit = model.RegisterTransitMatrix(lengths.tolist())
        model.SetArcCostEvaluatorOfAllVehicles(transit)
        if demands is not None:
            load = model.RegisterUnaryTransitVector(demands.tolist())
            model.AddDimension(load, 0, capacity, True, "load")
        if isinstance(instance, OP):
            limit = int(instance.limit[0] * scale)
            model.AddDimension(transit, 0, limit, True, "length")
            _offer(instance, matrix, scale, manager, model)
        parameters = solver.DefaultRoutingSearchParameters()
        first = enums.FirstSolutionStrategy
        parameters.first_solution_strategy = (
            first.SAVINGS if isinstance(instance, CVRP) else first.PATH_CHEAPEST_ARC
        )
        parameters.local_search_metaheuristic = (
            enums.LocalSearchMetaheuristic.GUIDED_LOCAL_SEARCH
        )
        parameters.time_limit.FromMilliseconds(max(1, round(seconds * 1000)))
        answer = model.SolveWithParameters(parameters)
        if answer is None:
            raise ExpertFailed(f"ortools found no solution in {seconds:g} s")
        routes = [_route(v, answer, manager, model) for v in range(vehicles)]
        if instance.name == "tsp":
            return [[0, *routes[0]]]
        if isinstance(instance, OP):
            longest = float(instance.limit[0])
            return [improve(routes[0], matrix, instance.prizes[0], longest)]
        return [route for route in routes if route]


def _offer(
    instance: OP, matrix: np.ndarray, scale: float, manager: Any, model: Any
) -> None:
    """Makes all visits optional, each at the price of its prize."""
    prizes, limit = instance.prizes[0], float(instance.limit[0])
    collected = prizes[insert_all([], matrix, prizes, limit)].sum()
    price = PRICE * limit / collected if collected > 0 else 0.0
    for node in range(1, len(matrix)):
        index = manager.NodeToIndex(node)
        model.AddDisjunction([index], max(1, round(prizes[node] * price * scale)))


def _route(vehicle: int, answer: Any, manager: Any, model: Any) -> list[int]:
    nodes: list[int] = []
    index = answer.Value(model.NextVar(model.Start(vehicle)))
    while not model.IsEnd(index):
        nodes.append(manager.IndexToNode(index))
        index = answer.Value(model.NextVar(index))
    return nodes
