"""Says everything that is wrong with a solution, in the words of its files.

`Problem.cost` has the verdict and stops at the first fault, by internal node ids. This
lists all faults with the nodes numbered as in the instance file, for people.
"""

import math
from collections import Counter

from renco.problems import CVRP, OP, Infeasible, Problem, Routes

SHOWN = 8


def violations(problem: Problem, routes: Routes) -> list[str]:
    """Returns one line per broken rule; none for a feasible solution.

    Args:
        problem: One instance.
        routes: Node ids, as `Problem.cost` takes them.
    """
    try:
        problem.cost([routes])
    except Infeasible as error:
        return _all(problem, routes) or [str(error)]
    return []


def _all(problem: Problem, routes: Routes) -> list[str]:
    nodes = problem.coords.shape[1]
    visited = [node for route in routes for node in route]
    if any(not 0 <= node < nodes for node in visited):
        return []  # unknown nodes make all else meaningless
    found = []
    if not isinstance(problem, CVRP) and len(routes) != 1:
        found.append(f"{len(routes)} routes where one is expected")
    counts = Counter(visited)
    depots = set() if problem.name == "tsp" else {0}
    if depots & counts.keys():
        found.append(f"the depot, {_names(problem, [0])}, is inside a route")
    twice = [node for node, times in counts.items() if times > 1 and node not in depots]
    if twice:
        found.append(f"visited more than once: {_names(problem, twice)}")
    missing = [node for node in range(nodes) if node not in counts.keys() | depots]
    if missing and not isinstance(problem, OP):
        found.append(f"not visited: {_names(problem, missing)}")
    if isinstance(problem, CVRP):
        found += _overloaded(problem, routes)
    if isinstance(problem, OP):
        found += _too_long(problem, routes)
    return found


def _overloaded(problem: CVRP, routes: Routes) -> list[str]:
    capacity = float(problem.capacity[0])
    found = []
    for number, route in enumerate(routes, start=1):
        load = math.fsum(problem.demands[0, node] for node in route)
        if load > capacity:
            excess = load - capacity
            found.append(
                f"route {number} loads {load:g}, {excess:g} above capacity {capacity:g}"
            )
    return found


def _too_long(problem: OP, routes: Routes) -> list[str]:
    length, limit = float(problem.length([routes])[0]), float(problem.limit[0])
    if length <= limit:
        return []
    return [
        f"the route is {length:.12g} long, {length - limit:.6g} above limit {limit:g}"
    ]


def _names(problem: Problem, ids: list[int]) -> str:
    """Returns nodes as the instance file numbers them, and customers of a CVRP."""
    shown = []
    for node in ids[:SHOWN]:
        number = node if problem.numbers is None else problem.numbers[node]
        customer = problem.name == "cvrp" and node and number != node
        # Solution files of CVRPLIB count customers without the depot.
        shown.append(f"{number} (customer {node})" if customer else str(number))
    rest = len(ids) - len(shown)
    more = f" and {rest} more" if rest else ""
    return f"node{'s' if len(ids) > 1 else ''} {', '.join(shown)}{more}"
