"""Ruin and recreate: routes stay routes, and gains are what they claim to be."""

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renco.experts import find
from renco.fleet import NEAR, Fleet, Links, Map
from renco.problems import CVRP, Routes
from renco.quick import quick_start


def one(n: int, seed: int) -> tuple[CVRP, Routes, Map]:
    """Returns an instance, a quick solution and its map."""
    problem = CVRP.random(1, n, seed=seed)
    nodes = np.arange(n + 1)
    matrix = problem.legs(0, *np.broadcast_arrays(nodes[:, None], nodes))
    (routes,) = quick_start(problem, np.random.default_rng(seed))
    return problem, routes, Map.of(matrix, problem.demands[0], problem.capacity[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32))
def test_links_keep_routes_as_they_are(n: int, seed: int) -> None:
    """What was linked is read back, up to the order of the routes."""
    problem, routes, _ = one(n, seed)
    links = Links.of(routes, problem.demands[0].tolist())
    assert sorted(links.routes()) == sorted(routes)
    assert links.load == pytest.approx([problem.demands[0, r].sum() for r in routes])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32), st.floats(0.0, 0.5))
def test_every_solution_is_feasible_and_as_short_as_it_says(
    n: int, seed: int, heat: float
) -> None:
    """After each step, the current one and the best pass the check of the problem."""
    problem, routes, chart = one(n, seed)
    fleet = Fleet(routes, chart, Random(seed))
    before = problem.cost([routes])[0]
    for _ in range(20):
        fleet.anneal(1, heat)
        now = problem.cost([fleet._now.routes()])[0]
        assert now == pytest.approx(before + fleet._change)
        assert problem.cost([fleet.routes])[0] == pytest.approx(before - fleet.gained)
        loads = zip(fleet._now.load, fleet._now.size, strict=True)
        assert all(load == pytest.approx(0) for load, size in loads if not size)
    assert fleet.gained >= 0


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60), st.integers(0, 2**32))
def test_customers_go_back_where_they_cost_least(n: int, seed: int) -> None:
    """With all customers near and no blinking, no other place would be shorter."""
    problem, routes, chart = one(min(n, NEAR), seed)
    fleet = Fleet(routes, chart, Random(seed))
    (node, *_), _ = fleet._ruin()
    fleet = Fleet(routes, chart, Random(seed))
    without = [[c for c in route if c != node] for route in routes]
    without = [route for route in without if route]
    fleet._now = Links.of(without, chart.demands)
    fleet._rng.random = lambda: 0.5  # type: ignore[method-assign]
    longer = fleet._recreate([node])
    legs, choices = chart.legs, [2 * chart.legs[0][node]]
    for route in without:
        if sum(chart.demands[c] for c in [*route, node]) <= chart.capacity:
            stops = [0, *route, 0]
            choices += [
                legs[a][node] + legs[node][b] - legs[a][b]
                for a, b in itertools.pairwise(stops)
            ]
    assert longer == pytest.approx(min(choices))
    problem.cost([fleet._now.routes()])


def test_a_cooling_fleet_comes_near_the_expert() -> None:
    """From a quick start to within three percent, in 8,000 iterations."""
    problem, routes, chart = one(60, 1)
    best = problem.cost([find("auto", "cvrp")(problem, seconds=1.0, seed=0)])[0]
    assert problem.cost([routes])[0] > 1.05 * best
    fleet = Fleet(routes, chart, Random(0))
    for step in range(40):
        fleet.anneal(200, 0.2 * 0.9**step)
    assert problem.cost([fleet.routes])[0] < 1.03 * best


def test_the_same_seed_finds_the_same_routes_and_the_clock_is_asked() -> None:
    """Nothing but the generator decides; once in a hurry, nothing changes."""
    _, routes, chart = one(30, 0)
    found = []
    for _ in range(2):
        fleet = Fleet(routes, chart, Random(7))
        fleet.anneal(300, 0.05)
        found.append(fleet.routes)
    assert found[0] == found[1] != routes
    late = Fleet(routes, chart, Random(7))
    late.anneal(300, 0.05, hurry=lambda: True)
    assert late.gained == 0 and sorted(late.routes) == sorted(routes)
