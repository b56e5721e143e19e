"""Tests of cutting sub-problems out of solutions and pasting them back."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray

from renco.problems import CVRP, OP, PROBLEMS, TSP, Problem, Routes
from renco.quick import quick_start
from renco.segments import Cut, CutSettings, Segments, segments_of

CPU = torch.device("cpu")


def cut_of(
    problem: Problem, count: int = 3, seed: int = 0, **how: Any
) -> tuple[Segments[Any], Cut]:
    """Cuts quick solutions of a problem."""
    rng = np.random.default_rng(seed)
    segments = segments_of(problem, quick_start(problem, rng), CPU)
    settings = CutSettings(**{"n_sub": 10} | how)
    cut = segments.sample_subproblem(count, settings, rng)
    assert cut is not None
    return segments, cut


def unchanged(problem: Problem, cut: Cut) -> ndarray:
    """Returns the decisions that keep every segment as it is."""
    rows, nodes = cut.node.shape
    place = np.tile(np.arange(1, nodes - 1), (rows, 1))
    if isinstance(problem, CVRP):
        return place * 2 + np.array([window.via for window in cut.windows])
    if isinstance(problem, OP):
        inside = np.array([[len(stretch.inside)] for stretch in cut.stretches])
        return np.where(place <= inside, place, nodes - 1)
    return place


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("batch", [1, 3])
def test_each_segment_fills_its_own_unit_square(name: str, batch: int) -> None:
    """Coordinates are in the square, and lengths keep their proportions."""
    problem = PROBLEMS[name].random(batch, 50, seed=1)
    _, cut = cut_of(problem)
    xy, side = cut.state.xy.double().numpy(), cut.state.side.numpy()
    assert xy.min() == 0
    assert xy.max(axis=(1, 2)) == pytest.approx(1)
    for row, index in enumerate(cut.instance):
        points = problem.coords[index, cut.node[row]]
        true = np.linalg.norm(points - points[0], axis=1)
        seen = np.linalg.norm(xy[row] - xy[row, 0], axis=1) * side[row]
        assert seen == pytest.approx(true, abs=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("inner", [False, True])
def test_the_current_solution_is_a_walk_through_the_state(
    name: str, inner: bool
) -> None:
    """Its actions are all feasible, and the state sees the true length of it."""
    problem = PROBLEMS[name].random(2, 60, seed=2)
    _, cut = cut_of(problem, inner=inner)
    state = cut.state
    decisions = torch.from_numpy(unchanged(problem, cut))
    for decision in decisions.T:
        node, choice = decision // state.choices, decision % state.choices
        place = torch.where(
            node == state.node[:, -1],
            state.node.shape[1] - 1,
            (state.node == node[:, None]).long().argmax(1),
        )
        action = place * state.choices + choice
        assert state.feasible().expand(len(cut), -1).gather(1, action[:, None]).all()
        state = state.step(action)
        if isinstance(problem, OP) and state.done:
            break
    if isinstance(problem, OP):
        inside = [problem.prizes[s.instance, s.inside].sum() for s in cut.stretches]
        assert state.collected.numpy() == pytest.approx(np.array(inside))
        return
    for row, index in enumerate(cut.instance):
        path = [int(cut.node[row, 0])]
        for decision in decisions[row].tolist():
            place, via = divmod(decision, state.choices)
            path += [0] * via + [int(cut.node[row, place])]
        path = np.array([*path, cut.node[row, -1]])
        length = problem.legs(int(index), path[:-1], path[1:]).sum()
        assert float(state.cost[row]) == pytest.approx(length, rel=1e-4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_an_unchanged_segment_is_no_improvement(name: str) -> None:
    """Pasting what was there accepts nothing and changes nothing."""
    problem = PROBLEMS[name].random(2, 60, seed=3)
    segments, cut = cut_of(problem)
    before, cost = segments.routes, segments.cost.copy()
    better, pasted = segments.update_solution(cut, unchanged(problem, cut))
    assert not better.any()
    assert not pasted.any()
    assert segments.routes == before
    assert (segments.cost == cost).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_worse_segment_is_refused(name: str) -> None:
    """Nodes in a random order, or none at all, are not pasted."""
    problem = PROBLEMS[name].random(2, 60, seed=4)
    segments, cut = cut_of(problem)
    before = segments.routes
    decisions = unchanged(problem, cut)
    if isinstance(problem, OP):
        decisions[:] = cut.node.shape[1] - 1
    else:
        rng = np.random.default_rng(0)
        shuffled = rng.permuted(decisions // (1 + (name == "cvrp")), axis=1)
        decisions = shuffled * 2 + 1 if name == "cvrp" else shuffled
        if name == "cvrp":  # the depot is never left via the depot
            decisions[:, 0] -= cut.node[:, 0] == 0
    assert not segments.update_solution(cut, decisions)[0].any()
    assert segments.routes == before


@pytest.mark.parametrize("n_sub", [4, 10, 23, 60, 200])
def test_windows_of_a_tour_are_disjoint_as_far_as_they_fit(n_sub: int) -> None:
    """Two windows share end nodes at most until the tour is used up."""
    problem = TSP.random(2, 60, seed=5)
    size = min(n_sub, 61)
    fitting = 60 // (size - 1)
    segments, cut = cut_of(problem, count=fitting, n_sub=n_sub)
    assert cut.node.shape == (2 * fitting, size)
    for index in (0, 1):
        rows = np.flatnonzero(cut.instance == index)
        inside = cut.node[rows, 1:-1].ravel()
        assert len(set(inside.tolist())) == len(inside)
        claims = [segments._claims(cut, int(row)) for row in rows]
        assert len(set.union(*claims)) == sum(map(len, claims))


def test_of_overlapping_segments_the_better_one_is_pasted() -> None:
    """Two improvements of the same edges cannot both be had."""
    problem = TSP.random(1, 12, seed=6)
    tour = np.random.default_rng(1).permutation(12).tolist()
    segments = segments_of(problem, [[tour]], CPU)
    rng = np.random.default_rng(0)
    cut = segments.sample_subproblem(40, CutSettings(8), rng)
    assert cut is not None
    decisions = rng.permuted(np.tile(np.arange(1, 7), (40, 1)), axis=1)
    gains = segments._gains(cut, decisions)
    assert (gains > 0).sum() > 1
    before = segments.cost[0]
    better, accepted = segments.update_solution(cut, decisions)
    assert (better == (gains > 0)).all()
    assert accepted.tolist() == (np.arange(40) == gains.argmax()).tolist()
    assert segments.cost[0] == pytest.approx(before - gains.max())


def test_disjoint_segments_are_pasted_together() -> None:
    """Gains of windows that share only end nodes add up."""
    problem = TSP.random(1, 40, seed=7)
    tour = np.random.default_rng(1).permutation(40).tolist()
    segments = segments_of(problem, [[tour]], CPU)
    rng = np.random.default_rng(3)
    cut = segments.sample_subproblem(5, CutSettings(9), rng)
    assert cut is not None
    decisions = rng.permuted(np.tile(np.arange(1, 8), (5, 1)), axis=1)
    gains = segments._gains(cut, decisions)
    before = segments.cost[0]
    _, accepted = segments.update_solution(cut, decisions)
    assert accepted.sum() > 1
    assert (accepted == (gains > 0)).all()
    assert segments.cost[0] == pytest.approx(before - gains.sum())


@pytest.mark.parametrize("order", ["random", "near"])
def test_windows_of_routes_have_exactly_n_sub_customers(order: str) -> None:
    """A window is whole routes and the tail of one; its room is what the head left."""
    problem = CVRP.random(2, 60, seed=8)
    segments, cut = cut_of(problem, count=4, n_sub=17, order=order)
    routes = segments.routes
    assert cut.node.shape == (8, 19)
    heads = 0
    for row, window in enumerate(cut.windows):
        index = int(cut.instance[row])
        taken = [node for i in window.routes for node in routes[index][i]]
        assert sorted(window.head + window.open) == sorted(taken)
        load = problem.demands[index, window.head].sum()
        assert float(cut.state.room[row]) == problem.capacity[index] - load
        at_depot = cut.state.node[row, 0] == cut.state.node[row, -1]
        assert bool(at_depot) == (not window.head)
        heads += bool(window.head)
    assert heads > 0
    for index in (0, 1):
        first = [cut.windows[row] for row in np.flatnonzero(cut.instance == index)]
        used = [i for window in first[:2] for i in window.routes]
        assert len(used) == len(set(used))


def test_near_routes_are_nearer_than_random_ones() -> None:
    """Windows of neighbouring routes cover less ground."""
    problem = CVRP.random(1, 200, seed=9)

    def spread(order: str) -> float:
        _, cut = cut_of(problem, count=20, n_sub=40, order=order)
        points = problem.coords[0, cut.node[:, 1:-1]]
        return float(points.std(axis=1).mean())

    assert spread("near") < 0.8 * spread("random")


def test_a_cut_route_can_be_closed_and_a_new_one_begun() -> None:
    """Via the depot at the first step, the kept head becomes a route of its own."""
    coords = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.1, 0.0], [1.1, 0.0]]
    problem = CVRP(coords, [0.0, 1, 1, 1, 1], 4.0)
    segments = segments_of(problem, [[[1, 2, 4, 3]]], CPU)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        cut = segments.sample_subproblem(1, CutSettings(3), rng)
        assert cut is not None
        if cut.windows[0].head == [1]:
            break
    assert cut.node.tolist() == [[1, 2, 4, 3, 0]]
    # From 1 directly to 4, then via the depot to 2 and 3.
    _, accepted = segments.update_solution(cut, np.array([[4, 3, 6]]))
    assert accepted.all()
    assert segments.routes == [[[1, 4], [2, 3]]]
    assert segments.cost[0] == pytest.approx(2.2 + 2.2)


@pytest.mark.parametrize("inner", [False, True])
def test_stretches_get_all_the_length_the_rest_leaves(inner: bool) -> None:
    """Remaining length is the limit minus what is kept; open nodes are unvisited."""
    problem = OP.random(2, 60, seed=10)
    _, cut = cut_of(problem, count=6, n_sub=20, inner=inner)
    ends = set()
    for row, stretch in enumerate(cut.stretches):
        path = np.array(stretch.path)
        legs = problem.legs(stretch.instance, path[:-1], path[1:])
        kept = legs.sum() - legs[stretch.first : stretch.last].sum()
        left = float(cut.state.remaining[row] * cut.state.side[row].double())
        assert left == pytest.approx(4.0 - kept, rel=1e-5)
        rest = stretch.path[: stretch.first] + stretch.path[stretch.last + 1 :]
        opened = cut.node[row, 1:-1].tolist()
        assert set(stretch.inside) <= set(opened)
        assert not set(opened) & (set(rest) | {0})
        assert len(set(opened)) == len(opened)
        ends.add(int(cut.node[row, -1]))
    assert (ends != {0}) == inner


def test_more_prize_is_accepted_although_the_tour_gets_longer() -> None:
    """Freed length buys a node with more prize."""
    problem = OP([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0.0, 1.0, 5.0], 4.0)
    segments = segments_of(problem, [[[1]]], CPU)
    cut = segments.sample_subproblem(1, CutSettings(4), np.random.default_rng(0))
    assert cut is not None
    assert cut.node.tolist() == [[0, 1, 2, 0]]
    assert segments.update_solution(cut, np.array([[2, 3]]))[1].all()
    assert segments.routes == [[[2]]]
    assert segments.cost[0] == -5.0


def test_a_whole_solution_is_taken_only_if_it_is_better() -> None:
    """An offer that costs more leaves the current solution as it is."""
    problem = TSP([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    segments = segments_of(problem, [[[0, 1, 2, 3]]], CPU)
    good: Routes = [[0, 2, 1, 3]]
    segments.offer(0, good)
    assert segments.routes == [good]
    segments.offer(0, [[0, 1, 2, 3]])
    assert segments.routes == [good]
    assert segments.cost[0] == 4.0
