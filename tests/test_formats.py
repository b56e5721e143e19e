"""Reading and writing instances and solutions."""

import itertools
import json
import math
import os
import stat
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tsplib95
import vrplib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from renco import formats
from renco.formats import read, read_json, read_solution, write, write_solution
from renco.metrics import METRICS, distance
from renco.problems import CVRP, OP, PROBLEMS, TSP, Infeasible, Problem

SHIPPED = Path(str(resources("renco"))) / "instances"
INSTANCES = sorted(p for p in SHIPPED.iterdir() if p.suffix != ".md")
COORDS = "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 0 4\n"
HEAD = "TYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n"


def read_text(tmp_path: Path, text: str | bytes, name: str = "a.tsp") -> Problem:
    """Reads an instance from a text."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


# Distances -------------------------------------------------------------------

DISTANCES = [
    ("euclidean", (0, 0), (3, 4), 5.0),
    ("euclidean", (0, 0), (1, 1), math.sqrt(2)),
    ("euclidean", (5e6, 5e6), (5e6 + 0.1, 5e6), 0.1),
    ("EXACT_2D", (0, 0), (1, 1), math.sqrt(2)),
    ("EXACT_2D", (0, 0), (2.5, 0), 2.5),
    ("EXACT_2D", (-3, 0), (0, -4), 5.0),
    ("EUC_2D", (0, 0), (2.5, 0), 3.0),  # half goes up, not to the even number
    ("EUC_2D", (0, 0), (2.49, 0), 2.0),
    ("EUC_2D", (0, 0), (1, 1), 1.0),
    ("EUC_2D", (0, 0), (3.5, 0), 4.0),
    ("CEIL_2D", (0, 0), (1, 1), 2.0),
    ("CEIL_2D", (0, 0), (3, 4), 5.0),
    ("CEIL_2D", (0, 0), (0, 2.01), 3.0),
    ("FLOOR_2D", (0, 0), (1, 1), 1.0),
    ("FLOOR_2D", (0, 0), (3, 4), 5.0),
    ("FLOOR_2D", (0, 0), (0, 2.99), 2.0),
    ("MAN_2D", (0, 0), (3, -4), 7.0),
    ("MAN_2D", (0, 0), (1.2, 1.3), 3.0),
    ("MAN_2D", (1, 1), (1, 1), 0.0),
    ("MAX_2D", (0, 0), (3, -4), 4.0),
    ("MAX_2D", (0, 0), (2.5, 1), 3.0),
    ("MAX_2D", (7, 2), (1, 2), 6.0),
    ("ATT", (6734, 1453), (2233, 10), 1495.0),  # first two cities of att48
    ("ATT", (0, 0), (10, 0), 4.0),  # 3.16 rounds down to 3, which is too short
    ("ATT", (0, 0), (10, 30), 10.0),  # exact
    ("GEO", (38.24, 20.42), (39.57, 26.15), 509.0),  # first two of ulysses16
    ("GEO", (38.24, 20.42), (36.08, -5.21), 2314.0),  # ... and its eleventh
    ("GEO", (38.24, 20.42), (38.24, 20.42), 0.0),  # the formula alone says 1
]


@pytest.mark.parametrize(("metric", "a", "b", "expected"), DISTANCES)
def test_distance_follows_the_rule_of_its_type(
    metric: str, a: tuple[float, float], b: tuple[float, float], expected: float
) -> None:
    """Published and hand-computed values come out, in both directions."""
    first, second = np.array(a, dtype=float), np.array(b, dtype=float)
    there, back = distance(metric, first, second), distance(metric, second, first)
    assert there == pytest.approx(expected, abs=1e-9)
    assert there == back
    if metric not in ("euclidean", "EXACT_2D"):
        assert there == expected


def test_every_metric_has_three_constants() -> None:
    """No type is left without published or hand-computed values."""
    counts = {metric: sum(d[0] == metric for d in DISTANCES) for metric in METRICS}
    assert min(counts.values()) >= 3


# Explicit matrices -----------------------------------------------------------

MATRIX = np.array(
    [[0, 12, 13, 14], [12, 0, 23, 24], [13, 23, 0, 34], [14, 24, 34, 0]], dtype=float
)
# Row and column of each number in the file, as TSPLIB 95 defines the formats.
ALL = list(itertools.product(range(4), range(4)))
BY_COLUMN = [(i, j) for j, i in ALL]
FORMATS = {
    "FULL_MATRIX": ALL,
    "UPPER_ROW": [(i, j) for i, j in ALL if i < j],
    "LOWER_ROW": [(i, j) for i, j in ALL if i > j],
    "UPPER_DIAG_ROW": [(i, j) for i, j in ALL if i <= j],
    "LOWER_DIAG_ROW": [(i, j) for i, j in ALL if i >= j],
    "UPPER_COL": [(i, j) for i, j in BY_COLUMN if i < j],
    "LOWER_COL": [(i, j) for i, j in BY_COLUMN if i > j],
    "UPPER_DIAG_COL": [(i, j) for i, j in BY_COLUMN if i <= j],
    "LOWER_DIAG_COL": [(i, j) for i, j in BY_COLUMN if i >= j],
}


@pytest.mark.parametrize("wrap", [1, 3, 100])
@pytest.mark.parametrize("style", FORMATS)
def test_matrix_is_read_however_it_is_laid_out(
    tmp_path: Path, style: str, wrap: int
) -> None:
    """The order of the numbers counts, the line breaks do not."""
    numbers = [f"{MATRIX[place]:g}" for place in FORMATS[style]]
    lines = [" ".join(numbers[i : i + wrap]) for i in range(0, len(numbers), wrap)]
    text = (
        "TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
        f"EDGE_WEIGHT_FORMAT: {style} \nEDGE_WEIGHT_SECTION\n"
        + "\n".join(lines)
        + "\nDISPLAY_DATA_SECTION\n1 0 0\n2 0 9\n3 9 9\n4 9 0\nEOF\n"
    )
    problem = read_text(tmp_path, text)
    assert problem.metric == "EXPLICIT"
    assert_array_equal(problem.matrix, MATRIX)
    assert problem.cost([[[0, 1, 2, 3]]])[0] == 12 + 23 + 34 + 14


def test_diagonal_of_a_matrix_is_not_used(tmp_path: Path) -> None:
    """Files forbid staying with large numbers; staying is free all the same."""
    text = (
        "TYPE: TSP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
        "EDGE_WEIGHT_FORMAT: FULL_MATRIX\nEDGE_WEIGHT_SECTION\n9999 1\n1 9999\n"
        "NODE_COORD_SECTION\n1 0 0\n2 0 1\n"
    )
    problem = read_text(tmp_path, text)
    assert_array_equal(problem.matrix, [[0, 1], [1, 0]])


def test_matrix_follows_the_depot_to_the_front(tmp_path: Path) -> None:
    """Rows and columns are reordered with the nodes."""
    text = (
        "TYPE: OP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nCOST_LIMIT: 99\n"
        "EDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION\n12 13 14 23 24 34\n"
        "DISPLAY_DATA_SECTION\n1 0 0\n2 0 9\n3 9 9\n4 9 0\n"
        "NODE_SCORE_SECTION\n1 10\n2 20\n3 30\n4 40\nDEPOT_SECTION\n3\n-1\nEOF\n"
    )
    problem = read_text(tmp_path, text)
    assert problem.numbers == (3, 1, 2, 4)
    assert problem.matrix is not None
    assert_array_equal(problem.matrix[0], [0, 13, 23, 34])
    assert problem.length([[[1, 3]]])[0] == 13 + 14 + 34
    assert problem.cost([[[1, 3]]])[0] == -50


# Spellings -------------------------------------------------------------------

SPELLINGS = {
    "plain": HEAD + COORDS + "EOF\n",
    "no EOF": HEAD + COORDS,
    "after EOF": HEAD + COORDS + "EOF\nanything 1 2 3\n",
    "indented EOF": HEAD + COORDS + " eof \n\n",
    "no newline at the end": HEAD + COORDS.strip(),
    "windows": (HEAD + COORDS).replace("\n", "\r\n"),
    "old mac": (HEAD + COORDS).replace("\n", "\r"),
    "byte order mark": "\ufeff" + HEAD + COORDS,
    "end of file of DOS": HEAD + COORDS + "\x1a",
    "tabs": (HEAD + COORDS).replace(" ", "\t"),
    "no blanks": HEAD.replace(" ", "") + COORDS,
    "trailing blanks": (HEAD + COORDS).replace("\n", "  \n"),
    "blank lines": (HEAD + COORDS).replace("\n", "\n\n"),
    "lower case": (HEAD + COORDS).lower(),
    "no colons": HEAD.replace(" :", "") + COORDS,
    "colon after section": HEAD + COORDS.replace("SECTION", "SECTION :"),
    "data beside section": HEAD + COORDS.replace("SECTION\n", "SECTION "),
    "section before keys": COORDS + HEAD,
    "shuffled nodes": HEAD + "NODE_COORD_SECTION\n3 0 4\n1 0 0\n2 3 0\n",
    "scientific": HEAD + "NODE_COORD_SECTION\n1 0 .0\n2 +3.0e+00 0e5\n3 0. 40E-1\n",
    "words after the type": HEAD.replace("TSP", "TSP (M.~Hofmeister)") + COORDS,
    "words after the metric": HEAD.replace("2D", "2D (rounded)") + COORDS,
    "comment with colons": "COMMENT: a: b: c\n" + HEAD + COORDS,
    "comment with EOF": "COMMENT : the EOF file\nCOMMENT : EOF\n" + HEAD + COORDS,
    "comment with section": "COMMENT : NODE_COORD_SECTION\n" + HEAD + COORDS,
    "comment empty": "COMMENT :\nCOMMENT:\n" + HEAD + COORDS,
    "name EOF": "NAME : EOF\n" + HEAD + COORDS,
    "name section": "NAME : DEMAND_SECTION\n" + HEAD + COORDS,
    "name empty": "NAME :\n" + HEAD + COORDS,
    "display as well": HEAD + COORDS + "DISPLAY_DATA_SECTION\n1 9 9\n2 8 8\n3 7 7\n",
    "all keys": "NODE_COORD_TYPE : TWOD_COORDS\nEDGE_WEIGHT_FORMAT : FUNCTION\n"
    "DISPLAY_DATA_TYPE : COORD_DISPLAY\n" + HEAD + COORDS,
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_spelling_does_not_matter(tmp_path: Path, text: str) -> None:
    """All spellings found in the libraries mean the same instance."""
    problem = read_text(tmp_path, text)
    assert isinstance(problem, TSP)
    assert problem.metric == "EUC_2D"
    assert problem.numbers == (1, 2, 3)
    assert_array_equal(problem.coords[0], [[0, 0], [3, 0], [0, 4]])


def test_comments_may_be_in_latin_1(tmp_path: Path) -> None:
    """Files that are not UTF-8 have accents in names and comments, not in numbers."""
    text = "NAME : München\nCOMMENT : \x85 Großstädte\n" + HEAD + COORDS
    problem = read_text(tmp_path, text.encode("latin-1"))
    assert problem.title == "München"


def test_type_follows_from_the_contents(tmp_path: Path) -> None:
    """The suffix does not tell a TSP from the others."""
    assert isinstance(read_text(tmp_path, HEAD + COORDS, "a.vrp"), TSP)
    assert isinstance(read_text(tmp_path, HEAD + COORDS, "a.b.c"), TSP)


def test_nodes_may_count_from_zero(tmp_path: Path) -> None:
    """Such files keep their numbers."""
    text = HEAD + "NODE_COORD_SECTION\n0 0 0\n1 3 0\n2 0 4\n"
    assert read_text(tmp_path, text).numbers == (0, 1, 2)


CVRP_TEXT = (
    "NAME : toy\nTYPE : CVRP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\n"
    "CAPACITY : 7.5\nVEHICLES : 2\nSERVICE_TIME : 0\n"
    "NODE_COORD_SECTION\n1 0 1\n2 0 2\n3 0 3\n4 0 4\n"
    "DEMAND_SECTION\n1 1\n2 2\n3 0\n4 0.5\nDEPOT_SECTION\n 3 -1\nEOF\n"
)


def test_depot_comes_first_and_numbers_remember(tmp_path: Path) -> None:
    """The others keep the order of the file; demands may be zero or fractions."""
    problem = read_text(tmp_path, CVRP_TEXT)
    assert isinstance(problem, CVRP)
    assert problem.numbers == (3, 1, 2, 4)
    assert_array_equal(problem.coords[0, :, 1], [3, 1, 2, 4])
    assert_array_equal(problem.demands[0], [0, 1, 2, 0.5])
    assert problem.capacity[0] == 7.5
    assert problem.title == "toy"


def test_demand_may_fill_a_vehicle(tmp_path: Path) -> None:
    """The capacity itself is not above the capacity."""
    text = CVRP_TEXT.replace("7.5", "2")
    assert read_text(tmp_path, text).cost([[[2], [1, 3]]])[0] == 8
    instance = {"problem": "cvrp", "coords": [[0, 0], [0, 3]], "demands": [0, 2]}
    assert read_json(instance | {"capacity": 2})[0].cost([[[1]]])[0] == 6


def test_score_of_the_depot_is_left_out(tmp_path: Path) -> None:
    """OPLIB gives the depot a score, which every tour collects."""
    path = SHIPPED / "demo-op100.oplib"
    raw = vrplib.read_instance(path, compute_edge_weights=False)
    problem = read(path)
    assert isinstance(problem, OP)
    assert raw["node_score"][0] > 0
    assert_array_equal(problem.prizes[0], [0, *raw["node_score"][1:]])


BEST = {
    "COMMENT : (Augerat et al, No of trucks: 5, Optimal value: 784)": 784,
    "COMMENT : (Augerat et al, Min no of trucks: 8, Best value: 631)": 631,
    "COMMENT : Best known value = 27591.": 27591,
    "COMMENT : best known: 27591": 27591,
    "BEST_KNOWN : 521": 521,
    "COMMENT : 1618.36": None,  # nothing says what it is
    "COMMENT : Optimal value: 1618.36": None,  # not a sum of rounded distances
    "COMMENT : Best value: 27,591": None,
    "COMMENT : the best of 12 tries": None,
    "COMMENT : Optimal value unknown": None,
    "COMMENT : 784": None,
}


@pytest.mark.parametrize(("line", "expected"), BEST.items())
def test_best_known_cost_is_taken_where_it_is_clear(
    tmp_path: Path, line: str, expected: float | None
) -> None:
    """CVRPLIB states it in comments; a doubtful number is none."""
    assert read_text(tmp_path, line + "\n" + HEAD + COORDS).best_known == expected


def test_best_known_may_be_a_fraction_where_distances_are(tmp_path: Path) -> None:
    """Unrounded distances have unrounded sums."""
    text = "COMMENT : Best value: 12.5\n" + HEAD.replace("EUC", "EXACT") + COORDS
    assert read_text(tmp_path, text).best_known == 12.5


def test_best_known_of_an_op_is_a_cost(tmp_path: Path) -> None:
    """Files state the prize; the cost is minus that."""
    text = (SHIPPED / "demo-op50.oplib").read_text()
    assert read_text(tmp_path, "BEST_KNOWN : 77\n" + text).best_known == -77


# JSON ------------------------------------------------------------------------


def test_json_describes_all_problems() -> None:
    """Text, bytes and parsed objects, one instance or a list."""
    tsp = {"problem": "tsp", "coords": [[0, 0], [1, 0.5]]}
    cvrp = {
        "problem": "cvrp",
        "name": "toy",
        "metric": "EUC_2D",
        "coords": [[0, 1], [0, 2], [0, 3]],
        "depot": 1,
        "demands": [4, 0, 5],
        "capacity": 9,
        "best_known": 4,
    }
    op = {"problem": "op", "coords": [[0, 0]], "prizes": [0], "limit": 2.5}
    first, second, third = read_json([tsp, cvrp, op])
    assert isinstance(first, TSP)
    assert first.metric == "euclidean"
    assert first.numbers is None
    assert isinstance(second, CVRP)
    assert second.numbers == (1, 0, 2)
    assert_array_equal(second.coords[0, :, 1], [2, 1, 3])
    assert_array_equal(second.demands, [[0, 4, 5]])
    assert (second.title, second.metric, second.best_known) == ("toy", "EUC_2D", 4)
    assert isinstance(third, OP)
    assert third.n == 0
    text = json.dumps(tsp)
    for value in (text, "\ufeff" + text, text.encode(), tsp, [tsp]):
        (problem,) = read_json(value)
        assert_array_equal(problem.coords[0], tsp["coords"])


def test_matrix_in_json_follows_the_depot_to_the_front() -> None:
    """Rows and columns are reordered with the nodes."""
    instance = {
        "problem": "op",
        "metric": "EXPLICIT",
        "coords": [[0, 0], [0, 9], [9, 9], [9, 0]],
        "matrix": MATRIX.tolist(),
        "depot": 2,
        "prizes": [1, 2, 0, 4],
        "limit": 100,
    }
    (problem,) = read_json(instance)
    assert problem.matrix is not None
    assert_array_equal(problem.matrix[0], [0, 13, 23, 34])
    assert problem.length([[[1, 3]]])[0] == 13 + 14 + 34


# Other readers as oracles ----------------------------------------------------


@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.name)
def test_shipped_instance_reads(path: Path) -> None:
    """Every shipped file is an instance, titled like the file."""
    problem = read(path)
    assert problem.title == path.stem
    assert problem.title.startswith(f"demo-{problem.name}") or problem.metric == "GEO"
    assert len(problem) == 1


def test_shipped_instances_cover_the_formats() -> None:
    """Two of each library, and one of each problem in JSON."""
    suffixes = [path.suffix for path in INSTANCES]
    counts = {s: suffixes.count(s) for s in (".tsp", ".vrp", ".oplib", ".json")}
    assert counts == {".tsp": 2, ".vrp": 2, ".oplib": 2, ".json": 3}


@pytest.mark.parametrize("name", ["demo-tsp60.tsp", "demo-geo12.tsp"])
def test_tsplib95_reads_the_same_instance(name: str) -> None:
    """Distances between all nodes agree with an independent reader."""
    other = tsplib95.load(SHIPPED / name)
    problem = read(SHIPPED / name)
    points = problem.coords[0]
    ours = distance(problem.metric, points[:, None], points)
    assert problem.numbers == tuple(other.get_nodes())
    for i, j in itertools.permutations(range(problem.n), 2):
        assert ours[i, j] == other.get_weight(i + 1, j + 1)


@pytest.mark.parametrize("name", ["demo-cvrp40.vrp", "demo-cvrp100.vrp"])
def test_vrplib_reads_the_same_cvrp(name: str) -> None:
    """Coordinates, demands and capacity agree with an independent reader."""
    other = vrplib.read_instance(SHIPPED / name)
    problem = read(SHIPPED / name)
    assert isinstance(problem, CVRP)
    assert_array_equal(problem.coords[0], other["node_coord"])
    assert_array_equal(problem.demands[0], other["demand"])
    assert problem.capacity[0] == other["capacity"]
    assert other["depot"] == [0]
    assert str(int(problem.best_known or 0)) in other["comment"]


@pytest.mark.parametrize("name", ["demo-op50.oplib", "demo-op100.oplib"])
def test_vrplib_reads_the_same_op(name: str) -> None:
    """Coordinates, scores and limit agree with an independent reader."""
    other = vrplib.read_instance(SHIPPED / name, compute_edge_weights=False)
    problem = read(SHIPPED / name)
    assert isinstance(problem, OP)
    assert_array_equal(problem.coords[0], other["node_coord"])
    assert_array_equal(problem.prizes[0, 1:], other["node_score"][1:])
    assert problem.limit[0] == other["cost_limit"]


def test_best_values_of_the_smallest_instances_are_optimal() -> None:
    """Enumeration finds nothing better than what the shipped files state."""
    tsp = read(SHIPPED / "demo-tsp8.json")
    legs = distance("euclidean", tsp.coords[0, :, None], tsp.coords[0])
    tours = np.array([[0, *rest, 0] for rest in itertools.permutations(range(1, 8))])
    lengths = legs[tours[:, :-1], tours[:, 1:]].sum(1)
    assert lengths.min() == pytest.approx(tsp.best_known)

    op = read(SHIPPED / "demo-op8.json")
    assert isinstance(op, OP)
    legs = distance("euclidean", op.coords[0, :, None], op.coords[0])

    def best(here: int, left: float, open_nodes: frozenset[int]) -> float:
        reached = [i for i in open_nodes if legs[here, i] + legs[i, 0] <= left]
        prizes = [
            op.prizes[0, i] + best(i, left - legs[here, i], open_nodes - {i})
            for i in reached
        ]
        return max(prizes, default=0.0)

    assert best(0, op.limit[0], frozenset(range(1, 9))) == -(op.best_known or 0)


# Round trips -----------------------------------------------------------------

values = st.one_of(
    st.integers(-(10**6), 10**6).map(float),
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.sampled_from([0.1, 1 / 3, 1e-9, 123456.789, 5e14, 2.0**-40]),
)
amounts = st.one_of(st.integers(0, 100).map(float), st.floats(0, 100))


@st.composite
def instances(draw: st.DrawFn, name: str) -> Problem:
    """Draws an instance of a problem, as a file or the API might give it."""
    count = draw(st.integers(1, 12))
    coords = draw(st.lists(st.tuples(values, values), min_size=count, max_size=count))
    common: dict[str, Any] = {
        "metric": draw(st.sampled_from([*METRICS, "EXPLICIT"])),
        "title": draw(st.sampled_from(["", "toy", "EOF", "a: b_SECTION", "Zürich 2"])),
    }
    if common["metric"] == "EXPLICIT":
        size = count * count
        weights = np.array(draw(st.lists(amounts, min_size=size, max_size=size)))
        upper = np.triu(weights.reshape(count, count), 1)
        common["matrix"] = upper + upper.T
    first = draw(st.sampled_from([None, 0, 1]))
    depot = draw(st.integers(0, count - 1)) if name != "tsp" else 0
    if first is not None or depot:
        order = [depot, *(i for i in range(count) if i != depot)]
        common["numbers"] = tuple(i + (first or 0) for i in order)
    whole = draw(st.integers(1, 10**6))
    common["best_known"] = draw(st.sampled_from([None, float(whole)]))
    amount = [0.0, *draw(st.lists(amounts, min_size=count - 1, max_size=count - 1))]
    if name == "cvrp":
        return CVRP(coords, amount, draw(st.floats(100, 1e4)), **common)
    if name == "op":
        best = common["best_known"]
        common["best_known"] = None if best is None else -best
        return OP(coords, amount, draw(st.floats(1e-3, 1e6)), **common)
    return TSP(coords, **common)


def assert_same(again: Problem, problem: Problem) -> None:
    """Asserts that two instances agree in everything but the numbering."""
    assert type(again) is type(problem)
    for name in problem.arrays:
        assert_array_equal(getattr(again, name), getattr(problem, name))
    assert_array_equal(np.array(again.matrix), np.array(problem.matrix))
    assert again.title == problem.title
    assert again.best_known == problem.best_known


fast = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("name", PROBLEMS)
@fast
@given(data=st.data())
def test_written_instance_reads_back_exactly(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    """Every float survives both formats, and the depot its place in the file."""
    problem = data.draw(instances(name))
    first = 1 if problem.numbers is None else min(problem.numbers)
    suffix = {"tsp": ".tsp", "cvrp": ".vrp", "op": ".oplib"}[name]
    write(tmp_path / f"a{suffix}", problem)
    again = read(tmp_path / f"a{suffix}")
    assert_same(again, problem)
    exact = "EXACT_2D" if problem.metric == "euclidean" else problem.metric
    assert again.metric == exact
    ours = problem.numbers or tuple(range(problem.coords.shape[1]))
    assert again.numbers == tuple(i - min(ours) + first for i in ours)
    write(tmp_path / "a.json", problem)
    again = read(tmp_path / "a.json")
    assert_same(again, problem)
    assert again.metric == problem.metric


@st.composite
def solved(draw: st.DrawFn, name: str) -> tuple[Problem, list[list[int]]]:
    """Draws an instance and routes that serve it, feasible or not."""
    problem = draw(instances(name))
    nodes = list(range(problem.coords.shape[1]))
    order = draw(st.permutations(nodes if name == "tsp" else nodes[1:]))
    if name == "op":
        order = order[: draw(st.integers(0, len(order)))]
    if name != "cvrp":
        return problem, [order]
    routes: list[list[int]] = []
    while order:
        cut = draw(st.integers(1, len(order)))
        routes.append(order[:cut])
        order = order[cut:]
    return problem, routes


@pytest.mark.parametrize("name", PROBLEMS)
@fast
@given(data=st.data())
def test_written_solution_reads_back(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    """The same routes come back from every format, whatever the numbering."""
    problem, routes = data.draw(solved(name))
    for suffix in (".sol", ".json", *([".tour", ".opt.tour"] if name == "tsp" else [])):
        path = tmp_path / f"a{suffix}"
        write_solution(path, problem, routes, 12.5)
        assert read_solution(path, problem) == routes


# Solutions -------------------------------------------------------------------


def test_cvrplib_counts_customers_without_the_depot(tmp_path: Path) -> None:
    """Customer 1 is the first node of the file that is not the depot."""
    path = tmp_path / "a.sol"
    problem = read(SHIPPED / "demo-cvrp40.vrp")
    routes = [[i + 1] for i in range(problem.n)]
    write_solution(path, problem, routes, 100.0)
    assert path.read_text().startswith("Route #1: 1\nRoute #2: 2\n")
    assert path.read_text().endswith("\nCost 100\n")
    assert vrplib.read_solution(path) == {"routes": routes, "cost": 100}
    elsewhere = read_text(tmp_path, CVRP_TEXT, "b.vrp")
    path.write_text("Route #1: 1 3\nRoute #2: 2\nRoute #3:\nCost 12\n")
    routes = read_solution(path, elsewhere)
    assert routes == [[1, 3], [2]]
    write_solution(tmp_path / "a.json", elsewhere, routes, 12.0)
    stated = json.loads((tmp_path / "a.json").read_text())
    assert stated["routes"] == [[1, 4], [2]]  # JSON: as the file numbers its nodes


@pytest.mark.parametrize(
    "text",
    [
        "Route #1: 2 1\nRoute #2: 3\nCost 12",
        "route 1 : 2 1\r\nroute 2 : 3 \r\n\r\ncost: 12.5\r\nTime 3.1e-2\r\n",
        "Cost 12\nRoute #1:\t2\t1\nRoute #7: 3\n",
    ],
)
def test_solvers_spell_routes_differently(tmp_path: Path, text: str) -> None:
    """HGS, PyVRP and CVRPLIB disagree on colons, order and remarks."""
    path = tmp_path / "a.sol"
    path.write_text(text)
    problem = read_text(tmp_path, CVRP_TEXT, "b.vrp")
    assert read_solution(path, problem) == [[2, 1], [3]]


@pytest.mark.parametrize("end", ["-1\nEOF\n", "-1\n-1\nEOF\n", "EOF\n", ""])
def test_tour_ends_at_minus_one_or_the_end(tmp_path: Path, end: str) -> None:
    """Some tours of TSPLIB lack the -1; several nodes may share a line."""
    path = tmp_path / "a.opt.tour"
    path.write_text(
        "NAME : x\nCOMMENT : Length = 12\nTYPE : TOUR\nDIMENSION : 3\n"
        f"TOUR_SECTION\n3 1\n2\n{end}"
    )
    problem = read_text(tmp_path, HEAD + COORDS)
    assert read_solution(path, problem) == [[2, 0, 1]]
    assert problem.cost([[[2, 0, 1]]])[0] == 12


def test_tour_is_read_by_tsplib95(tmp_path: Path) -> None:
    """An independent reader finds the same tour in what we write."""
    path = tmp_path / "a.tour"
    problem = read(SHIPPED / "demo-geo12.tsp")
    tour = [5, 3, 4, 2, 11, 10, 0, 1, 9, 8, 7, 6]
    write_solution(path, problem, [tour], 99.0)
    assert tsplib95.load(path).tours == [[node + 1 for node in tour]]


@pytest.mark.parametrize(
    "nodes", ["1 4 2", "4 2 1", "2 1 4", "1 4 2 1", "4 2 1 4", "1\n4\n2"]
)
def test_op_route_starts_at_the_depot_wherever_the_file_does(
    tmp_path: Path, nodes: str
) -> None:
    """The sequence is a cycle; the depot is part of it."""
    path = tmp_path / "a.sol"
    path.write_text(
        f"NAME : x\nTYPE : OP\nNODE_SEQUENCE_SECTION\n{nodes}\n-1\n"
        "DEPOT_SECTION\n1\n-1\nEOF\n"
    )
    problem = OP(np.eye(4)[:, :2], [0, 1, 1, 1], 9, numbers=(1, 2, 3, 4))
    assert read_solution(path, problem) == [[3, 1]]


def test_op_solution_states_score_and_cost(tmp_path: Path) -> None:
    """The file has what OPLIB's own have, and no other sign."""
    path = tmp_path / "a.sol"
    problem = OP([[0, 0], [3, 4], [6, 8]], [0, 2, 3], 20, title="toy", metric="EUC_2D")
    write_solution(path, problem, [[1, 2]], problem.cost([[[1, 2]]])[0])
    assert path.read_text().split("\n")[:8] == [
        "NAME : toy",
        "TYPE : OP",
        "DIMENSION : 3",
        "COST_LIMIT : 20",
        "ROUTE_NODES : 3",
        "ROUTE_SCORE : 5",
        "ROUTE_COST : 20",
        "NODE_SEQUENCE_SECTION",
    ]


def test_infeasible_solution_is_read_and_then_judged(tmp_path: Path) -> None:
    """The reader finds the nodes; what is wrong with them is for the problem."""
    path = tmp_path / "a.sol"
    path.write_text("Route #1: 1 1\nCost 3\n")
    problem = read_text(tmp_path, CVRP_TEXT, "b.vrp")
    routes = read_solution(path, problem)
    with pytest.raises(Infeasible, match="node 1 is visited twice"):
        problem.cost([routes])


def test_result_of_solve_is_a_solution(tmp_path: Path) -> None:
    """JSON with more keys, alone or in a list of one, and bare routes."""
    path = tmp_path / "a.json"
    problem = read_text(tmp_path, HEAD + COORDS)
    result = {"instance": "a", "problem": "tsp", "routes": [[2, 3, 1]], "seed": 0}
    for value in (result, [result], [[2, 3, 1]]):
        path.write_text(json.dumps(value))
        assert read_solution(path, problem) == [[1, 2, 0]]


# Writing ---------------------------------------------------------------------


def test_writing_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure leaves the old file, and no other."""
    path = tmp_path / "a.sol"
    problem = read(SHIPPED / "demo-tsp8.json")
    write_solution(path, problem, [list(range(8))], 1.0)
    before = path.read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_solution(path, problem, [list(range(7, -1, -1))], 2.0)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.sol"]


def test_reader_of_the_old_file_is_not_disturbed(tmp_path: Path) -> None:
    """The new contents come under the old name as another file."""
    path = tmp_path / "a.sol"
    problem = read(SHIPPED / "demo-tsp8.json")
    write_solution(path, problem, [list(range(8))], 1.0)
    before = path.read_text()
    with path.open() as old:
        write_solution(path, problem, [list(range(7, -1, -1))], 2.0)
        assert old.read() == before != path.read_text()


def test_written_files_obey_the_umask(tmp_path: Path) -> None:
    """Others may read results if the user lets them."""
    old = os.umask(0o022)
    try:
        write(tmp_path / "a.json", TSP([[0, 0]]))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o644


def test_title_cannot_break_a_file(tmp_path: Path) -> None:
    """Line breaks and control characters in a title become blanks."""
    problem = TSP([[0, 0]], title="a\nTYPE : OP\x1b[2J")
    write(tmp_path / "a.tsp", problem)
    assert read(tmp_path / "a.tsp").title == "a TYPE : OP [2J"


@pytest.mark.parametrize(
    ("name", "routes", "cost", "message"),
    [
        ("a.txt", [[0, 1, 2]], 1.0, "a solution of a tsp is written to .sol, .json"),
        ("a.sol", [[0, 1, 3]], 1.0, r"node 3 is not one of 0\.\.2"),
        ("a.sol", [[0, 1], [2]], 1.0, "a tsp has one route, got 2"),
        ("a.sol", [[0, 1, 2]], math.inf, "cost must be finite, got inf"),
    ],
)
def test_nonsense_is_not_written(
    tmp_path: Path, name: str, routes: list[list[int]], cost: float, message: str
) -> None:
    """Wrong arguments are named and leave no file behind."""
    problem = TSP([[0, 0], [1, 0], [1, 1]])
    with pytest.raises(ValueError, match=message):
        write_solution(tmp_path / name, problem, routes, cost)
    assert not list(tmp_path.iterdir())


def test_depot_and_batches_are_not_written(tmp_path: Path) -> None:
    """Routes leave the depot out, and files have one instance."""
    problem = OP([[0, 0], [1, 0]], [0, 1], 3)
    with pytest.raises(ValueError, match=r"node 0 is not one of 1\.\.1"):
        write_solution(tmp_path / "a.sol", problem, [[0, 1]], 1.0)
    with pytest.raises(ValueError, match=r"written to \.sol, \.json, got"):
        write_solution(tmp_path / "a.tour", problem, [[1]], 1.0)
    batch = TSP.random(2, 3)
    with pytest.raises(ValueError, match="one instance, got 2"):
        write(tmp_path / "a.tsp", batch)
    with pytest.raises(ValueError, match=r"a tsp is written to \.tsp or \.json"):
        write(tmp_path / "a.vrp", batch[0])


def test_public_names_are_documented() -> None:
    """What the package exports is there and says what it does."""
    for name in formats.__all__:
        assert getattr(formats, name).__doc__
