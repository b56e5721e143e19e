"""Instances as JSON: one object each, or a list of them.

`{"problem": "tsp", "coords": [[x, y], ...]}`; a CVRP adds `"depot": 0, "demands":
[...], "capacity": Q`, an OP `"depot": 0, "prizes": [...], "limit": D`. The lists have a
value for every node, zero for the depot. Optional: `"name"`, `"metric"` (default
`"euclidean"`), `"matrix"` (with metric `"EXPLICIT"`) and `"best_known"` (a cost: for
an OP, minus the prize). Nodes are numbered from 0.
"""

import json
from collections import Counter
from typing import Any, NoReturn

import numpy as np

from renco.formats.files import MAX_BYTES, FormatError, decoded, failure, shown
from renco.formats.sections import LARGEST
from renco.formats.tsplib import MAX_NODES
from renco.formats.weights import MAX_MATRIX
from renco.metrics import EXPLICIT, METRICS
from renco.problems import CVRP, OP, TSP, Problem

REQUIRED = {
    "tsp": ("problem", "coords"),
    "cvrp": ("problem", "coords", "demands", "capacity"),
    "op": ("problem", "coords", "prizes", "limit"),
}
"""The keys that an instance of each problem must have."""

_OPTIONAL = ("name", "metric", "matrix", "best_known")


def read_json(
    text: str | bytes | dict[str, Any] | list[Any], source: str = "<stdin>"
) -> list[Problem]:
    """Returns the instances of a JSON text, or of the objects parsed from one.

    Args:
        text: One instance or a list of them.
        source: What error messages call the input.

    Raises:
        FormatError: The text is not JSON, or not an instance.
    """
    if isinstance(text, str | bytes) and len(text) > MAX_BYTES:
        raise failure(source, f"is larger than {MAX_BYTES // 2**20} MB")
    if isinstance(text, bytes):
        text = decoded(text, source)
    value = parse_json(text, source) if isinstance(text, str) else text
    if isinstance(value, list):
        if not value:
            raise failure(source, "the list of instances is empty")
        return [_Reader(source, f"[{i}]").read(item) for i, item in enumerate(value)]
    return [_Reader(source, "").read(value)]


def parse_json(text: str, source: str) -> Any:
    """Returns the value of a JSON text, strictly: no NaN, no key twice."""

    def constant(name: str) -> NoReturn:
        raise failure(source, f"{name} is not a number of JSON")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice = Counter(key for key, _ in items).most_common(1)[0][0]
            raise failure(source, f"key {shown(twice)} comes twice in one object")
        return found

    try:
        return json.loads(
            text.removeprefix("\ufeff"),
            parse_constant=constant,
            object_pairs_hook=pairs,
        )
    except FormatError:
        raise
    except json.JSONDecodeError as error:
        what = f"is not JSON: {error.msg}, column {error.colno}"
        raise failure(source, what, error.lineno) from None
    except RecursionError:
        raise failure(source, "is nested too deeply") from None
    except ValueError as error:  # integers of thousands of digits
        raise failure(source, f"is not JSON: {error}") from None


class _Reader:
    """Checks one instance; `place` tells its errors from those of its neighbours."""

    def __init__(self, source: str, place: str) -> None:
        self.source = source
        self.place = place

    def fail(self, what: str, key: str = "") -> NoReturn:
        dot = "." if self.place and key else ""
        where = f"{self.place}{dot}{key}"
        raise failure(self.source, f"{where}: {what}" if where else what)

    def read(self, value: Any) -> Problem:
        """Returns the instance, or raises."""
        if not isinstance(value, dict):
            self.fail(f"an instance is an object, got {_type(value)}")
        problem = self._problem(value)
        coords = self._coords(value["coords"])
        nodes = len(coords)
        metric = self._metric(value)
        depot = self._depot(value.get("depot", 0), nodes) if problem != "tsp" else 0
        order = [depot, *(i for i in range(nodes) if i != depot)]
        common: dict[str, Any] = {
            "metric": metric,
            "matrix": self._matrix(value, metric, order),
            "title": self._title(value.get("name", "")),
            "numbers": tuple(order) if depot else None,
            "best_known": self._best(value.get("best_known"), problem),
        }
        coords = coords[order]
        if problem == "cvrp":
            demands = self._per_node(value, "demands", nodes, depot)
            capacity = self._positive(value["capacity"], "capacity")
            if len(high := np.flatnonzero(demands > capacity)):
                what = f"{demands[high[0]]:g} is above the capacity {capacity:g}"
                self.fail(what, f"demands[{high[0]}]")
            return CVRP(coords, demands[order], capacity, **common)
        if problem == "op":
            prizes = self._per_node(value, "prizes", nodes, depot)
            limit = self._positive(value["limit"], "limit")
            return OP(coords, prizes[order], limit, **common)
        return TSP(coords, **common)

    def _problem(self, value: dict[str, Any]) -> str:
        if "problem" not in value:
            self.fail("key 'problem' is missing")
        problem = value["problem"]
        if not isinstance(problem, str) or problem not in REQUIRED:
            known = ", ".join(REQUIRED)
            self.fail(f"expected one of {known}, got {shown(problem)}", "problem")
        allowed = {*REQUIRED[problem], *_OPTIONAL}
        allowed |= {"depot"} if problem != "tsp" else set()
        if unknown := [key for key in value if key not in allowed]:
            names = ", ".join(shown(key) for key in unknown[:5])
            plural = "s" if len(unknown) > 1 else ""
            self.fail(f"unknown key{plural} for a {problem}: {names}")
        for key in REQUIRED[problem]:
            if key not in value:
                self.fail(f"key {key!r} is missing")
        return str(problem)

    def _number(self, value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"expected a number, got {_type(value)}", key)
        if not abs(value) <= LARGEST:  # true for nan; isfinite fails on huge integers
            self.fail(f"must be at most {LARGEST:g} in size, got {shown(value)}", key)
        return float(value)

    def _positive(self, value: Any, key: str) -> float:
        number = self._number(value, key)
        if number <= 0:
            self.fail(f"must be positive, got {number:g}", key)
        return number

    def _list(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"expected a list, got {_type(value)}", key)
        return value

    def _coords(self, value: Any) -> np.ndarray:
        points = self._list(value, "coords")
        if not 1 <= len(points) <= MAX_NODES:
            self.fail(f"expected 1..{MAX_NODES} points, got {len(points)}", "coords")
        result = np.empty((len(points), 2))
        for i, point in enumerate(points):
            pair = self._list(point, f"coords[{i}]")
            if len(pair) != 2:
                self.fail(f"expected [x, y], got {shown(point)}", f"coords[{i}]")
            for j in (0, 1):
                result[i, j] = self._number(pair[j], f"coords[{i}][{j}]")
        return result

    def _per_node(
        self, value: dict[str, Any], key: str, nodes: int, depot: int
    ) -> np.ndarray:
        items = self._list(value[key], key)
        if len(items) != nodes:
            what = f"expected a value for each of the {nodes} nodes, the depot too"
            self.fail(f"{what}, got {len(items)}", key)
        numbers = [self._number(item, f"{key}[{i}]") for i, item in enumerate(items)]
        for i, number in enumerate(numbers):
            if number < 0:
                self.fail(f"must not be negative, got {number:g}", f"{key}[{i}]")
        if numbers[depot] != 0:
            what = f"must be 0 at the depot, got {numbers[depot]:g}"
            self.fail(what, f"{key}[{depot}]")
        return np.array(numbers)

    def _metric(self, value: dict[str, Any]) -> str:
        metric = value.get("metric", "euclidean")
        known = [*METRICS, EXPLICIT]
        if not isinstance(metric, str) or metric not in known:
            names = ", ".join(known)
            self.fail(f"expected one of {names}, got {shown(metric)}", "metric")
        if (metric == EXPLICIT) != ("matrix" in value):
            self.fail(f"a matrix and metric EXPLICIT go together, got {metric}")
        return str(metric)

    def _matrix(
        self, value: dict[str, Any], metric: str, order: list[int]
    ) -> np.ndarray | None:
        if metric != EXPLICIT:
            return None
        nodes = len(order)
        rows = self._list(value["matrix"], "matrix")
        if nodes > MAX_MATRIX:
            self.fail(f"at most {MAX_MATRIX} nodes can have one, got {nodes}", "matrix")
        if len(rows) != nodes:
            self.fail(f"expected {nodes} rows, got {len(rows)}", "matrix")
        result = np.empty((nodes, nodes))
        for i, row in enumerate(rows):
            if len(self._list(row, f"matrix[{i}]")) != nodes:
                self.fail(f"expected {nodes} numbers, got {len(row)}", f"matrix[{i}]")
            for j, item in enumerate(row):
                result[i, j] = self._number(item, f"matrix[{i}][{j}]")
        wrong = np.argwhere((result < 0) | (result != result.T))
        if len(wrong):
            i, j = map(int, wrong[0])
            there, back = result[i, j], result[j, i]
            rule = "negative" if there < 0 else f"not symmetric: {back:g} back"
            self.fail(f"{there:g} is {rule}", f"matrix[{i}][{j}]")
        np.fill_diagonal(result, 0.0)
        return result[np.ix_(order, order)]

    def _depot(self, value: Any, nodes: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"expected the number of a node, got {shown(value)}", "depot")
        if not 0 <= value < nodes:
            self.fail(f"{shown(value)} is not one of 0..{nodes - 1}", "depot")
        return value

    def _title(self, value: Any) -> str:
        if not isinstance(value, str) or not value.isprintable():
            self.fail(f"expected one line of text, got {shown(value)}", "name")
        return value

    def _best(self, value: Any, problem: str) -> float | None:
        if value is None:
            return None
        best = self._number(value, "best_known")
        if (best > 0) if problem == "op" else (best < 0):
            rule = "minus the prize" if problem == "op" else "a length"
            self.fail(f"the cost of a {problem} is {rule}, got {best:g}", "best_known")
        return best


def _type(value: Any) -> str:
    """Returns what JSON calls the type of a value."""
    names = {bool: "true or false", str: "text", dict: "an object", list: "a list"}
    if value is None:
        return "null"
    return names.get(type(value), shown(value))
