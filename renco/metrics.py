"""Distances between points under the rules of TSPLIB.

The metric, rounding included, belongs to the instance: the same coordinates have
different costs, and for the orienteering problem different feasible routes, under
different rules. Formulas: G. Reinelt, "TSPLIB 95", sections 2.1 to 2.5; the
`EXACT_2D` and `FLOOR_2D` types are those of CVRPLIB and LKH.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

Coordinates = Float64[ndarray, "... 2"]
Distances = Float64[ndarray, "..."]

EARTH_RADIUS = 6378.388  # kilometres, fixed by TSPLIB
PI = 3.141592  # TSPLIB's own value: results depend on it


def _euclidean(a: ndarray, b: ndarray) -> ndarray:
    difference = a - b
    return np.asarray(np.hypot(difference[..., 0], difference[..., 1]))


def _nearest(a: ndarray, b: ndarray) -> ndarray:
    """EUC_2D: half rounds up, as TSPLIB's `(int)(x + 0.5)` does, not to even."""
    return np.asarray(np.floor(_euclidean(a, b) + 0.5))


def _pseudo_euclidean(a: ndarray, b: ndarray) -> ndarray:
    """ATT: the rounded value, or one more where rounding went down."""
    difference = a - b
    exact = np.sqrt((difference**2).sum(-1) / 10.0)
    rounded = np.floor(exact + 0.5)
    return np.asarray(np.where(rounded < exact, rounded + 1.0, rounded))


def radians(coordinates: Coordinates) -> Float64[ndarray, "*any 2"]:
    """Returns latitude and longitude in radians from TSPLIB's DDD.MM notation."""
    degrees = np.trunc(coordinates)
    return np.asarray(PI * (degrees + 5.0 * (coordinates - degrees) / 3.0) / 180.0)


def _geographical(a: ndarray, b: ndarray) -> ndarray:
    """GEO: great-circle kilometres, rounded down after adding one."""
    p, q = radians(a), radians(b)
    q1 = np.cos(p[..., 1] - q[..., 1])
    q2 = np.cos(p[..., 0] - q[..., 0])
    q3 = np.cos(p[..., 0] + q[..., 0])
    cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
    # Rounding can push the cosine of coinciding points a hair above one.
    distance = np.floor(EARTH_RADIUS * np.arccos(np.clip(cosine, -1.0, 1.0)) + 1.0)
    same = (np.asarray(a) == np.asarray(b)).all(-1)
    return np.where(same, 0.0, distance)


def _manhattan(a: ndarray, b: ndarray) -> ndarray:
    return np.asarray(np.floor(np.abs(a - b).sum(-1) + 0.5))


def _maximum(a: ndarray, b: ndarray) -> ndarray:
    """MAX_2D: the larger of the two rounded differences."""
    return np.asarray(np.floor(np.abs(a - b) + 0.5).max(-1))


METRICS: dict[str, Callable[[ndarray, ndarray], ndarray]] = {
    "euclidean": _euclidean,
    "EUC_2D": _nearest,
    "CEIL_2D": lambda a, b: np.asarray(np.ceil(_euclidean(a, b))),
    "FLOOR_2D": lambda a, b: np.asarray(np.floor(_euclidean(a, b))),
    "EXACT_2D": _euclidean,
    "MAN_2D": _manhattan,
    "MAX_2D": _maximum,
    "ATT": _pseudo_euclidean,
    "GEO": _geographical,
}
EXPLICIT = "EXPLICIT"  # distances come from the instance's own matrix


def distance(metric: str, a: Coordinates, b: Coordinates) -> Distances:
    """Returns the distance from each point of `a` to each of `b`, broadcasting."""
    if metric not in METRICS:
        known = ", ".join(METRICS)
        raise ValueError(f"unknown metric {metric!r}: expected one of {known}")
    # hypot and the others return scalars for single points; callers want arrays.
    return np.asarray(METRICS[metric](a, b), dtype=np.float64)


def plane(metric: str, coordinates: Coordinates) -> Float64[ndarray, "*any 2"]:
    """Returns coordinates whose Euclidean geometry resembles the metric's.

    The networks see points in a plane. Geographical coordinates are projected
    (equirectangular, about the mean latitude); all other types are planar already.
    """
    if metric != "GEO":
        return coordinates
    angles = radians(coordinates)
    latitude, longitude = angles[..., 0], angles[..., 1]
    middle = latitude.mean(-1, keepdims=True)
    return np.stack([longitude * np.cos(middle), latitude], -1) * EARTH_RADIUS
