"""Writes instances and solutions in the formats that the readers read."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy import ndarray

from renco.files import write_atomic
from renco.formats.solutions import check_single, numbers_of
from renco.metrics import EXPLICIT
from renco.problems import CVRP, OP, Problem, Routes

SUFFIXES = {"tsp": ".tsp", "cvrp": ".vrp", "op": ".oplib"}
"""The suffix of instances of each problem in the format of its library."""


def write(path: str | Path, problem: Problem) -> None:
    """Writes an instance: `.tsp`, `.vrp` or `.oplib` after the problem, or `.json`.

    Every number is written so that it reads back as the same float. The libraries
    have no name for unrounded distances but `EXACT_2D`.

    Raises:
        ValueError: More than one instance, or a suffix of another problem.
        OSError: The file cannot be written.
    """
    check_single(problem)
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        text = json.dumps(_instance_json(problem), allow_nan=False) + "\n"
    elif suffix == SUFFIXES[problem.name]:
        text = _instance_text(problem)
    else:
        known = f"{SUFFIXES[problem.name]} or .json"
        raise ValueError(f"a {problem.name} is written to {known}, got {str(path)!r}")
    write_atomic(Path(path), text.encode())


def write_solution(
    path: str | Path, problem: Problem, routes: Sequence[Sequence[int]], cost: float
) -> None:
    """Writes a solution in the format that the suffix names, all of it or nothing.

    Args:
        path: Ends in `.tour` (TSP), `.sol` (the format of the problem's library)
            or `.json`.
        problem: The one instance that the routes solve.
        routes: Ids of the problem, without the depot.
        cost: The cost to state, as `Problem.cost` gives it.

    Raises:
        ValueError: Unknown suffix, nodes that are not there, cost not finite.
        OSError: The file cannot be written.
    """
    check_single(problem)
    plain = [[int(node) for node in route] for route in routes]
    nodes = problem.coords.shape[1]
    lowest = 0 if problem.name == "tsp" else 1
    for route in plain:
        for node in route:
            if not lowest <= node < nodes:
                raise ValueError(f"node {node} is not one of {lowest}..{nodes - 1}")
    if problem.name != "cvrp" and len(plain) != 1:
        raise ValueError(f"a {problem.name} has one route, got {len(plain)}")
    if not math.isfinite(cost):
        raise ValueError(f"cost must be finite, got {cost}")
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        text = json.dumps(_solution_json(problem, plain, cost)) + "\n"
    elif suffix == ".sol" or (suffix == ".tour" and problem.name == "tsp"):
        text = _SOLUTIONS[problem.name](problem, plain, cost)
    else:
        known = ".sol, .json" + ", .tour" * (problem.name == "tsp")
        what = f"a solution of a {problem.name} is written to {known}"
        raise ValueError(f"{what}, got {str(path)!r}")
    write_atomic(Path(path), text.encode())


def _number(value: float) -> str:
    """Returns the shortest text that reads back as the same number."""
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _plain(value: float) -> int | float:
    """Returns a number as JSON should show it: 3 rather than 3.0."""
    number = float(value)
    return int(number) if number.is_integer() else number


def _line(title: str) -> str:
    """Returns a title as one line of printable text."""
    return " ".join("".join(c if c.isprintable() else " " for c in title).split())


def _file_order(problem: Problem) -> tuple[list[int], int]:
    """Returns the nodes in the order of their numbers, and the first number."""
    numbers = numbers_of(problem)
    order = sorted(range(len(numbers)), key=lambda node: numbers[node])
    # Instances made in memory, and odd numberings, count from 1 as TSPLIB does.
    first = 0 if problem.numbers is not None and min(numbers) == 0 else 1
    return order, first


def _instance_json(problem: Problem) -> dict[str, Any]:
    order, _ = _file_order(problem)
    result: dict[str, Any] = {"problem": problem.name}
    if problem.title:
        result["name"] = _line(problem.title)
    result["metric"] = problem.metric
    result["coords"] = [[_plain(v) for v in xy] for xy in problem.coords[0, order]]
    if problem.name != "tsp":
        result["depot"] = order.index(0)
    if isinstance(problem, CVRP):
        result["demands"] = [_plain(v) for v in problem.demands[0, order]]
        result["capacity"] = _plain(problem.capacity[0])
    if isinstance(problem, OP):
        result["prizes"] = [_plain(v) for v in problem.prizes[0, order]]
        result["limit"] = _plain(problem.limit[0])
    if problem.matrix is not None:
        rows = problem.matrix[order][:, order]
        result["matrix"] = [[_plain(v) for v in row] for row in rows]
    if problem.best_known is not None:
        result["best_known"] = _plain(problem.best_known)
    return result


def _instance_text(problem: Problem) -> str:
    order, first = _file_order(problem)
    lines = [f"NAME : {_line(problem.title)}"]
    if problem.best_known is not None:
        lines.append(f"COMMENT : Best value: {_number(abs(problem.best_known))}")
    lines += [f"TYPE : {problem.name.upper()}", f"DIMENSION : {len(order)}"]
    if isinstance(problem, CVRP):
        lines.append(f"CAPACITY : {_number(problem.capacity[0])}")
    if isinstance(problem, OP):
        lines.append(f"COST_LIMIT : {_number(problem.limit[0])}")
    metric = "EXACT_2D" if problem.metric == "euclidean" else problem.metric
    lines.append(f"EDGE_WEIGHT_TYPE : {metric}")
    if problem.matrix is not None:
        lines += ["EDGE_WEIGHT_FORMAT : FULL_MATRIX", "EDGE_WEIGHT_SECTION"]
        lines += [
            " ".join(map(_number, row)) for row in problem.matrix[order][:, order]
        ]
    name = "DISPLAY_DATA" if metric == EXPLICIT else "NODE_COORD"
    lines += _table(f"{name}_SECTION", first, problem.coords[0, order])
    if isinstance(problem, CVRP):
        lines += _table("DEMAND_SECTION", first, problem.demands[0, order, None])
    if isinstance(problem, OP):
        lines += _table("NODE_SCORE_SECTION", first, problem.prizes[0, order, None])
    if problem.name != "tsp":
        lines += ["DEPOT_SECTION", str(order.index(0) + first), "-1"]
    return "\n".join([*lines, "EOF"]) + "\n"


def _table(name: str, first: int, rows: ndarray) -> list[str]:
    numbered = enumerate(rows, start=first)
    return [name, *(f"{i} " + " ".join(map(_number, row)) for i, row in numbered)]


def _solution_json(problem: Problem, routes: Routes, cost: float) -> dict[str, Any]:
    """Returns the part of the result of `solve` that any solution has."""
    numbers = numbers_of(problem)
    result = {
        "instance": problem.title,
        "problem": problem.name,
        "n": problem.n,
        "cost": cost,
        "routes": [[numbers[node] for node in route] for route in routes],
        "metric": problem.metric,
    }
    if problem.name == "op":
        result["prize"] = -cost
        result["length"] = float(problem.length([routes])[0])
    return result


def _tour_text(problem: Problem, routes: Routes, cost: float) -> str:
    numbers = numbers_of(problem)
    lines = [
        f"NAME : {_line(problem.title)}",
        f"COMMENT : Length {_number(cost)}",
        "TYPE : TOUR",
        f"DIMENSION : {problem.n}",
        "TOUR_SECTION",
        *(str(numbers[node]) for node in routes[0]),
        "-1",
        "EOF",
    ]
    return "\n".join(lines) + "\n"


def _cvrplib_text(problem: Problem, routes: Routes, cost: float) -> str:
    lines = [
        f"Route #{i}: " + " ".join(map(str, route))
        for i, route in enumerate((route for route in routes if route), start=1)
    ]
    return "\n".join([*lines, f"Cost {_number(cost)}"]) + "\n"


def _oplib_text(problem: Any, routes: Routes, cost: float) -> str:
    numbers = numbers_of(problem)
    route = [0, *routes[0]]
    lines = [
        f"NAME : {_line(problem.title)}",
        "TYPE : OP",
        f"DIMENSION : {len(numbers)}",
        f"COST_LIMIT : {_number(problem.limit[0])}",
        f"ROUTE_NODES : {len(route)}",
        f"ROUTE_SCORE : {_number(-cost)}",
        f"ROUTE_COST : {_number(float(problem.length([routes])[0]))}",
        "NODE_SEQUENCE_SECTION",
        *(str(numbers[node]) for node in route),
        "-1",
        "DEPOT_SECTION",
        str(numbers[0]),
        "-1",
        "EOF",
    ]
    return "\n".join(lines) + "\n"


_SOLUTIONS = {"tsp": _tour_text, "cvrp": _cvrplib_text, "op": _oplib_text}
