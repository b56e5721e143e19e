"""Distances against TSPLIB's published values and a naive re-implementation."""

import math

import numpy as np
import pytest

from renco.metrics import METRICS, distance, plane
from renco.problems import TSP

BURMA14 = """16.47 96.10 16.47 94.44 20.09 92.54 22.39 93.37 25.23 97.24 22.00 96.05
20.47 97.02 17.20 96.29 16.30 97.38 14.05 98.12 16.53 97.38 21.52 95.59 19.41 97.13
20.09 94.55"""
BURMA14_TOUR = "1 2 14 3 4 5 6 12 7 13 8 11 9 10"
ULYSSES16 = """38.24 20.42 39.57 26.15 40.56 25.32 36.26 23.12 33.48 10.54 37.56 12.19
38.42 13.11 37.52 20.44 41.23 9.10 41.17 13.05 36.08 -5.21 38.47 15.13 38.15 15.35
37.51 15.17 35.49 14.32 39.36 19.56"""
ULYSSES16_TOUR = "1 14 13 12 7 6 15 5 11 9 10 16 3 2 4 8"
ATT48 = """6734 1453 2233 10 5530 1424 401 841 3082 1644 7608 4458 7573 3716 7265 1268
6898 1885 1112 2049 5468 2606 5989 2873 4706 2674 4612 2035 6347 2683 6107 669 7611
5184 7462 3590 7732 4723 5900 3561 4483 3369 6101 1110 5199 2182 1633 2809 4307 2322
675 1006 7555 4819 7541 3981 3177 756 7352 4506 7545 2801 3245 3305 6426 3173 4608
1198 23 2216 7248 3779 7762 4595 7392 2244 3484 2829 6271 2135 4985 140 1916 1569
7280 4899 7509 3239 10 2676 6807 2993 5185 3258 3023 1942"""
ATT48_TOUR = """1 8 38 31 44 18 7 28 6 37 19 27 17 43 30 36 46 33 20 47 21 32 39 48 5
42 24 10 45 35 4 26 2 29 34 41 16 22 3 23 14 25 13 11 12 15 40 9"""


def points_of(text: str) -> np.ndarray:
    """Returns coordinates listed as text."""
    return np.array(text.split(), dtype=float).reshape(-1, 2)


def single(metric: str, a: tuple[float, float], b: tuple[float, float]) -> float:
    """Returns the distance of two points as a number."""
    return float(distance(metric, np.array(a, float), np.array(b, float)))


def naive(metric: str, a: tuple[float, float], b: tuple[float, float]) -> float:
    """TSPLIB's formulas once more, one pair at a time, in the words of its manual."""
    xd, yd = abs(a[0] - b[0]), abs(a[1] - b[1])

    def nint(x: float) -> int:
        return int(x + 0.5)

    if metric == "GEO":
        angles = []
        for x in (*a, *b):
            degrees = int(x)
            angles.append(3.141592 * (degrees + 5.0 * (x - degrees) / 3.0) / 180.0)
        lat_a, lon_a, lat_b, lon_b = angles
        q1 = math.cos(lon_a - lon_b)
        q2 = math.cos(lat_a - lat_b)
        q3 = math.cos(lat_a + lat_b)
        cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3)
        return int(6378.388 * math.acos(cosine) + 1.0)
    if metric == "ATT":
        r = math.sqrt((xd * xd + yd * yd) / 10.0)
        t = nint(r)
        return t + 1 if t < r else t
    return {
        "euclidean": math.hypot(xd, yd),
        "EXACT_2D": math.hypot(xd, yd),
        "EUC_2D": nint(math.hypot(xd, yd)),
        "CEIL_2D": math.ceil(math.hypot(xd, yd)),
        "FLOOR_2D": math.floor(math.hypot(xd, yd)),
        "MAN_2D": nint(xd + yd),
        "MAX_2D": max(nint(xd), nint(yd)),
    }[metric]


@pytest.mark.parametrize(
    "metric, coords, tour, optimum",
    [
        ("GEO", BURMA14, BURMA14_TOUR, 3323),
        ("GEO", ULYSSES16, ULYSSES16_TOUR, 6859),
        ("ATT", ATT48, ATT48_TOUR, 10628),
    ],
    ids=["burma14", "ulysses16", "att48"],
)
def test_published_optima(metric: str, coords: str, tour: str, optimum: int) -> None:
    """The optimal tours of TSPLIB instances have their published lengths."""
    route = [int(node) - 1 for node in tour.split()]
    assert TSP(points_of(coords), metric=metric).cost([[route]]) == optimum


@pytest.mark.parametrize("metric", list(METRICS))
def test_every_metric_equals_the_manual(metric: str) -> None:
    """Random pairs agree with the formulas written out one pair at a time."""
    rng = np.random.default_rng(1)
    low, high = (-80, 80) if metric == "GEO" else (-5000, 5000)
    a, b = rng.uniform(low, high, (2, 300, 2)).round(2)
    expected = [naive(metric, tuple(p), tuple(q)) for p, q in zip(a, b, strict=True)]
    np.testing.assert_allclose(distance(metric, a, b), expected, rtol=1e-15)


@pytest.mark.parametrize(
    "metric, b, expected",
    [
        ("euclidean", (3, 4), 5),
        ("euclidean", (1, 1), math.sqrt(2)),
        ("EXACT_2D", (1, 1), math.sqrt(2)),
        ("EUC_2D", (2.5, 0), 3),  # a tie rounds up, not to even
        ("EUC_2D", (1.5, 2), 3),  # also 2.5
        ("EUC_2D", (0.5, 0), 1),
        ("EUC_2D", (2.4999, 0), 2),
        ("CEIL_2D", (3, 4), 5),
        ("CEIL_2D", (1, 1), 2),
        ("FLOOR_2D", (3, 4), 5),
        ("FLOOR_2D", (2, 2), 2),
        ("MAN_2D", (3, 4), 7),
        ("MAN_2D", (1.25, 1.25), 3),  # the sum is rounded, not each part
        ("MAX_2D", (3, -4), 4),
        ("MAX_2D", (2.5, 0.1), 3),
        ("ATT", (10, 0), 4),  # sqrt(10) = 3.16: rounded down to 3, so one more
        ("ATT", (30, 10), 10),  # exactly ten stays ten
        ("ATT", (12, 0), 4),  # 3.79 rounds up to 4 and stays
        ("GEO", (0.0, 0.0), 0),
        ("GEO", (0.0, 180.0), 20039),  # half the equator
        ("GEO", (90.0, 0.0), 10020),  # to the pole
        ("GEO", (0.30, 0.0), 56),  # thirty minutes are half a degree
    ],
)
def test_hand_computed_distances(
    metric: str, b: tuple[float, float], expected: float
) -> None:
    """Distances from the origin, ties and rounding in each direction included."""
    assert single(metric, (0, 0), b) == expected
    assert single(metric, b, (0, 0)) == expected


@pytest.mark.parametrize("metric", list(METRICS))
def test_coinciding_points_have_no_distance(metric: str) -> None:
    """A duplicate is at distance zero, at any place, also where cosines round."""
    a = np.random.default_rng(0).uniform(-80, 80, (500, 2))
    assert (distance(metric, a, a.copy()) == 0).all()


@pytest.mark.parametrize("metric", sorted(set(METRICS) - {"GEO"}))
def test_large_offsets_change_nothing(metric: str) -> None:
    """Coordinates as in national grids lose no digits that matter."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 1000, (2, 200, 2)).astype(float)
    shifted = distance(metric, a + 5e6, b + 5e6)
    np.testing.assert_array_equal(shifted, distance(metric, a, b))


@pytest.mark.parametrize("metric", list(METRICS))
def test_distances_broadcast(metric: str) -> None:
    """One point against many, all against all, and single points work alike."""
    a = np.random.default_rng(3).uniform(0, 80, (6, 2))
    table = distance(metric, a[:, None], a)
    assert table.shape == (6, 6)
    assert table.dtype == np.float64
    np.testing.assert_array_equal(table, table.T)
    np.testing.assert_array_equal(distance(metric, a[2], a), table[2])
    one = distance(metric, a[2], a[4])
    assert one.shape == ()
    assert one == table[2, 4]


def test_southern_and_western_coordinates_are_truncated_to_zero() -> None:
    """Minutes of negative coordinates count away from zero, as the degrees do."""
    assert single("GEO", (0, 0), (0, -5.30)) == single("GEO", (0, 0), (0, 5.30))
    assert single("GEO", (-0.30, 0), (0.30, 0)) == 112


@pytest.mark.parametrize("metric", ["XRAY1", "euc_2d", "", "EUC_3D"])
def test_unknown_metrics_are_named(metric: str) -> None:
    """The error repeats the metric and lists the known ones."""
    with pytest.raises(ValueError, match=f"unknown metric {metric!r}.*EUC_2D"):
        distance(metric, np.zeros((1, 2)), np.zeros((1, 2)))


def test_plane_keeps_planar_coordinates() -> None:
    """Only geographical coordinates are projected."""
    a = np.random.default_rng(0).uniform(-80, 80, (2, 5, 2))
    for metric in set(METRICS) - {"GEO"}:
        np.testing.assert_array_equal(plane(metric, a), a)


def test_plane_resembles_geographical_distances() -> None:
    """Projected distances are within two per cent for a country's extent."""
    a = points_of(BURMA14)
    flat = plane("GEO", a[None])[0]
    near = np.hypot(*np.moveaxis(flat[:, None] - flat, -1, 0))
    true = distance("GEO", a[:, None], a)
    far = true > 100
    np.testing.assert_allclose(near[far], true[far], rtol=0.02)
    assert np.argmax(flat[:, 1]) == np.argmax(a[:, 0])  # north is up
    assert np.argmax(flat[:, 0]) == np.argmax(a[:, 1])  # east is right
