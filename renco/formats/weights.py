"""Distances that a file gives one by one (`EDGE_WEIGHT_TYPE: EXPLICIT`)."""

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from renco.formats.files import shown
from renco.formats.sections import LARGEST, Document, Section

MAX_MATRIX = 10_000
"""Most nodes with a matrix: 800 MB of distances."""

# A symmetric matrix read by columns of one triangle is read by rows of the other.
_FORMATS = {
    "FULL_MATRIX": "full",
    "UPPER_ROW": "upper",
    "LOWER_COL": "upper",
    "LOWER_ROW": "lower",
    "UPPER_COL": "lower",
    "UPPER_DIAG_ROW": "upper with diagonal",
    "LOWER_DIAG_COL": "upper with diagonal",
    "LOWER_DIAG_ROW": "lower with diagonal",
    "UPPER_DIAG_COL": "lower with diagonal",
}


def matrix(document: Document, nodes: int) -> Float64[ndarray, "node node"]:
    """Returns the symmetric distances of `EDGE_WEIGHT_SECTION`, zero to oneself.

    Lines may break anywhere: only the order of the numbers counts. The diagonal is
    not used, as some files hold large numbers there to forbid staying.

    Raises:
        FormatError: A wrong count, or a distance that is negative or not symmetric.
    """
    style = document.word("EDGE_WEIGHT_FORMAT")
    line = document.required("EDGE_WEIGHT_FORMAT").line
    if style not in _FORMATS:
        known = ", ".join(_FORMATS)
        what = f"unknown EDGE_WEIGHT_FORMAT {shown(style)}: expected one of {known}"
        raise document.error(what, line)
    if nodes > MAX_MATRIX:
        what = f"a matrix for {nodes} nodes is too large, at most {MAX_MATRIX}"
        raise document.error(what, line)
    section = document.section("EDGE_WEIGHT_SECTION")
    lengths = _row_lengths(_FORMATS[style], nodes)
    values = _values(document, section, sum(lengths))
    if _FORMATS[style] == "full":
        result = values.reshape(nodes, nodes)
    else:
        result = _from_triangle(values, lengths, _FORMATS[style])
    np.fill_diagonal(result, 0.0)
    _check_symmetric(document, section, result)
    return result


def _row_lengths(shape: str, nodes: int) -> list[int]:
    """Returns how many numbers each row of the matrix has in the file."""
    if shape == "full":
        return [nodes] * nodes
    extra = int(shape.endswith("diagonal"))
    rising = [i + extra for i in range(nodes)]
    return rising if shape.startswith("lower") else rising[::-1]


def _from_triangle(values: ndarray, lengths: list[int], shape: str) -> ndarray:
    nodes = len(lengths)
    result = np.zeros((nodes, nodes))
    ends = np.cumsum(lengths)
    for i, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        row = values[end - length : end]
        place = slice(0, length) if shape.startswith("lower") else slice(-length, None)
        if length:
            result[i, place] = result[place, i] = row
    return result


def _values(document: Document, section: Section, expected: int) -> ndarray:
    """Returns the numbers of a section, whatever the line breaks."""
    rows = [np.zeros(0)]
    count = 0
    for line, content in section.rows:
        row = _row(document, line, content)
        count += len(row)
        if count > expected:
            what = f"{section.name} has more than the {expected} numbers expected"
            raise document.error(what, line)
        rows.append(row)
    if count < expected:
        what = f"{section.name} has {count} numbers, expected {expected}"
        raise document.error(what, section.line)
    return np.concatenate(rows)


def _row(document: Document, line: int, content: str) -> ndarray:
    tokens = content.split()
    # float() is the fast way, and laxer than we are: 1_000, nan, Arabic digits.
    if content.isascii() and "_" not in content:
        try:
            row = np.array([float(token) for token in tokens])
        except ValueError:
            pass
        else:
            if ((row >= 0) & (row <= LARGEST)).all():
                return row
    row = np.array([document.number(token, line, "a distance") for token in tokens])
    if (row < 0).any():
        raise document.error(f"distance {row[row < 0][0]:g} is negative", line)
    return row


def _check_symmetric(document: Document, section: Section, matrix: ndarray) -> None:
    if not (matrix != matrix.T).any():
        return
    i, j = map(int, np.argwhere(matrix != matrix.T)[0])
    raise document.error(
        f"{section.name} is not symmetric: {matrix[i, j]:g} in row {i + 1}, column "
        f"{j + 1}, but {matrix[j, i]:g} the other way",
        section.line,
    )
