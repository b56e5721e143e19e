"""Malformed files: each is refused with one line that names file, line and value."""

import os
import re
import warnings
from pathlib import Path

import pytest

from renco import formats
from renco.formats import FormatError, files, read, read_json, read_solution
from renco.problems import CVRP, OP, TSP

# The line numbers in the tables below count from the first line of these texts.
TSP_TEXT = """\
NAME : small
TYPE : TSP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 3 0
3 0 4
EOF"""
CVRP_TEXT = """\
NAME : small
TYPE : CVRP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 3 0
3 0 4
DEMAND_SECTION
1 0
2 5
3 6
DEPOT_SECTION
1
-1
EOF"""
OP_TEXT = """\
NAME : small
TYPE : OP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EUC_2D
COST_LIMIT : 10
NODE_COORD_SECTION
1 0 0
2 3 0
3 0 4
NODE_SCORE_SECTION
1 0
2 5
3 6
DEPOT_SECTION
1
-1
EOF"""
MATRIX_TEXT = """\
NAME : small
TYPE : TSP
DIMENSION : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
DISPLAY_DATA_SECTION
1 0 0
2 3 0
3 0 4
EDGE_WEIGHT_SECTION
0 3 4
3 0 5
4 5 0
EOF"""


def edit(text: str, line: int, *new: str) -> str:
    """Returns a text with one line replaced by none, one or several."""
    lines = text.split("\n")
    lines[line - 1 : line] = new
    return "\n".join(lines)


TSPLIB = {
    "only EOF": ("EOF\n", ": TYPE is missing"),
    "prose": ("hello\n", ":1: expected KEY : VALUE or a section, got 'hello'"),
    "data first": ("1 2 3\n", ":1: expected KEY : VALUE or a section, got '1 2 3'"),
    "json inside": ('{"problem": "tsp"}', ":1: expected KEY : VALUE or a section, got"),
    "type missing": (edit(TSP_TEXT, 2), ": TYPE is missing"),
    "type unknown": (
        edit(TSP_TEXT, 2, "TYPE : VRPTW"),
        ":2: unknown TYPE 'VRPTW': expected one of TSP, CVRP, OP",
    ),
    "atsp": (edit(TSP_TEXT, 2, "TYPE : ATSP"), ":2: not supported: asymmetric"),
    "hcp": (edit(TSP_TEXT, 2, "TYPE : HCP"), ":2: not supported: Hamiltonian"),
    "sop": (edit(TSP_TEXT, 2, "TYPE : SOP"), ":2: not supported: sequential"),
    "tour as instance": (
        "NAME : a\nTYPE : TOUR\nTOUR_SECTION\n1\n-1\n",
        r":2: not supported: a solution, not an instance \(TYPE TOUR\)",
    ),
    "type empty": (edit(TSP_TEXT, 2, "TYPE :"), ":2: TYPE has no value"),
    "dimension missing": (edit(TSP_TEXT, 3), ": DIMENSION is missing"),
    "dimension twice": (
        edit(TSP_TEXT, 3, "DIMENSION : 3", "DIMENSION : 3"),
        ":4: DIMENSION comes again, first on line 3",
    ),
    "dimension negative": (
        edit(TSP_TEXT, 3, "DIMENSION : -3"),
        r":3: DIMENSION must be in 1\.\.100000, got -3",
    ),
    "dimension zero": (
        edit(TSP_TEXT, 3, "DIMENSION : 0"),
        r":3: DIMENSION must be in 1\.\.100000, got 0",
    ),
    "dimension huge": (
        edit(TSP_TEXT, 3, "DIMENSION : 100001"),
        r":3: DIMENSION must be in 1\.\.100000, got 100001",
    ),
    "dimension of a thousand digits": (
        edit(TSP_TEXT, 3, "DIMENSION : " + "9" * 1000),
        r":3: DIMENSION must be a whole number, got '9+\.\.\.",
    ),
    "dimension fraction": (
        edit(TSP_TEXT, 3, "DIMENSION : 3.0"),
        r":3: DIMENSION must be a whole number, got '3\.0'",
    ),
    "dimension empty": (edit(TSP_TEXT, 3, "DIMENSION :"), ":3: DIMENSION has no value"),
    "rows missing": (
        edit(TSP_TEXT, 3, "DIMENSION : 5"),
        ":5: NODE_COORD_SECTION has 3 rows, DIMENSION is 5: node 4 is missing",
    ),
    "rows too many": (
        edit(TSP_TEXT, 3, "DIMENSION : 2"),
        r":8: node 3 is not one of 1\.\.2",
    ),
    "node twice": (
        edit(TSP_TEXT, 8, "2 0 4"),
        ":8: node 2 comes again, first on line 7",
    ),
    "node number gap": (
        edit(TSP_TEXT, 8, "4 0 4"),
        r":8: node 4 is not one of 1\.\.3",
    ),
    "node number gap from zero": (
        edit(TSP_TEXT, 6, "0 0 0"),
        r":8: node 3 is not one of 0\.\.2",
    ),
    "node number negative": (
        edit(TSP_TEXT, 7, "-2 3 0"),
        r":7: node -2 is not one of 1\.\.3",
    ),
    "node number fraction": (
        edit(TSP_TEXT, 7, "2.0 3 0"),
        r":7: the node's number must be a whole number, got '2\.0'",
    ),
    "coordinate nan": (edit(TSP_TEXT, 7, "2 nan 0"), ":7: x must be a number.*'nan'"),
    "coordinate inf": (edit(TSP_TEXT, 7, "2 3 -inf"), ":7: y must be a number.*-inf"),
    "coordinate 1e400": (
        edit(TSP_TEXT, 7, "2 3 1e400"),
        r":7: y must be at most 1e\+15 in size, got '1e400'",
    ),
    "coordinate underscore": (edit(TSP_TEXT, 7, "2 1_0 0"), ":7: x must be.*'1_0'"),
    "coordinate arabic": (
        edit(TSP_TEXT, 7, "2 \u0663 0"),
        r":7: x must be a number, got '\\u0663'",
    ),
    "coordinate hexadecimal": (edit(TSP_TEXT, 7, "2 0x3 0"), ":7: x must.*'0x3'"),
    "decimal comma": (
        edit(TSP_TEXT, 7, "2 3,5 0"),
        r":7: x must be a number, got '3,5' \(a decimal comma\?\)",
    ),
    "coordinate missing": (
        edit(TSP_TEXT, 7, "2 3"),
        ":7: expected node x y, got '2 3'",
    ),
    "third coordinate": (
        edit(TSP_TEXT, 7, "2 3 0 1"),
        r":7: expected node x y, got '2 3 0 1' \(3-D coordinates are not supported\)",
    ),
    "word in a row": (
        edit(TSP_TEXT, 7, "two 3 0"),
        ":7: expected a row of NODE_COORD_SECTION or",
    ),
    "3-D type": (
        edit(TSP_TEXT, 4, "EDGE_WEIGHT_TYPE : EUC_3D"),
        r":4: not supported: 3-D coordinates \(EDGE_WEIGHT_TYPE EUC_3D\)",
    ),
    "3-D coordinates": (
        edit(TSP_TEXT, 1, "NODE_COORD_TYPE : THREED_COORDS"),
        r":1: not supported: 3-D coordinates \(NODE_COORD_TYPE THREED_COORDS\)",
    ),
    "metric missing": (edit(TSP_TEXT, 4), ": EDGE_WEIGHT_TYPE is missing"),
    "metric unknown": (
        edit(TSP_TEXT, 4, "EDGE_WEIGHT_TYPE : EUC_4D"),
        ":4: unknown EDGE_WEIGHT_TYPE 'EUC_4D': expected one of EUC_2D, CEIL_2D",
    ),
    "metric of ours": (
        edit(TSP_TEXT, 4, "EDGE_WEIGHT_TYPE : euclidean"),
        ":4: unknown EDGE_WEIGHT_TYPE 'EUCLIDEAN'",
    ),
    "metric special": (
        edit(TSP_TEXT, 4, "EDGE_WEIGHT_TYPE : XRAY1"),
        ":4: not supported: crystallography",
    ),
    "coordinates missing": (
        "TYPE : TSP\nDIMENSION : 3\nEDGE_WEIGHT_TYPE : EUC_2D\n",
        ": NODE_COORD_SECTION is missing",
    ),
    "section unknown": (
        edit(TSP_TEXT, 9, "TIME_WINDOW_SECTION", "1 0 9"),
        ":9: unknown section 'TIME_WINDOW_SECTION'",
    ),
    "section twice": (
        edit(TSP_TEXT, 9, "NODE_COORD_SECTION", "1 0 9"),
        ":9: NODE_COORD_SECTION comes again, first on line 5",
    ),
    "section with words": (
        edit(TSP_TEXT, 5, "NODE_COORD_SECTION of all"),
        ":5: NODE_COORD_SECTION is followed by 'of all', not data",
    ),
    "fixed edges": (
        edit(TSP_TEXT, 9, "FIXED_EDGES_SECTION", "1 2", "-1"),
        ":9: not supported: edges that the tour must contain",
    ),
    "key unknown": (edit(TSP_TEXT, 1, "SALESMEN : 3"), ":1: unknown key 'SALESMEN'"),
    "key of another type": (
        edit(TSP_TEXT, 1, "CAPACITY : 3"),
        ":1: CAPACITY does not belong to TYPE TSP",
    ),
    "section of another type": (
        edit(TSP_TEXT, 9, "DEMAND_SECTION", "1 0"),
        ":9: DEMAND_SECTION does not belong to TYPE TSP",
    ),
    "matrix with coordinates": (
        edit(TSP_TEXT, 9, "EDGE_WEIGHT_SECTION", "1 2 3"),
        ":9: EDGE_WEIGHT_SECTION needs EDGE_WEIGHT_TYPE EXPLICIT, got EUC_2D",
    ),
    "format with coordinates": (
        edit(TSP_TEXT, 1, "EDGE_WEIGHT_FORMAT : FULL_MATRIX"),
        ":1: EDGE_WEIGHT_FORMAT of EUC_2D must be FUNCTION, got FULL_MATRIX",
    ),
    "best known not a number": (
        edit(TSP_TEXT, 1, "BEST_KNOWN : about 12"),
        ":1: BEST_KNOWN must be a number, got 'about 12'",
    ),
    "explicit without coordinates": (
        edit(edit(MATRIX_TEXT, 9), 8).replace("DISPLAY_DATA_SECTION\n1 0 0\n", ""),
        ": EXPLICIT distances without coordinates: the model needs a NODE_COORD",
    ),
    "explicit without matrix": (
        "\n".join(MATRIX_TEXT.split("\n")[:9]),
        ": EDGE_WEIGHT_SECTION is missing",
    ),
    "explicit without format": (
        edit(MATRIX_TEXT, 5),
        ": EDGE_WEIGHT_FORMAT is missing",
    ),
    "explicit format unknown": (
        edit(MATRIX_TEXT, 5, "EDGE_WEIGHT_FORMAT : DIAGONAL"),
        ":5: unknown EDGE_WEIGHT_FORMAT 'DIAGONAL': expected one of FULL_MATRIX",
    ),
    "explicit format function": (
        edit(MATRIX_TEXT, 5, "EDGE_WEIGHT_FORMAT : FUNCTION"),
        ":5: unknown EDGE_WEIGHT_FORMAT 'FUNCTION'",
    ),
    "matrix too short": (
        edit(MATRIX_TEXT, 13),
        ":10: EDGE_WEIGHT_SECTION has 6 numbers, expected 9",
    ),
    "matrix too long": (
        edit(MATRIX_TEXT, 13, "4 5 0 7"),
        ":13: EDGE_WEIGHT_SECTION has more than the 9 numbers expected",
    ),
    "matrix asymmetric": (
        edit(MATRIX_TEXT, 13, "4 6 0"),
        ":10: EDGE_WEIGHT_SECTION is not symmetric: 5 in row 2, column 3, but 6",
    ),
    "matrix negative": (
        edit(MATRIX_TEXT, 12, "3 0 -5"),
        ":12: distance -5 is negative",
    ),
    "matrix nan": (edit(MATRIX_TEXT, 12, "3 0 nan"), ":12: a distance must be.*'nan'"),
    "matrix underscore": (edit(MATRIX_TEXT, 12, "3 0 5_0"), ":12: a distance.*'5_0'"),
    "matrix inf": (edit(MATRIX_TEXT, 12, "3 0 1e999"), ":12: a distance.*'1e999'"),
    "matrix for too many": (
        edit(MATRIX_TEXT, 3, "DIMENSION : 10001").replace(
            "3 0 4\n", "".join(f"{i} 0 4\n" for i in range(3, 10002))
        ),
        ":5: a matrix for 10001 nodes is too large, at most 10000",
    ),
}
VRPLIB = {
    "capacity missing": (edit(CVRP_TEXT, 5), ": CAPACITY is missing"),
    "capacity zero": (
        edit(CVRP_TEXT, 5, "CAPACITY : 0"),
        ":5: CAPACITY must be positive, got 0",
    ),
    "capacity negative": (
        edit(CVRP_TEXT, 5, "CAPACITY : -5"),
        ":5: CAPACITY must be positive, got -5",
    ),
    "capacity not a number": (
        edit(CVRP_TEXT, 5, "CAPACITY : ten"),
        ":5: CAPACITY must be a number, got 'ten'",
    ),
    "demands missing": (
        CVRP_TEXT.replace("DEMAND_SECTION\n1 0\n2 5\n3 6\n", ""),
        ": DEMAND_SECTION is missing",
    ),
    "demand row missing": (
        edit(CVRP_TEXT, 13),
        ":10: DEMAND_SECTION has 2 rows, DIMENSION is 3: node 3 is missing",
    ),
    "demand negative": (
        edit(CVRP_TEXT, 13, "3 -6"),
        ":13: demand -6 of node 3 is negative",
    ),
    "demand above capacity": (
        edit(CVRP_TEXT, 12, "2 11"),
        ":12: demand 11 of node 2 is above the capacity 10",
    ),
    "demand of the depot": (
        edit(CVRP_TEXT, 11, "1 2"),
        ":11: demand of the depot must be 0, got 2",
    ),
    "demand twice": (
        edit(CVRP_TEXT, 13, "2 6"),
        ":13: node 2 comes again, first on line 12",
    ),
    "demand of no node": (
        edit(CVRP_TEXT, 13, "4 6"),
        r":13: node 4 is not one of 1\.\.3",
    ),
    "demand counts from zero": (
        edit(edit(edit(CVRP_TEXT, 11, "0 0"), 12, "1 5"), 13, "2 6"),
        r":11: node 0 is not one of 1\.\.3",
    ),
    "two demands": (edit(CVRP_TEXT, 12, "2 5 1"), ":12: expected node demand, got"),
    "depot missing": (
        CVRP_TEXT.replace("DEPOT_SECTION\n1\n-1\n", ""),
        ": DEPOT_SECTION is missing",
    ),
    "depot without end": (
        edit(CVRP_TEXT, 16),
        ":14: DEPOT_SECTION does not end with -1",
    ),
    "depot none": (edit(CVRP_TEXT, 15), ":14: DEPOT_SECTION names no depot"),
    "depot twice": (
        edit(CVRP_TEXT, 15, "1", "2"),
        ":16: one depot is supported, got a second one, node 2",
    ),
    "depot of no node": (
        edit(CVRP_TEXT, 15, "4"),
        r":15: depot 4 is not one of 1\.\.3",
    ),
    "depot goes on": (
        edit(CVRP_TEXT, 16, "-1", "2"),
        ":17: DEPOT_SECTION goes on with 2 after -1",
    ),
    "depot not a number": (
        edit(CVRP_TEXT, 15, "1.5"),
        r":15: the depot's number must be a whole number, got '1\.5'",
    ),
    "distance limit": (
        edit(CVRP_TEXT, 1, "DISTANCE : 200"),
        ":1: DISTANCE 200: a limit on the length of a route is not supported",
    ),
    "service time": (
        edit(CVRP_TEXT, 1, "SERVICE_TIME : 10"),
        ":1: SERVICE_TIME 10: a limit on the length of a route is not supported",
    ),
    "a solution": (
        "Route #1: 2 1\nCost 12\n",
        ": holds routes: a solution, not an instance",
    ),
}
OPLIB = {
    "limit missing": (edit(OP_TEXT, 5), ": COST_LIMIT is missing"),
    "limit zero": (
        edit(OP_TEXT, 5, "COST_LIMIT : 0"),
        ":5: COST_LIMIT must be positive, got 0",
    ),
    "limit negative": (
        edit(OP_TEXT, 5, "COST_LIMIT : -2"),
        ":5: COST_LIMIT must be positive, got -2",
    ),
    "limit infinite": (
        edit(OP_TEXT, 5, "COST_LIMIT : inf"),
        ":5: COST_LIMIT must be a number, got 'inf'",
    ),
    "scores missing": (
        OP_TEXT.replace("NODE_SCORE_SECTION\n1 0\n2 5\n3 6\n", ""),
        ": NODE_SCORE_SECTION is missing",
    ),
    "score row missing": (
        edit(OP_TEXT, 12),
        ":10: NODE_SCORE_SECTION has 2 rows, DIMENSION is 3: node 2 is missing",
    ),
    "score negative": (
        edit(OP_TEXT, 12, "2 -5"),
        ":12: score -5 of node 2 is negative",
    ),
    "score not a number": (
        edit(OP_TEXT, 12, "2 five"),
        ":12: score must be a number, got 'five'",
    ),
    "op depot missing": (
        OP_TEXT.replace("DEPOT_SECTION\n1\n-1\n", ""),
        ": DEPOT_SECTION is missing",
    ),
}
CASES = TSPLIB | VRPLIB | OPLIB


def refused(path: Path, pattern: str) -> None:
    """Asserts that reading fails with one line: the path, then the pattern."""
    with pytest.raises(FormatError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert re.match(re.escape(str(path)) + pattern, message), message


@pytest.mark.parametrize("text", [TSP_TEXT, CVRP_TEXT, OP_TEXT, MATRIX_TEXT])
def test_the_texts_that_the_cases_spoil_are_good(tmp_path: Path, text: str) -> None:
    """Every case differs from a file that reads well."""
    path = tmp_path / "good.txt"
    path.write_text(text)
    assert read(path).coords.shape == (1, 3, 2)


@pytest.mark.parametrize(("text", "pattern"), CASES.values(), ids=CASES)
def test_malformed_file_is_refused_with_its_line(
    tmp_path: Path, text: str, pattern: str
) -> None:
    """The message has the line of the mistake and the value that is wrong."""
    path = tmp_path / "bad.txt"
    path.write_text(text, encoding="utf-8")
    refused(path, pattern)


BYTES = {
    "empty": (b"", ": is empty"),
    "blank": (b" \r\n\t\n", ": is empty"),
    "byte order mark alone": (b"\xef\xbb\xbf\n", ": is empty"),
    "zeros": (
        b"NAME : a\nTYPE\x00 : TSP\n",
        ":2: is not a text file: contains byte 0x00",
    ),
    "png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", ":2: is not a text file"),
    "gzip": (b"\x1f\x8b\x08\x08abc", ":1: is not a text file: contains byte 0x1f"),
    "utf-16": ("\ufeffTYPE : TSP".encode("utf-16"), ":1: is not a text file"),
}


@pytest.mark.parametrize(("data", "pattern"), BYTES.values(), ids=BYTES)
def test_file_without_text_is_refused(
    tmp_path: Path, data: bytes, pattern: str
) -> None:
    """Empty and binary files are recognised before anything is parsed."""
    path = tmp_path / "bad.vrp"
    path.write_bytes(data)
    refused(path, pattern)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Missing files, directories and endless links are errors of one line too."""
    refused(tmp_path / "none.tsp", ": no such file")
    refused(tmp_path, ": is a directory, not a file")
    loop = tmp_path / "loop.tsp"
    loop.symlink_to(loop)
    refused(loop, ": cannot be read: ")
    refused(Path("a\0b"), ": cannot be read: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    """The reason of the operating system is part of the line."""
    path = tmp_path / "secret.tsp"
    path.write_text(TSP_TEXT)
    path.chmod(0)
    refused(path, ": cannot be read: Permission denied")


def test_big_files_and_long_lines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both caps hold before the values are split."""
    path = tmp_path / "big.tsp"
    path.write_text(TSP_TEXT + "\n" * 200)
    monkeypatch.setattr(files, "MAX_LINE", 20)
    refused(path, ":4: the line has 25 characters, at most 20 are read")
    monkeypatch.setattr(files, "MAX_BYTES", 200)
    refused(path, ": is larger than 0 MB")


JSON = {
    "no json": ("{", ":1: is not JSON: "),
    "truncated": ('{"problem": "tsp",\n"coords": [[0, 0]', ":2: is not JSON: "),
    "trailing": ('{"problem": "tsp", "coords": [[0, 0]]} x', ":1: is not JSON: Extra"),
    "number": ("3", ": an instance is an object, got 3"),
    "null": ("null", ": an instance is an object, got null"),
    "empty list": ("[]", ": the list of instances is empty"),
    "list of lists": ("[[]]", r": \[0\]: an instance is an object, got a list"),
    "no problem": ('{"coords": [[0, 0]]}', ": key 'problem' is missing"),
    "problem unknown": (
        '{"problem": "vrp", "coords": [[0, 0]]}',
        ": problem: expected one of tsp, cvrp, op, got 'vrp'",
    ),
    "problem a list": ('{"problem": ["tsp"]}', r": problem: expected .*got \['tsp'\]"),
    "no coords": ('{"problem": "tsp"}', ": key 'coords' is missing"),
    "key unknown": (
        '{"problem": "tsp", "coords": [[0, 0]], "colour": 1, "size": 2}',
        ": unknown keys for a tsp: 'colour', 'size'",
    ),
    "key of another problem": (
        '{"problem": "tsp", "coords": [[0, 0]], "depot": 0}',
        ": unknown key for a tsp: 'depot'",
    ),
    "key twice": (
        '{"problem": "tsp", "coords": [[0, 0]], "problem": "op"}',
        ": key 'problem' comes twice in one object",
    ),
    "nan": (
        '{"problem": "tsp", "coords": [[NaN, 0]]}',
        ": NaN is not a number of JSON",
    ),
    "infinity": (
        '{"problem": "tsp", "coords": [[0, -Infinity]]}',
        ": -Infinity is not a number of JSON",
    ),
    "1e400": (
        '{"problem": "tsp", "coords": [[0, 1e400]]}',
        r": coords\[0\]\[1\]: must be at most 1e\+15 in size, got inf",
    ),
    "huge integer": (
        '{"problem": "tsp", "coords": [[0, 1%s]]}' % ("0" * 400),
        r": coords\[0\]\[1\]: must be .* got a number of more than 100 digits",
    ),
    "integer of 5000 digits": (
        '{"problem": "tsp", "coords": [[0, %s]]}' % ("9" * 5000),
        ": is not JSON: Exceeds the limit",
    ),
    "coords empty": (
        '{"problem": "tsp", "coords": []}',
        ": coords: expected 1..100000",
    ),
    "coords flat": (
        '{"problem": "tsp", "coords": [0, 0]}',
        r": coords\[0\]: expected a list, got 0",
    ),
    "coords of three": (
        '{"problem": "tsp", "coords": [[0, 0], [0, 0, 0]]}',
        r": coords\[1\]: expected \[x, y\], got \[0, 0, 0\]",
    ),
    "coordinate true": (
        '{"problem": "tsp", "coords": [[0, true]]}',
        r": coords\[0\]\[1\]: expected a number, got true or false",
    ),
    "coordinate text": (
        '{"problem": "tsp", "coords": [["0", 0]]}',
        r": coords\[0\]\[0\]: expected a number, got text",
    ),
    "second of a list": (
        '[{"problem": "tsp", "coords": [[0, 0]]}, {"problem": "tsp", "coords": 1}]',
        r": \[1\]\.coords: expected a list, got 1",
    ),
    "metric unknown": (
        '{"problem": "tsp", "coords": [[0, 0]], "metric": "euc_2d"}',
        ": metric: expected one of euclidean, EUC_2D.*, got 'euc_2d'",
    ),
    "explicit without matrix": (
        '{"problem": "tsp", "coords": [[0, 0]], "metric": "EXPLICIT"}',
        ": a matrix and metric EXPLICIT go together, got EXPLICIT",
    ),
    "matrix without explicit": (
        '{"problem": "tsp", "coords": [[0, 0]], "matrix": [[0]]}',
        ": a matrix and metric EXPLICIT go together, got euclidean",
    ),
    "matrix short": (
        '{"problem": "tsp", "coords": [[0, 0], [1, 1]], "metric": "EXPLICIT",'
        ' "matrix": [[0, 1], [1]]}',
        r": matrix\[1\]: expected 2 numbers, got 1",
    ),
    "matrix asymmetric": (
        '{"problem": "tsp", "coords": [[0, 0], [1, 1]], "metric": "EXPLICIT",'
        ' "matrix": [[0, 1], [2, 0]]}',
        r": matrix\[0\]\[1\]: 1 is not symmetric: 2 back",
    ),
    "name a number": (
        '{"problem": "tsp", "coords": [[0, 0]], "name": 3}',
        ": name: expected one line of text, got 3",
    ),
    "name of two lines": (
        '{"problem": "tsp", "coords": [[0, 0]], "name": "a\\nb"}',
        r": name: expected one line of text, got 'a\\nb'",
    ),
    "best known text": (
        '{"problem": "tsp", "coords": [[0, 0]], "best_known": "12"}',
        ": best_known: expected a number, got text",
    ),
    "best known of an op": (
        '{"problem": "op", "coords": [[0, 0]], "prizes": [0], "limit": 1,'
        ' "best_known": 12}',
        ": best_known: the cost of a op is minus the prize, got 12",
    ),
    "capacity missing": (
        '{"problem": "cvrp", "coords": [[0, 0]], "demands": [0]}',
        ": key 'capacity' is missing",
    ),
    "capacity zero": (
        '{"problem": "cvrp", "coords": [[0, 0]], "demands": [0], "capacity": 0}',
        ": capacity: must be positive, got 0",
    ),
    "demands without the depot": (
        '{"problem": "cvrp", "coords": [[0, 0], [1, 1]], "demands": [1],'
        ' "capacity": 3}',
        ": demands: expected a value for each of the 2 nodes, the depot too, got 1",
    ),
    "demand above capacity": (
        '{"problem": "cvrp", "coords": [[0, 0], [1, 1]], "demands": [0, 4],'
        ' "capacity": 3}',
        r": demands\[1\]: 4 is above the capacity 3",
    ),
    "demand negative": (
        '{"problem": "cvrp", "coords": [[0, 0], [1, 1]], "demands": [0, -1],'
        ' "capacity": 3}',
        r": demands\[1\]: must not be negative, got -1",
    ),
    "demand of the depot": (
        '{"problem": "cvrp", "coords": [[0, 0], [1, 1]], "demands": [0, 1],'
        ' "capacity": 3, "depot": 1}',
        r": demands\[1\]: must be 0 at the depot, got 1",
    ),
    "depot outside": (
        '{"problem": "op", "coords": [[0, 0]], "prizes": [0], "limit": 1, "depot": 1}',
        r": depot: 1 is not one of 0\.\.0",
    ),
    "depot true": (
        '{"problem": "op", "coords": [[0, 0]], "prizes": [0], "limit": 1,'
        ' "depot": false}',
        ": depot: expected the number of a node, got False",
    ),
    "limit negative": (
        '{"problem": "op", "coords": [[0, 0]], "prizes": [0], "limit": -1}',
        ": limit: must be positive, got -1",
    ),
    "nested": ("[" * 100_000, ": is nested too deeply"),
    "nested object": ('{"problem":' * 100_000, ": is nested too deeply"),
}


@pytest.mark.parametrize(("text", "pattern"), JSON.values(), ids=JSON)
def test_malformed_json_is_refused_with_its_place(text: str, pattern: str) -> None:
    """The message names the input and the place inside the instance."""
    with pytest.raises(FormatError) as caught:
        read_json(text)
    message = str(caught.value)
    assert "\n" not in message
    assert re.match("<stdin>" + pattern, message), message


def test_json_file_with_several_instances_is_not_one(tmp_path: Path) -> None:
    """`read` returns one instance; `read_all` returns them all."""
    path = tmp_path / "two.json"
    path.write_text('[{"problem": "tsp", "coords": [[0, 0]]}]')
    assert read(path).n == 1
    path.write_text("[%s, %s]" % (('{"problem": "tsp", "coords": [[0, 0]]}',) * 2))
    assert len(formats.read_all(path)) == 2
    refused(path, ": has 2 instances where one is expected")


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]
TOUR = TSP(SQUARE, numbers=(1, 2, 3, 4))
ROUTES = CVRP(SQUARE, [0, 1, 1, 1], 2, numbers=(1, 2, 3, 4))
TRIP = OP(SQUARE, [0, 1, 1, 1], 9, numbers=(1, 2, 3, 4))
SOLUTIONS = {
    "empty": (TOUR, "a.tour", "", ": is empty"),
    "instance": (TOUR, "a.tour", TSP_TEXT, ": is not a solution: no TOUR_SECTION"),
    "tour of an op": (
        TRIP,
        "a.tour",
        "TOUR_SECTION\n1\n-1\n",
        ": has a tour of a TSP, but the instance is a op",
    ),
    "routes of a tsp": (
        TOUR,
        "a.sol",
        "Route #1: 1 2\nCost 3\n",
        ": has routes of a CVRP, but the instance is a tsp",
    ),
    "tour of another size": (
        TOUR,
        "a.tour",
        "DIMENSION : 5\nTOUR_SECTION\n1\n-1\n",
        ":1: DIMENSION is 5, but the instance has 4 nodes",
    ),
    "tour with a strange node": (
        TOUR,
        "a.tour",
        "TOUR_SECTION\n1 2\n0\n-1\n",
        ":3: the instance has no node 0",
    ),
    "tour with a word": (
        TOUR,
        "a.tour",
        "TOUR_SECTION\n1 two\n-1\n",
        ":2: a node's number must be a whole number, got 'two'",
    ),
    "customer zero": (
        ROUTES,
        "a.sol",
        "Route #1: 1 2\nRoute #2: 0 3\n",
        r":2: customer 0 is not one of 1\.\.3",
    ),
    "customer too high": (
        ROUTES,
        "a.sol",
        "Route #1: 4\n",
        r":1: customer 4 is not one of 1\.\.3",
    ),
    "customer a fraction": (
        ROUTES,
        "a.sol",
        "Route #1: 1.0\n",
        r":1: expected a customer's number, got '1\.0'",
    ),
    "line unknown": (
        ROUTES,
        "a.sol",
        "Route #1: 1 2\n3\n",
        ":2: expected a route or a cost, got '3'",
    ),
    "op without depot": (
        TRIP,
        "a.sol",
        "NODE_SEQUENCE_SECTION\n2\n3\n-1\n",
        ":1: the route does not pass the depot 1",
    ),
    "op with other count": (
        TRIP,
        "a.sol",
        "ROUTE_NODES : 3\nNODE_SEQUENCE_SECTION\n1\n3\n-1\n",
        ":1: ROUTE_NODES is 3, but NODE_SEQUENCE_SECTION has 2",
    ),
    "json without routes": (TOUR, "a.json", "{}", ": has no 'routes'"),
    "json of another problem": (
        TOUR,
        "a.json",
        '{"problem": "op", "routes": [[1]]}',
        ": solves a 'op', but the instance is a tsp",
    ),
    "json with a strange node": (
        TOUR,
        "a.json",
        '{"routes": [[1, 5]]}',
        r": routes\[0\]\[1\]: the instance has no node 5",
    ),
    "json with true": (
        TOUR,
        "a.json",
        '{"routes": [[1, true]]}',
        r": routes\[0\]\[1\]: expected a node's number, got True",
    ),
    "json with the depot": (
        ROUTES,
        "a.json",
        '{"routes": [[2], [1, 3]]}',
        r": routes\[1\]\[0\]: 1 is the depot, which routes leave out",
    ),
}


@pytest.mark.parametrize(
    ("problem", "name", "text", "pattern"), SOLUTIONS.values(), ids=SOLUTIONS
)
def test_malformed_solution_is_refused(
    tmp_path: Path, problem: TSP | CVRP | OP, name: str, text: str, pattern: str
) -> None:
    """Solutions are read as strictly as instances."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_solution(path, problem)
    message = str(caught.value)
    assert "\n" not in message
    assert re.match(re.escape(str(path)) + pattern, message), message


def test_reading_raises_no_warnings(tmp_path: Path) -> None:
    """A coordinate of the largest size still has distances."""
    path = tmp_path / "far.tsp"
    path.write_text(edit(TSP_TEXT, 7, "2 1e15 -1e15"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = read(path)
        assert problem.length([[[0, 1, 2]]])[0] < 1e16
