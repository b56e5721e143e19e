"""Sections of the TSPLIB family with a row for each node, and the depot."""

import numpy as np
from numpy import ndarray

from renco.formats.files import shown
from renco.formats.sections import Document, Section


def table(
    document: Document,
    section: Section,
    dimension: int,
    columns: tuple[str, ...],
    first: int | None = None,
) -> tuple[ndarray, int]:
    """Returns the rows of a section sorted by node, and the first node's number."""
    rows: dict[int, list[float]] = {}
    lines: dict[int, int] = {}
    for line, content in section.rows:
        tokens = content.split()
        if len(tokens) != len(columns) + 1:
            expected = " ".join(("node", *columns))
            hint = ""
            if len(tokens) == 4 and columns == ("x", "y"):
                hint = " (3-D coordinates are not supported)"
            what = f"expected {expected}, got {shown(content)}{hint}"
            raise document.error(what, line)
        node = document.integer(tokens[0], line, "the node's number")
        if node in rows:
            what = f"node {node} comes again, first on line {lines[node]}"
            raise document.error(what, line)
        values = zip(tokens[1:], columns, strict=True)
        rows[node] = [document.number(token, line, name) for token, name in values]
        lines[node] = line
    if first is None:
        first = 0 if 0 in rows else 1
    for node, line in lines.items():
        if not first <= node < first + dimension:
            what = f"node {node} is not one of {first}..{first + dimension - 1}"
            raise document.error(what, line)
    if len(rows) < dimension:
        missing = next(i for i in range(first, first + dimension) if i not in rows)
        what = (
            f"{section.name} has {len(rows)} rows, DIMENSION is {dimension}: "
            f"node {missing} is missing"
        )
        raise document.error(what, section.line)
    return np.array([rows[first + i] for i in range(dimension)]), first


def depot(document: Document, first: int, dimension: int) -> int:
    """Returns the place of the depot among the nodes."""
    section = document.section("DEPOT_SECTION")
    depots: list[tuple[int, int]] = []
    ended = False
    for line, content in section.rows:
        for token in content.split():
            node = document.integer(token, line, "the depot's number")
            if ended:
                what = f"DEPOT_SECTION goes on with {node} after -1"
                raise document.error(what, line)
            ended = node == -1
            if not ended:
                depots.append((node, line))
    if not ended:
        raise document.error("DEPOT_SECTION does not end with -1", section.line)
    if not depots:
        raise document.error("DEPOT_SECTION names no depot", section.line)
    if len(depots) > 1:
        what = f"one depot is supported, got a second one, node {depots[1][0]}"
        raise document.error(what, depots[1][1])
    node, line = depots[0]
    if not first <= node < first + dimension:
        what = f"depot {node} is not one of {first}..{first + dimension - 1}"
        raise document.error(what, line)
    return node - first


def demands(
    document: Document, first: int, dimension: int, capacity: float, depot: int
) -> ndarray:
    """Returns the demands in the order of the nodes; the depot's must be zero."""
    section = document.section("DEMAND_SECTION")
    demands = table(document, section, dimension, ("demand",), first)[0][:, 0]
    if demands[depot] != 0:
        what = f"demand of the depot must be 0, got {demands[depot]:g}"
        raise document.error(what, _line_of(document, section, first + depot))
    wrong = np.flatnonzero((demands < 0) | (demands > capacity))
    if len(wrong):
        node, demand = int(wrong[0]) + first, demands[wrong[0]]
        rule = "negative" if demand < 0 else f"above the capacity {capacity:g}"
        what = f"demand {demand:g} of node {node} is {rule}"
        raise document.error(what, _line_of(document, section, node))
    return demands


def scores(document: Document, first: int, dimension: int) -> ndarray:
    """Returns the scores in the order of the nodes, as OPLIB has them."""
    section = document.section("NODE_SCORE_SECTION")
    scores = table(document, section, dimension, ("score",), first)[0][:, 0]
    if (scores < 0).any():
        place = int(np.argmax(scores < 0))
        what = f"score {scores[place]:g} of node {place + first} is negative"
        raise document.error(what, _line_of(document, section, place + first))
    return scores


def _line_of(document: Document, section: Section, node: int) -> int:
    """Returns the line of a node's row, for an error message."""
    rows = section.rows
    return next(line for line, content in rows if int(content.split()[0]) == node)
