"""Instances in the formats of TSPLIB, VRPLIB and OPLIB.

References: G. Reinelt, "TSPLIB 95"; the CVRPLIB pages; the OPLIB repository. A file
that asks for something the problem classes cannot express (a fleet's duration limit,
fixed edges, asymmetric distances) is refused rather than read as another problem.
"""

import re
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy import ndarray

from renco.formats import nodes, weights
from renco.formats.files import failure, shown
from renco.formats.sections import Document, parse
from renco.metrics import EXPLICIT, METRICS
from renco.problems import CVRP, OP, TSP, Problem

MAX_NODES = 100_000
"""Most nodes of an instance; a larger number is taken for a mistake."""

TYPES = {
    "TSP": ("EDGE_WEIGHT_SECTION", "NODE_COORD_SECTION", "DISPLAY_DATA_SECTION"),
    "CVRP": ("DEMAND_SECTION", "DEPOT_SECTION"),
    "OP": ("NODE_SCORE_SECTION", "DEPOT_SECTION"),
}
"""The supported types, and the sections that each has beside those of a TSP."""

_KEYS = {
    "TSP": (
        *("NAME", "TYPE", "DIMENSION", "EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT"),
        *("NODE_COORD_TYPE", "DISPLAY_DATA_TYPE", "EDGE_DATA_FORMAT", "BEST_KNOWN"),
    ),
    # The size of the fleet is information: CVRPLIB's best solutions ignore it.
    "CVRP": ("CAPACITY", "VEHICLES", "DISTANCE", "SERVICE_TIME"),
    "OP": ("COST_LIMIT", "TSP_SOLUTION", "NODE_SCORE_FORMAT"),
}

_UNSUPPORTED = {
    "ATSP": "asymmetric distances",
    "SOP": "sequential ordering",
    "HCP": "Hamiltonian cycles in a graph",
    "TOUR": "a solution, not an instance",
    "EUC_3D": "3-D coordinates",
    "MAN_3D": "3-D coordinates",
    "MAX_3D": "3-D coordinates",
    "THREED_COORDS": "3-D coordinates",
    "XRAY1": "crystallography distances",
    "XRAY2": "crystallography distances",
    "SPECIAL": "distances described elsewhere",
    "FIXED_EDGES_SECTION": "edges that the tour must contain",
    "EDGE_DATA_SECTION": "graphs with some of the edges",
    "TOUR_SECTION": "a solution, not an instance",
    "NODE_SEQUENCE_SECTION": "a solution, not an instance",
}

# "Optimal value: 784" in set A, "Best value: 27591" in set X.
_BEST = re.compile(
    r"\b(?:optimal|best)(?: known)?(?: value| solution| cost)?\s*[:=]\s*"
    r"(\d+(?:\.\d+)?)(?![\d,.]*\d)"
)
_UNROUNDED = ("euclidean", "EXACT_2D", EXPLICIT)


def read_lib(text: str, source: str) -> Problem:
    """Returns the instance in the text of a TSPLIB, VRPLIB or OPLIB file.

    Nodes keep the file's order, except that the depot comes first; `numbers` has the
    file's own numbering. The score that OPLIB gives to the depot is the same for all
    tours and left out: published OPLIB scores are higher by that constant.

    Raises:
        FormatError: The file is malformed or asks for something unsupported.
    """
    if re.match(r"\s*route\s*#", text, re.IGNORECASE):
        raise failure(source, "holds routes: a solution, not an instance")
    document = parse(text, source)
    kind = _kind(document)
    dimension = _dimension(document)
    metric = _metric(document)
    coords, first = _coordinates(document, dimension, metric)
    matrix = weights.matrix(document, dimension) if metric == EXPLICIT else None
    depot = 0 if kind == "TSP" else nodes.depot(document, first, dimension)
    order = np.concatenate([[depot], np.delete(np.arange(dimension), depot)])
    common: dict[str, Any] = {
        "metric": metric,
        "matrix": None if matrix is None else matrix[np.ix_(order, order)],
        "title": document.keys["NAME"].text if "NAME" in document.keys else "",
        "numbers": tuple((order + first).tolist()),
        "best_known": _best_known(document, kind, metric),
    }
    coords = coords[order]
    if kind == "CVRP":
        capacity = _capacity(document)
        demands = nodes.demands(document, first, dimension, capacity, depot)
        return CVRP(coords, demands[order], capacity, **common)
    if kind == "OP":
        limit = document.positive("COST_LIMIT")
        scores = nodes.scores(document, first, dimension)
        scores[depot] = 0.0
        return OP(coords, scores[order], limit, **common)
    return TSP(coords, **common)


def _kind(document: Document) -> str:
    """Returns the type, once all keys and sections are known to belong to it."""
    kind = document.word("TYPE")
    if kind not in TYPES:
        _refuse(document, "TYPE", kind, document.keys["TYPE"].line, TYPES)
    keys = {*_KEYS["TSP"], *_KEYS[kind]}
    sections = {*TYPES["TSP"], *TYPES[kind]}
    found = [("key", name, value.line) for name, value in document.keys.items()]
    found += [("section", s.name, s.line) for s in document.sections.values()]
    for what, name, line in sorted(found, key=lambda item: item[2]):
        if name in (keys if what == "key" else sections):
            continue
        if any(name in (*TYPES[other], *_KEYS[other]) for other in TYPES):
            raise document.error(f"{name} does not belong to TYPE {kind}", line)
        _refuse(document, what, name, line)
    return kind


def _refuse(
    document: Document, what: str, name: str, line: int, known: Iterable[str] = ()
) -> NoReturn:
    if name in _UNSUPPORTED:
        reason = f"{_UNSUPPORTED[name]} ({what} {name})"
        raise document.error(f"not supported: {reason}", line)
    names = ", ".join(known)
    expected = f": expected one of {names}" if names else ""
    raise document.error(f"unknown {what} {shown(name)}{expected}", line)


def _dimension(document: Document) -> int:
    value = document.required("DIMENSION")
    dimension = document.integer(value.text, value.line, "DIMENSION")
    if not 1 <= dimension <= MAX_NODES:
        what = f"DIMENSION must be in 1..{MAX_NODES}, got {dimension}"
        raise document.error(what, value.line)
    return dimension


def _metric(document: Document) -> str:
    metric = document.word("EDGE_WEIGHT_TYPE")
    line = document.keys["EDGE_WEIGHT_TYPE"].line
    known = [*(m for m in METRICS if m != "euclidean"), EXPLICIT]
    if metric not in known:
        _refuse(document, "EDGE_WEIGHT_TYPE", metric, line, known)
    if "NODE_COORD_TYPE" in document.keys:
        style = document.word("NODE_COORD_TYPE")
        if style not in ("TWOD_COORDS", "NO_COORDS"):
            line = document.keys["NODE_COORD_TYPE"].line
            _refuse(document, "NODE_COORD_TYPE", style, line, ["TWOD_COORDS"])
    if metric != EXPLICIT:
        if "EDGE_WEIGHT_SECTION" in document.sections:
            what = f"EDGE_WEIGHT_SECTION needs EDGE_WEIGHT_TYPE EXPLICIT, got {metric}"
            raise document.error(what, document.sections["EDGE_WEIGHT_SECTION"].line)
        if "EDGE_WEIGHT_FORMAT" in document.keys:
            style = document.word("EDGE_WEIGHT_FORMAT")
            if style != "FUNCTION":
                line = document.keys["EDGE_WEIGHT_FORMAT"].line
                what = f"EDGE_WEIGHT_FORMAT of {metric} must be FUNCTION, got {style}"
                raise document.error(what, line)
    return metric


def _coordinates(
    document: Document, dimension: int, metric: str
) -> tuple[ndarray, int]:
    """Returns the coordinates and the number of the first node, zero or one."""
    names = ["NODE_COORD_SECTION", "DISPLAY_DATA_SECTION"]
    if metric != EXPLICIT:
        document.section(names[0])
    tables = [
        nodes.table(document, document.sections[name], dimension, ("x", "y"))
        for name in names
        if name in document.sections
    ]
    if not tables:
        raise document.error(
            "EXPLICIT distances without coordinates: the model needs a "
            "NODE_COORD_SECTION or DISPLAY_DATA_SECTION"
        )
    return tables[0]


def _capacity(document: Document) -> float:
    for key in ("DISTANCE", "SERVICE_TIME"):
        if key not in document.keys:
            continue
        value = document.keys[key]
        # Without a limit on the duration, service that takes no time is no matter.
        if key == "DISTANCE" or document.number(value.text, value.line, key) != 0:
            what = f"{key} {value.text}: a limit on the length of a route is "
            raise document.error(what + "not supported", value.line)
    return document.positive("CAPACITY")


def _best_known(document: Document, kind: str, metric: str) -> float | None:
    """Returns the cost of the best known solution where the file is clear about it.

    For an OP the file states the prize, and the cost is minus the prize.

    A fraction cannot be the cost under a rounding metric: some sets of CVRPLIB quote
    unrounded costs in files that declare EUC_2D.
    """
    best: float | None = None
    if "BEST_KNOWN" in document.keys:
        best = document.positive("BEST_KNOWN")
    elif found := _BEST.search(document.comment.lower()):
        best = float(found[1])
    if best is None or kind == "OP":
        return None if best is None else -best
    return best if metric in _UNROUNDED or best.is_integer() else None
