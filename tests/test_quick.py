"""Tests of the solutions without a network."""

import numpy as np
import pytest

from renco.problems import CVRP, OP, PROBLEMS, TSP
from renco.quick import filled, quick_start, strips


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("hurried", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 60])
def test_quick_solutions_are_feasible(name: str, hurried: bool, n: int) -> None:
    """Every size has a valid solution, in a hurry too."""
    problem = PROBLEMS[name].random(2, n, seed=n)
    routes = quick_start(problem, np.random.default_rng(0), lambda: hurried)
    assert len(problem.cost(routes)) == 2


@pytest.mark.parametrize("hurried", [False, True])
def test_points_that_coincide_are_no_trouble(hurried: bool) -> None:
    """All distances zero leave nothing to divide by."""
    spot = np.ones((6, 2))
    rng = np.random.default_rng(0)
    for problem in (
        TSP(spot),
        CVRP(spot, [0.0, 1, 1, 1, 1, 1], 2.0),
        OP(spot, [0.0, 1, 1, 1, 1, 1], 1.0),
    ):
        problem.cost(quick_start(problem, rng, lambda: hurried))
    if not hurried:
        assert problem.cost(quick_start(problem, rng)) == -5


def test_insertion_beats_strips() -> None:
    """With time the tours are clearly shorter."""
    problem = TSP.random(5, 100, seed=1)
    slow = problem.cost(quick_start(problem, np.random.default_rng(0)))
    fast = problem.cost([[strips(problem, i)] for i in range(5)])
    assert slow.mean() < 0.95 * fast.mean()


def test_savings_beat_strips_and_fill_vehicles_exactly() -> None:
    """Routes are clearly shorter and an exact fit is used."""
    problem = CVRP.random(5, 100, seed=1)
    slow = problem.cost(quick_start(problem, np.random.default_rng(0)))
    fast = problem.cost([filled(problem, i) for i in range(5)])
    assert slow.mean() < 0.9 * fast.mean()
    far = CVRP([[0.0, 0], [9, 0], [9, 1]], [0.0, 1, 1], 2.0)
    assert len(quick_start(far, np.random.default_rng(0))[0]) == 1


def test_prize_insertion_uses_the_limit_exactly() -> None:
    """A node that just fits is visited, one that does not is left out."""
    coords = [[0.0, 0.0], [1.0, 0.0], [1.5, 0.0]]
    rng = np.random.default_rng(0)
    assert quick_start(OP(coords, [0.0, 1, 1], 2.0), rng) == [[[1]]]
    assert OP(coords, [0.0, 1, 1], 3.0).cost(
        quick_start(OP(coords, [0.0, 1, 1], 3.0), rng)
    ) == [-2.0]
