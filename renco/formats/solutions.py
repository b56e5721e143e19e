"""Reads solutions: `.tour` of TSPLIB, `.sol` of CVRPLIB and OPLIB, and JSON.

How each numbers the nodes:

- `.tour` (TSP) and OPLIB's `.sol` (OP): as the instance file does.
- CVRPLIB's `.sol` (CVRP): customers count from 1 in the order of the instance file, the
  depot left out. With the depot first, as in all of CVRPLIB, customer `i` is the node
  that the file numbers `i + 1`.
- JSON: as the instance file does, for every problem; instances in JSON count from 0.

A reader finds the nodes; whether they make a feasible solution is for `Problem.cost`
to say.
"""

import re
from pathlib import Path
from typing import Any

from renco.formats.files import failure, numbered_lines, read_text, shown
from renco.formats.jsonfile import parse_json
from renco.formats.sections import Document, parse
from renco.problems import Problem, Routes

_ROUTE = re.compile(r"route\s*#?\s*\d*\s*:(.*)", re.IGNORECASE)
_REMARK = re.compile(r"[A-Za-z][A-Za-z _]*\s*:?\s*[-+\d.eE]+")  # `Cost 784`


def read_solution(path: str | Path, problem: Problem) -> Routes:
    """Returns the routes of a solution file, in the ids of the problem (depot 0).

    The format follows from the contents; `.json` is JSON.

    Args:
        path: A solution in any of the formats of this module.
        problem: The one instance that it solves.

    Raises:
        FormatError: The file is malformed, or names nodes that are not there.
    """
    check_single(problem)
    source, text = str(path), read_text(path)
    if Path(path).suffix.lower() == ".json":
        return _from_json(parse_json(text, source), source, problem)
    lines = numbered_lines(text, source)
    # Without customers there are no routes, only a cost.
    if any(_ROUTE.fullmatch(content) for _, content in lines) or (
        problem.n == 0 and all(_REMARK.fullmatch(content) for _, content in lines)
    ):
        _check_kind(source, problem, "cvrp", "routes of a CVRP")
        return _from_cvrplib(lines, source, problem)
    document = parse(text, source)
    if "TOUR_SECTION" in document.sections:
        _check_kind(source, problem, "tsp", "a tour of a TSP")
        return [_sequence(document, "TOUR_SECTION", problem)]
    if "NODE_SEQUENCE_SECTION" in document.sections:
        _check_kind(source, problem, "op", "a route of an OP")
        return [_from_depot(document, problem)]
    what = "is not a solution: no TOUR_SECTION, NODE_SEQUENCE_SECTION or Route #1:"
    raise failure(source, what)


def numbers_of(problem: Problem) -> tuple[int, ...]:
    """Returns how the instance file numbers the nodes."""
    if problem.numbers is not None:
        return problem.numbers
    return tuple(range(problem.coords.shape[1]))


def check_single(problem: Problem) -> None:
    """Raises unless the problem is one instance, as solution files are of one."""
    if len(problem) != 1:
        raise ValueError(f"a solution file has one instance, got {len(problem)}")


def _check_kind(source: str, problem: Problem, name: str, what: str) -> None:
    if problem.name != name:
        raise failure(source, f"has {what}, but the instance is a {problem.name}")


def _from_json(value: Any, source: str, problem: Problem) -> Routes:
    """Reads `{"routes": [[...], ...]}`, as `solve` prints it, or the routes alone."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        name = value.get("problem", problem.name)
        if name != problem.name:
            what = f"solves a {shown(name)}, but the instance is a {problem.name}"
            raise failure(source, what)
        value = value.get("routes")
    if not isinstance(value, list) or not all(isinstance(r, list) for r in value):
        raise failure(source, "has no 'routes', a list of lists of node numbers")
    ids = {number: node for node, number in enumerate(numbers_of(problem))}
    routes: Routes = []
    for i, route in enumerate(value):
        routes.append([])
        for j, number in enumerate(route):
            if isinstance(number, bool) or not isinstance(number, int):
                what = f"expected a node's number, got {shown(number)}"
                raise failure(source, f"routes[{i}][{j}]: {what}")
            if number not in ids:
                what = f"the instance has no node {shown(number)}"
                raise failure(source, f"routes[{i}][{j}]: {what}")
            if problem.name != "tsp" and ids[number] == 0:
                what = f"{number} is the depot, which routes leave out"
                raise failure(source, f"routes[{i}][{j}]: {what}")
            routes[-1].append(ids[number])
    return routes


def _from_cvrplib(
    lines: list[tuple[int, str]], source: str, problem: Problem
) -> Routes:
    customers = problem.coords.shape[1] - 1
    routes: Routes = []
    for line, content in lines:
        if found := _ROUTE.fullmatch(content):
            route = []
            for token in found[1].split():
                if not re.fullmatch(r"[0-9]{1,9}", token):
                    what = f"expected a customer's number, got {shown(token)}"
                    raise failure(source, what, line)
                if not 1 <= int(token) <= customers:
                    what = f"customer {token} is not one of 1..{customers}"
                    raise failure(source, what, line)
                route.append(int(token))
            if route:
                routes.append(route)
        elif not _REMARK.fullmatch(content) and content.upper() != "EOF":
            what = f"expected a route or a cost, got {shown(content)}"
            raise failure(source, what, line)
    return routes


def _sequence(document: Document, name: str, problem: Problem) -> list[int]:
    """Returns the nodes of a section, by their ids, up to -1 or its end."""
    _check_dimension(document, problem)
    ids = {number: node for node, number in enumerate(numbers_of(problem))}
    result: list[int] = []
    for line, content in document.section(name).rows:
        for token in content.split():
            number = document.integer(token, line, "a node's number")
            if number == -1:
                return result
            if number not in ids:
                raise document.error(f"the instance has no node {number}", line)
            result.append(ids[number])
    return result


def _from_depot(document: Document, problem: Problem) -> list[int]:
    """Returns an OP's route from the depot on, whatever node the file begins with."""
    name = "NODE_SEQUENCE_SECTION"
    nodes = _sequence(document, name, problem)
    if "ROUTE_NODES" in document.keys:
        value = document.keys["ROUTE_NODES"]
        count = document.integer(value.text, value.line, "ROUTE_NODES")
        if count != len(nodes):
            what = f"ROUTE_NODES is {count}, but {name} has {len(nodes)}"
            raise document.error(what, value.line)
    if 0 not in nodes:
        line = document.section(name).line
        depot = numbers_of(problem)[0]
        raise document.error(f"the route does not pass the depot {depot}", line)
    if len(nodes) > 1 and nodes[0] == nodes[-1]:  # closed explicitly
        nodes.pop()
    start = nodes.index(0)
    return [*nodes[start + 1 :], *nodes[:start]]


def _check_dimension(document: Document, problem: Problem) -> None:
    if "DIMENSION" not in document.keys:
        return
    value = document.keys["DIMENSION"]
    dimension = document.integer(value.text, value.line, "DIMENSION")
    nodes = problem.coords.shape[1]
    if dimension != nodes:
        what = f"DIMENSION is {dimension}, but the instance has {nodes} nodes"
        raise document.error(what, value.line)
