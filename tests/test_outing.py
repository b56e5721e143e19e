"""Ruin and recreate: tours stay within their limit, and have the prize they claim."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renco.experts import find
from renco.local import improve, length_of
from renco.outing import NEAR, Outing, Park, Walk
from renco.problems import OP
from renco.quick import quick_start


def one(n: int, seed: int) -> tuple[OP, list[int], Park]:
    """Returns an instance, a quick tour and its map."""
    problem = OP.random(1, n, seed=seed)
    nodes = np.arange(n + 1)
    matrix = problem.legs(0, *np.broadcast_arrays(nodes[:, None], nodes))
    ((tour,),) = quick_start(problem, np.random.default_rng(seed))
    return problem, tour, Park.of(matrix, problem.prizes[0], float(problem.limit[0]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(0, 2**32), st.floats(0.0, 2.0))
def test_every_tour_is_feasible_and_has_the_prize_it_says(
    n: int, seed: int, heat: float
) -> None:
    """After each step; the best one never gets worse."""
    problem, tour, park = one(n, seed)
    outing = Outing(tour, park, Random(seed))
    cost = problem.cost([[tour]])[0]
    for _ in range(20):
        outing.anneal(1, heat)
        now = outing._now
        assert problem.cost([[now.tour()]])[0] == pytest.approx(-now.prize)
        assert problem.length([[now.tour()]])[0] == pytest.approx(now.length)
        off = set(range(1, n + 1)) - set(now.tour())
        assert all(now.after[node] == now.before[node] == -1 for node in off)
        best = problem.cost([outing.routes])[0]
        assert best <= cost
        cost = best


@settings(max_examples=30, deadline=None)
@given(st.integers(2, NEAR), st.integers(0, 2**32))
def test_nodes_come_in_where_they_cost_least(n: int, seed: int) -> None:
    """With all nodes near and no blinking, no other place would be shorter."""
    problem, tour, park = one(n, seed)
    node = tour.pop()
    outing = Outing(tour, park, Random(seed))
    outing._rng.random = lambda: 0.5  # type: ignore[method-assign]
    extra, *place = outing._least(node)
    lengths = [
        problem.length([[[*tour[:i], node, *tour[i:]]]])[0]
        for i in range(len(tour) + 1)
    ]
    before = problem.length([[tour]])[0]
    assert before + extra == pytest.approx(min(lengths))
    assert outing._now.after[place[0]] == place[1]


def test_nodes_without_a_prize_stay_out() -> None:
    """They would only use up length."""
    problem, _, _ = one(40, 2)
    prizes = problem.prizes[0].copy()
    prizes[5:] = 0.0
    nodes = np.arange(41)
    matrix = problem.legs(0, *np.broadcast_arrays(nodes[:, None], nodes))
    outing = Outing([], Park.of(matrix, prizes, 4.0), Random(0))
    outing.anneal(300, 0.1)
    assert outing.routes[0] and {*outing.routes[0]} <= {1, 2, 3, 4}


def test_an_exact_fit_fits() -> None:
    """What is as long as the limit is within it, however its sum is rounded."""
    problem, _, park = one(30, 3)
    best = find("auto", "op")(problem, seconds=0.3, seed=0)[0]
    exact = Walk.of(best, park).length
    outing = Outing(best, park._replace(limit=exact), Random(0))
    outing.anneal(500, 0.5)
    matrix = np.array([list(row) for row in park.legs])
    assert length_of(outing.routes[0], matrix) <= exact * (1 + 1e-12)
    assert outing._best.prize >= Walk.of(best, park).prize


def test_a_cooling_outing_comes_near_the_expert() -> None:
    """From where local moves end to within two percent, in 8,000 iterations."""
    problem, tour, park = one(60, 6)
    best = find("auto", "op")(problem, seconds=1.0, seed=0)
    reference = problem.cost([best])[0]
    matrix = np.array([list(row) for row in park.legs])
    tour = improve(tour, matrix, problem.prizes[0], park.limit)
    assert problem.cost([[tour]])[0] > 0.97 * reference
    outing = Outing(tour, park, Random(0))
    usual = float(problem.prizes[0, 1:].mean())
    for step in range(40):
        outing.anneal(200, usual * 0.85**step)
    assert problem.cost([outing.routes])[0] < 0.98 * reference


def test_the_same_seed_finds_the_same_tour_and_the_clock_is_asked() -> None:
    """Nothing but the generator decides; once in a hurry, nothing changes."""
    _, tour, park = one(40, 0)
    found = []
    for _ in range(2):
        outing = Outing(tour, park, Random(7))
        outing.anneal(300, 0.3)
        found.append(outing.routes)
    assert found[0] == found[1] != [tour]
    late = Outing(tour, park, Random(7))
    late.anneal(300, 0.3, hurry=lambda: True)
    assert late.routes == [tour]
