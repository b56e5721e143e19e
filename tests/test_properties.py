"""Properties of all instances: what untrained policies build is always feasible."""

import functools
import os

import numpy as np
import pytest
import torch
from conftest import NearestPolicy, make_policy, rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from renco.construct import beam_search, greedy
from renco.metrics import METRICS, distance
from renco.problems import CVRP, OP, PROBLEMS, TSP, Problem

# The same examples in every run; RENCO_EXAMPLES=5000 looks further.
EXAMPLES = int(os.environ.get("RENCO_EXAMPLES", "25"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize="RENCO_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
)
every_problem = pytest.mark.parametrize("name", list(PROBLEMS))
policy_of = functools.lru_cache(make_policy)

GRID = st.integers(0, 4).map(float)
PLANE = st.floats(-1e6, 1e6)
UNIT = st.floats(0, 1, width=32)


@st.composite
def recipes(draw: st.DrawFn, name: str) -> dict:
    """Draws data of any kind: grids with duplicates, planes, unit squares."""
    batch, n = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    nodes = n + (name != "tsp")

    def table(numbers: st.SearchStrategy, *shape: int) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(numbers, min_size=size, max_size=size)))

    points = draw(st.sampled_from([GRID, PLANE, UNIT]))
    recipe = {
        "coords": table(points, batch, nodes, 2).reshape(batch, nodes, 2),
        "metric": draw(st.sampled_from(sorted(set(METRICS) - {"GEO"}))),
    }
    if name == "tsp":
        return recipe
    capacity = draw(st.integers(1, 20))
    values = table(st.integers(0, capacity), batch, n).reshape(batch, n)
    values = np.pad(values, ((0, 0), (1, 0)))
    if name == "op":
        tour = draw(st.permutations(range(1, n + 1)))[: draw(st.integers(0, n))]
        factor = draw(st.none() | st.sampled_from([0.5, 1.0, 1.5]))
        number = draw(st.floats(0, 10))
        return recipe | {"prizes": values, "limit": (tour, factor, number)}
    if draw(st.booleans()):  # fractions of one vehicle, whose sums round
        return recipe | {"demands": values / capacity, "capacity": 1}
    return recipe | {"demands": values, "capacity": capacity}


def draw_batch(data: st.DataObject, name: str) -> Problem:
    """Draws a batch of instances."""
    recipe = data.draw(recipes(name))
    if name == "op":
        tour, factor, number = recipe["limit"]
        if factor is not None:  # limits that some tour meets exactly, and near them
            tours = [[tour]] * len(recipe["coords"])
            number = OP(**recipe | {"limit": 0.0}).length(tours) * factor
        recipe["limit"] = number
    return PROBLEMS[name](**recipe)


def check(problem: Problem, decisions: torch.Tensor, cost: torch.Tensor) -> None:
    """Checks feasibility, and the cost where state and instance measure alike."""
    exact = problem.cost(problem.routes(decisions))
    assert cost.isfinite().all()
    if problem.name == "op" or problem.metric in ("euclidean", "EXACT_2D"):
        scale = np.maximum(np.ptp(problem.coords, axis=1).max(1), 1e-30)
        scale = np.ones(len(problem)) if problem.name == "op" else scale
        np.testing.assert_allclose(cost.numpy() / scale, exact / scale, atol=1e-4)


@every_problem
@given(data=st.data())
@examples
def test_random_rollouts_are_feasible(name: str, data: st.DataObject) -> None:
    """Any sequence of feasible actions is a solution, and costed alike."""
    problem = draw_batch(data, name)
    states, decisions = rollout(problem.start(), data.draw(st.integers(0, 99)))
    check(problem, decisions, states[-1].cost)
    for state in states[:-1]:
        assert state.feasible().expand(len(problem), -1).any(dim=1).all()
        assert state.features().isfinite().all()


@every_problem
@given(data=st.data())
@examples
def test_untrained_policies_are_feasible(name: str, data: st.DataObject) -> None:
    """Greedy and beam search of untrained weights solve whatever they are given."""
    problem = draw_batch(data, name)
    options = data.draw(
        st.sampled_from([{}, {"relative": True}, {"geometry": True, "zoom": True}])
    )
    policy = policy_of(name, seed=data.draw(st.integers(0, 3)), **options)
    k, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    for found in (
        greedy(policy, problem.start(), k=k),
        beam_search(policy, problem.start(), k=k, width=width),
    ):
        check(problem, found.decisions, found.cost)


@every_problem
@given(data=st.data())
@examples
def test_replay_and_routes_agree_with_stepping(name: str, data: st.DataObject) -> None:
    """Any state of any roll-out can be reached without stepping."""
    problem = draw_batch(data, name)
    states, decisions = rollout(problem.start(), data.draw(st.integers(0, 99)))
    step = data.draw(st.integers(0, len(states) - 1))
    replayed, stepped = problem.replay(decisions, step), states[step]
    assert torch.equal(replayed.node[:, [0, -1]], stepped.node[:, [0, -1]])
    torch.testing.assert_close(replayed.cost, stepped.cost)
    mask, expected = (
        state.feasible().expand(len(problem), -1).sum(1)
        for state in (replayed, stepped)
    )
    assert torch.equal(mask, expected)
    back = problem.decisions(problem.routes(decisions))
    assert torch.equal(back, decisions[:, : back.shape[1]])


@every_problem
@given(data=st.data())
@examples
def test_rows_do_not_depend_on_their_batch(name: str, data: st.DataObject) -> None:
    """An instance is solved alike alone and in company, finished early or not."""
    problem = draw_batch(data, name)
    found = greedy(NearestPolicy(), problem.start(), k=2)
    routes = problem.routes(found.decisions)
    for i in range(len(problem)):
        alone = greedy(NearestPolicy(), problem[i].start(), k=2)
        assert problem[i].routes(alone.decisions) == [routes[i]]


@given(data=st.data(), metric=st.sampled_from(sorted(METRICS)))
@examples
def test_distances_are_symmetric_and_not_negative(
    data: st.DataObject, metric: str
) -> None:
    """No metric gives NaN, a negative distance or a preferred direction."""
    bound = 90.0 if metric == "GEO" else 1e9
    numbers = st.floats(-bound, bound)
    a, b = (np.array([data.draw(numbers), data.draw(numbers)]) for _ in "ab")
    there, back = distance(metric, a, b), distance(metric, b, a)
    assert there == back
    assert there >= 0
    assert distance(metric, a, a.copy()) == 0


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(coords=GARBAGE, second=GARBAGE, third=GARBAGE)
@examples
def test_garbage_is_refused_politely(
    coords: object, second: object, third: object
) -> None:
    """Whatever is passed, the answer is an instance or a ValueError."""
    for make in (
        lambda: TSP(coords),
        lambda: CVRP(coords, second, third),
        lambda: OP(coords, second, third),
        lambda: CVRP([[0.0, 0.0], [1.0, 0.0]], second, third),
        lambda: OP([[0.0, 0.0], [1.0, 0.0]], second, third),
        lambda: TSP([[0.0, 0.0], [1.0, 0.0]], metric="EXPLICIT", matrix=second),
    ):
        try:
            problem = make()
        except ValueError as error:
            assert str(error)
        else:
            assert problem.start().features().isfinite().all()
