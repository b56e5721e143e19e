"""The rules of each problem, on instances small enough to check by hand."""

import itertools
from typing import get_args

import numpy as np
import pytest
import torch
from conftest import rollout
from torch import Tensor

from renco.metrics import distance
from renco.problems import CVRP, OP, PROBLEMS, TSP, Infeasible, Problem
from renco.problems.base import RouteOrder
from renco.problems.cvrp import BLUR, CAPACITY, default_capacity
from renco.state import State

SQUARE = [[0, 0], [3, 0], [3, 4], [0, 4], [0, 2]]


def walk(state: State, *actions: int) -> State:
    """Takes actions in a batch of one."""
    for action in actions:
        state = state.step(torch.tensor([action]))
    return state


def mask_of(state: State) -> list[int]:
    """Returns the feasible actions of a batch of one."""
    return state.feasible()[0].nonzero()[:, 0].tolist()


def follow(problem: Problem, decisions: Tensor) -> State:
    """Steps along decisions and insists that each is feasible."""
    state = problem.start()
    for decision in decisions[0].tolist():
        node, choice = divmod(decision, state.choices)
        position = state.node[0, 1:-1].tolist().index(node) + 1
        action = position * state.choices + choice
        assert action in mask_of(state), f"{decision} is masked"
        state = walk(state, action)
    return state


# TSP


def test_tsp_by_hand() -> None:
    """Masks, features and costs along the tour 0 1 2 3 4."""
    state = TSP(SQUARE).start()
    assert mask_of(state) == [1, 2, 3, 4]
    expected = torch.tensor(SQUARE + SQUARE[:1]) / 4
    torch.testing.assert_close(state.features()[0], expected)
    for cost in (6.0, 12.0, 14.0, 14.0):
        state = walk(state, 1)
        assert state.cost.item() == pytest.approx(cost)
    assert state.done
    assert TSP(SQUARE).cost([[[0, 1, 2, 3, 4]]]) == 14
    assert TSP(SQUARE).length([[[0, 2, 1, 3, 4]]]) == 5 + 4 + 5 + 2 + 2


def test_tsp_order_after_a_step() -> None:
    """Node 3 comes first, the others keep their order, and `origin` says so."""
    state = walk(TSP(SQUARE).start(), 3)
    assert state.node.tolist() == [[3, 1, 2, 4, 0]]
    assert state.origin.tolist() == [[3, 1, 2, 4, 5]]
    state = walk(state, 2)
    assert state.node.tolist() == [[2, 1, 4, 0]]
    assert state.origin.tolist() == [[2, 1, 3, 4]]


@pytest.mark.parametrize("metric, length", [("EUC_2D", 8), ("CEIL_2D", 10)])
def test_tours_are_costed_in_their_metric(metric: str, length: float) -> None:
    """Each leg is rounded on its own: 1.2 becomes 1 or 2."""
    coords = [[0, 0], [1.2, 0], [2.4, 0], [3.6, 0], [3.6, 3.2]]
    assert TSP(coords, metric=metric).cost([[[0, 1, 2, 3, 4]]]) == (
        3 * (1 if metric == "EUC_2D" else 2) + (3 if metric == "EUC_2D" else 4) + 5
    )


def test_tsp_decisions_of_rotated_tours() -> None:
    """A tour may be written from any node on; decisions start after node 0."""
    problem = TSP(SQUARE)
    for shift in range(5):
        tour = [(i + shift) % 5 for i in range(5)]
        assert problem.decisions([[tour]]).tolist() == [[1, 2, 3, 4]]
    assert problem.decisions([[[2, 1, 0, 4, 3]]]).tolist() == [[4, 3, 2, 1]]


@pytest.mark.parametrize(
    "routes, message",
    [
        ([[0, 1, 2, 3]], "1 nodes are not visited: 4"),
        ([[0, 1, 2, 3, 3]], "node 3 is visited twice"),
        ([[0, 1, 2, 3, 4, 0]], "node 0 is visited twice"),
        ([[0, 1, 2, 3, 5]], r"node 5 is not one of 0\.\.4"),
        ([[0, 1, 2, 3, -1]], r"node -1 is not one of 0\.\.4"),
        ([[0, 1, 2], [3, 4]], "a tour is one route, got 2"),
        ([], "a tour is one route, got 0"),
        ([[]], r"5 nodes are not visited: 0, 1, 2, 3, 4"),
        ([[0, 1, 2, 3, 4.0]], r"node 4\.0 is not a whole number"),
        ([[0, True, 2, 3, 4]], "node True is not a whole number"),
        ([[0, None, 2, 3, 4]], "node None is not a whole number"),
    ],
)
def test_tsp_checker(routes: list, message: str, unchecked: None) -> None:
    """Broken tours are refused with the node that breaks them."""
    with pytest.raises(Infeasible, match=message):
        TSP(SQUARE).cost([routes])


def test_long_lists_of_missing_nodes_are_cut() -> None:
    """The error names the first five of many missing nodes."""
    with pytest.raises(Infeasible, match=r"9 nodes .*: 1, 2, 3, 4, 5, \.\.\.$"):
        TSP.random(1, 10).cost([[[0]]])


def test_tabulated_distances_are_the_cost() -> None:
    """An EXPLICIT instance is costed by its matrix, whatever its coordinates."""
    rng = np.random.default_rng(0)
    table = np.triu(rng.integers(1, 90, (5, 5)), 1)
    table = table + table.T
    problem = TSP(SQUARE, metric="EXPLICIT", matrix=table)
    for tour in itertools.permutations(range(5)):
        legs = zip(tour, [*tour[1:], tour[0]], strict=True)
        assert problem.cost([[list(tour)]]) == sum(table[a][b] for a, b in legs)
    assert problem.start().cost.item() == 0


def test_sub_batches_keep_what_the_file_said() -> None:
    """Metric, matrix, title, numbers and best known cost survive indexing."""
    table = np.ones((5, 5)) - np.eye(5)
    problem = TSP(
        SQUARE,
        metric="EXPLICIT",
        matrix=table,
        title="five",
        numbers=[1, 2, 3, 5, 8],
        best_known=5.0,
    )[0]
    assert (problem.metric, problem.title) == ("EXPLICIT", "five")
    assert problem.numbers == (1, 2, 3, 5, 8)
    assert problem.best_known == 5.0
    assert problem.cost([[[0, 1, 2, 3, 4]]]) == 5


def test_geographical_instances_are_solved_in_a_plane() -> None:
    """Latitudes go up, longitudes go right, and the state's cost is about right."""
    coords = [[10.0, 20.0], [10.0, 24.0], [14.0, 24.0], [14.0, 20.0]]
    problem = TSP(coords, metric="GEO")
    xy = problem.start().features()[0, :4]
    assert xy[0].tolist() == [0, 0]
    assert xy[2, 1] == 1
    assert 0.97 < xy[2, 0] < 1
    state = walk(problem.start(), 1, 1, 1)
    exact = problem.cost([[[0, 1, 2, 3]]])[0]
    assert state.cost.item() == pytest.approx(exact, rel=0.01)


# CVRP


def five_customers() -> CVRP:
    """Returns an instance of one depot and four customers with round lengths."""
    coords = [[0, 0], [3, 0], [3, 4], [0, 4], [-3, 0]]
    return CVRP(coords, [0, 2, 3, 4, 1], 5)


def test_cvrp_by_hand() -> None:
    """Masks, room and costs along the routes 1 2 and 3 4."""
    problem = five_customers()
    state = problem.start()
    assert mask_of(state) == [2, 4, 6, 8]  # at the depot: direct only
    state = walk(state, 2)  # to customer 1
    assert state.room.item() == 3
    assert state.cost.item() == pytest.approx(6)
    assert state.node.tolist() == [[1, 2, 3, 4, 0]]
    assert mask_of(state) == [2, 3, 5, 6, 7]  # demand 4 no longer fits
    state = walk(state, 2)  # customer 2 fits exactly
    assert state.room.item() == 0
    assert state.cost.item() == pytest.approx(12)
    assert mask_of(state) == [3, 5]
    state = walk(state, 3)  # customer 3 via the depot
    assert state.room.item() == 1
    assert state.cost.item() == pytest.approx(20)
    assert mask_of(state) == [2, 3]
    state = walk(state, 2)
    assert state.cost.item() == pytest.approx(24)
    assert state.done
    assert problem.cost([[[1, 2], [3, 4]]]) == 24


def test_cvrp_features() -> None:
    """Demand and room are fractions of Q, the room is the same in every row."""
    state = walk(five_customers().start(), 2)
    expected = [[0.4, 0.6], [0.6, 0.6], [0.8, 0.6], [0.2, 0.6], [0.0, 0.6]]
    torch.testing.assert_close(state.features()[0, :, 2:], torch.tensor(expected))


def test_cvrp_replay_counts_the_current_vehicle() -> None:
    """The room after a replay is what the last vehicle has left."""
    problem = five_customers()
    decisions = problem.decisions([[[4, 1], [2], [3]]])
    assert decisions.tolist() == [[8, 2, 5, 7]]
    rooms = [problem.replay(decisions, j).room.item() for j in range(5)]
    assert rooms == [5, 4, 2, 2, 1]


def test_cvrp_empty_routes_are_ignored() -> None:
    """Unused vehicles change neither the cost nor the decisions."""
    problem = five_customers()
    routes = [[], [1, 2], [], [3, 4], []]
    assert problem.cost([routes]) == 24
    assert problem.decisions([routes]).tolist() == [[2, 4, 7, 8]]
    assert problem.routes(problem.decisions([routes])) == [[[1, 2], [3, 4]]]


def test_customers_without_demand_fit_a_full_vehicle() -> None:
    """A demand of zero is served by any vehicle, however full."""
    state = CVRP([[0, 0], [1, 0], [2, 0]], [0, 5, 0], 5).start()
    assert mask_of(walk(state, 2)) == [2, 3]


@pytest.mark.parametrize(
    "routes, message",
    [
        ([[1, 2], [3]], "1 nodes are not visited: 4"),
        ([[1, 2], [3, 4, 1]], "node 1 is visited twice"),
        ([[1, 2], [2], [3, 4]], "node 2 is visited twice"),
        ([[1, 2], [3, 4, 0]], "route 1 contains the depot, node 0"),
        ([[1, 2, 4], [3]], "route 0 loads 6 of Q = 5"),
        ([[1], [2], [4, 3, 9]], r"node 9 is not one of 0\.\.4"),
        ([[4], [2, 3], [1]], "route 1 loads 7 of Q = 5"),
        ([], "4 nodes are not visited: 1, 2, 3, 4"),
    ],
)
def test_cvrp_checker(routes: list, message: str) -> None:
    """Broken solutions are refused with the route or node that breaks them."""
    with pytest.raises(Infeasible, match=message):
        five_customers().cost([routes])


@pytest.mark.parametrize("excess, fits", [(1e-12, True), (1e-6, False)])
def test_overloads_of_rounding_size_are_allowed(excess: float, fits: bool) -> None:
    """A sum of demands may exceed Q by rounding, not by more."""
    problem = CVRP([[0, 0], [1, 0], [2, 0]], [0, 0.5, 0.5 + excess], 1)
    if fits:
        assert problem.cost([[[1, 2]]]) == 4
    else:
        with pytest.raises(Infeasible, match="route 0 loads 1"):
            problem.cost([[[1, 2]]])


@pytest.mark.parametrize("q", [3, 7, 10, 49, 50, 70, 130, 230])
def test_fractional_demands_fit_exactly(q: int) -> None:
    """Demands given as fractions of Q fill a vehicle although their sum rounds."""
    rng = np.random.default_rng(q)
    for _ in range(10):
        demands = np.diff(np.sort(rng.integers(0, q + 1, 6)), prepend=0, append=q)
        coords = rng.random((len(demands) + 1, 2))
        problem = CVRP(coords, [0, *(demands / q)], 1.0)
        route = [*range(1, len(demands) + 1)]
        rng.shuffle(route)
        follow(problem, problem.decisions([[route]]))


def test_capacities_of_the_paper() -> None:
    """Q_n of appendix C, and between its sizes something in between."""
    assert CAPACITY == {100: 50, 200: 70, 500: 130, 1000: 230}
    assert default_capacity(100) == 50
    assert 50 < default_capacity(150) < 70
    assert CVRP.random(3, 200).capacity.tolist() == [70, 70, 70]


def test_cvrp_generator_extremes() -> None:
    """All demands of the range occur and no other; depots have none."""
    problem = CVRP.random(50, 100)
    assert set(np.unique(problem.demands[:, 1:])) == set(range(1, 10))
    assert (problem.demands[:, 0] == 0).all()
    paper = CVRP.random(50, 100, demand=(1, 10))
    assert set(np.unique(paper.demands[:, 1:])) == set(range(1, 11))
    varied = CVRP.random(200, 5, capacity=(20, 22))
    assert set(varied.capacity) == {20, 21, 22}


# OP


def five_prizes(limit: float = 12.0, **common: object) -> OP:
    """Returns an instance of one depot and four prizes with round lengths."""
    coords = [[0, 0], [3, 0], [3, 4], [0, 4], [6, 0]]
    return OP(coords, [0, 2, 3, 5, 7], limit, **common)


def test_op_by_hand() -> None:
    """Masks, remaining length and prize along the tour 1 2, an exact fit."""
    problem = five_prizes()
    state = problem.start()
    assert mask_of(state) == [1, 2, 3, 4]  # node 4 and back is exactly 12
    state = walk(state, 1)
    assert state.remaining.item() * 6 == pytest.approx(9)
    assert mask_of(state) == [1, 2, 3]  # each of them needs exactly 9
    state = walk(state, 1)
    assert state.node.tolist() == [[2, 3, 4, 0]]
    assert mask_of(state) == [3]  # home only
    assert state.cost.item() == -5
    home = walk(state, 3)
    assert home.node.tolist() == [[0, 4, 0]]
    assert home.origin.tolist() == [[3, 2, 3]]
    assert home.done
    assert home.cost.item() == -5
    assert problem.cost([[[1, 2]]]) == -5
    assert problem.length([[[1, 2]]]) == 12


def test_op_features() -> None:
    """Prizes are fractions of the largest; the remaining length is raw."""
    state = walk(five_prizes().start(), 1)
    prizes = [2 / 7, 3 / 7, 5 / 7, 1, 0]
    expected = [[prize, 1.5] for prize in prizes]
    torch.testing.assert_close(state.features()[0, :, 2:], torch.tensor(expected))


def test_finished_rows_keep_their_prize() -> None:
    """A row at home waits for the others with nothing but home to choose."""
    coords = [[[0, 0], [1, 0], [2, 0], [3, 0]]] * 2
    problem = OP(coords, [[0, 1, 1, 1]] * 2, [2.0, 6.0])
    state = problem.start()
    for action in ([1, 1], [3, 1], [2, 1]):
        assert not state.done
        at = state.feasible().gather(1, torch.tensor(action)[:, None])
        assert at.all()
        state = state.step(torch.tensor(action))
    assert state.feasible()[0].tolist() == [False, True]
    assert state.cost.tolist() == [-1, -3]
    assert state.done


def test_op_replay_of_unequal_tours() -> None:
    """Rows that went home early have no depot among their open nodes."""
    problem = five_prizes()[[0, 0]]
    decisions = problem.decisions([[[1, 2]], [[4]]])
    assert decisions.tolist() == [[1, 2], [4, 0]]
    assert problem.replay(decisions, 0).node.tolist() == [
        [0, 1, 2, 3, 4, 0],
        [0, 4, 1, 2, 3, 0],
    ]
    last = problem.replay(decisions, 2)
    assert last.node[:, 0].tolist() == [2, 0]
    assert last.cost.tolist() == [-5, -7]
    assert last.feasible().tolist() == [[False] * 3 + [True]] * 2


@pytest.mark.parametrize(
    "routes, message",
    [
        ([[1, 2, 1]], "node 1 is visited twice"),
        ([[0, 1]], "route 0 contains the depot, node 0"),
        ([[1], [2]], "an orienteering tour is one route, got 2"),
        ([], "an orienteering tour is one route, got 0"),
        ([[5]], r"node 5 is not one of 0\.\.4"),
        ([[1, 2, 3]], "the tour is 14 long, the limit is 12"),
        ([[2, 4]], "the tour is 16 long, the limit is 12"),
    ],
)
def test_op_checker(routes: list, message: str) -> None:
    """Broken tours are refused with the node or the length that breaks them."""
    with pytest.raises(Infeasible, match=message):
        five_prizes().cost([routes])


def test_op_may_leave_nodes_out() -> None:
    """Any subset within the limit is a solution, the empty one included."""
    assert five_prizes().cost([[[]]]) == 0
    assert five_prizes(0.0).cost([[[]]]) == 0
    assert five_prizes().cost([[[3]]]) == -5


@pytest.mark.parametrize("excess, fits", [(1e-12, True), (1e-6, False)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_tours_too_long_by_rounding_are_allowed(
    excess: float, fits: bool, scale: float
) -> None:
    """A tour may exceed the limit by a relative 1e-12, not by 1e-6."""
    problem = OP([[0, 0], [scale, 0]], [0, 1], 2 * scale / (1 + excess))
    if fits:
        assert problem.cost([[[1]]]) == -1
    else:
        with pytest.raises(Infeasible, match="long, the limit is"):
            problem.cost([[[1]]])


@pytest.mark.parametrize("metric", ["EUC_2D", "CEIL_2D", "FLOOR_2D", "MAN_2D", "ATT"])
def test_exact_fits_are_feasible(metric: str) -> None:
    """A tour as long as the limit can be walked, whatever the side of the square."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        coords = rng.integers(0, rng.integers(5, 1000), (9, 2))
        whole = OP(coords, [0] + [1] * 8, 1e9, metric=metric)
        route = (rng.permutation(8) + 1)[: rng.integers(1, 9)].tolist()
        length = whole.length([[route]])
        ways_home = [whole.length([[route[:end]]]) for end in range(len(route))]
        if max(ways_home) > length:
            continue  # rounded distances: a detour may be shorter than the way home
        problem = OP(coords, [0] + [1] * 8, length, metric=metric)
        state = follow(problem, torch.tensor([route]))
        assert state.cost.item() == problem.cost([[route]])[0]
        if length > 0:
            short = OP(coords, [0] + [1] * 8, length * (1 - 1e-6), metric=metric)
            with pytest.raises(AssertionError, match="is masked"):
                follow(short, torch.tensor([route]))


def test_exact_fits_where_distances_dwarf_the_square() -> None:
    """Rounded-up or tabulated distances need not resemble the coordinates."""
    rng = np.random.default_rng(1)
    for _ in range(8):
        coords = rng.random((9, 2)) * 3e-6
        prizes = [0] + [1] * 8
        table = distance("CEIL_2D", coords[:, None] * 1e9, coords * 1e9)
        for extra in (
            {"metric": "CEIL_2D"},
            {"metric": "EXPLICIT", "matrix": table},
        ):
            route = (rng.permutation(8) + 1).tolist()
            length = OP(coords, prizes, 1e9, **extra).length([[route]])
            follow(OP(coords, prizes, length, **extra), torch.tensor([route]))


def test_hardly_any_limit_is_kept() -> None:
    """What the state thinks reachable, the checker accepts, also near zero."""
    for limit in (0.0, 1e-12, 1e-9):
        for beyond in (1.0 + 1e-6, 1.5, 10.0):
            away = max(limit, 4e-13) / 2 * beyond
            problem = OP([[0, 0], [away, 0], [0, 1]], [0, 1, 1], limit)
            assert mask_of(problem.start()) == [3]
            with pytest.raises(Infeasible, match="long, the limit"):
                problem.cost([[[1]]])


def test_rounding_does_not_end_a_tour_early() -> None:
    """Nodes at the depot are collected even when the length is used up."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        coords = np.zeros((7, 2))
        coords[1:5] = rng.random((4, 2))
        prizes = [0] + [1] * 6
        length = OP(coords, prizes, 9.0).length([[[1, 2, 3, 4]]])
        problem = OP(coords, prizes, length)
        state = problem.start()
        for _ in range(6):
            assert not state.done
            state = walk(state, 1)
        assert state.cost.item() == -6


def test_op_generator_extremes() -> None:
    """Prizes run from 1 to 100 and grow with the distance from the depot."""
    problem = OP.random(50, 100)
    assert (problem.prizes[:, 0] == 0).all()
    assert problem.prizes[:, 1:].min() == 1
    assert (problem.prizes.max(1) == 100).all()
    assert (problem.prizes == np.floor(problem.prizes)).all()
    assert (problem.limit == 4).all()
    out = np.hypot(*np.moveaxis(problem.coords - problem.coords[:, :1], -1, 0))
    for distances, prizes in zip(out, problem.prizes, strict=True):
        order = np.argsort(distances)
        assert (np.diff(prizes[order]) >= 0).all()
        expected = 1 + int(99 * distances[order[50]] / distances.max())
        assert prizes[order[50]] == expected


# Slices of expert solutions


def test_tsp_slices_are_pieces_of_the_tour() -> None:
    """Nodes of a slice are neighbours in the tour, in one direction."""
    problem = TSP.random(40, 7)
    decisions = rollout(problem.start())[1].numpy()
    rng = np.random.default_rng(0)
    for nodes in (3, 5, 8):
        state, actions = problem.slices(decisions, nodes, rng)
        assert state.node.shape == (40, nodes)
        assert (actions == 1).all()
        assert actions.shape == (40, nodes - 2)
        directions = set()
        for row, tour in zip(state.node.tolist(), decisions.tolist(), strict=True):
            place = [[0, *tour].index(node) for node in row]
            steps = {(b - a) % 7 for a, b in itertools.pairwise(place)}
            assert len(steps) == 1
            directions |= steps
        assert directions == {1, 6}
    with pytest.raises(ValueError, match=r"3\.\.8 nodes, got 9"):
        problem.slices(decisions, 9, rng)


@pytest.mark.parametrize("order", get_args(RouteOrder))
def test_cvrp_slices_follow_the_same_solution(order: str) -> None:
    """Rearranged routes are the same routes; the labels are feasible actions."""
    problem = CVRP.random(20, 9, capacity=15)
    decisions = rollout(problem.start(), seed=1)[1]
    rng = np.random.default_rng(0)
    routes = {
        i: {frozenset(route) for route in solution}
        for i, solution in enumerate(problem.routes(decisions))
    }
    arranged = torch.from_numpy(problem.arranged(decisions.numpy(), 0, rng, order))
    for i, solution in enumerate(problem.routes(arranged)):
        assert {frozenset(route) for route in solution} == routes[i]
    np.testing.assert_allclose(
        problem.cost(problem.routes(arranged)), problem.cost(problem.routes(decisions))
    )
    state, actions = problem.slices(decisions.numpy(), 7, rng, order)
    assert state.node.shape == (20, 7)
    for step in range(actions.shape[1]):
        assert state.feasible().gather(1, actions[:, step : step + 1]).all()
        state = state.step(actions[:, step])
    assert state.done


def test_sorted_slices_have_the_slack_last() -> None:
    """Sorted routes come fullest first."""
    problem = CVRP.random(20, 9, capacity=15)
    decisions = rollout(problem.start(), seed=1)[1].numpy()
    rng = np.random.default_rng(0)
    arranged = torch.from_numpy(problem.arranged(decisions, 0, rng, "sorted"))
    for i, solution in enumerate(problem.routes(arranged)):
        loads = [problem.demands[i, route].sum() for route in solution]
        assert loads == sorted(loads, reverse=True)


def test_far_routes_come_first_and_the_emptiest_last() -> None:
    """Also among those that follow what is begun."""
    problem = CVRP.random(20, 9, capacity=15)
    decisions = rollout(problem.start(), seed=1)[1].numpy()
    rng, compared, swapped = np.random.default_rng(0), 0, 0
    for begun in (0, 3):
        arranged = problem.arranged(decisions, begun, rng, "far")
        np.testing.assert_array_equal(arranged[:, :begun], decisions[:, :begun])
        done = (arranged[:, :begun] % 2).sum(1) + (begun > 0)
        solutions = problem.routes(torch.from_numpy(arranged))
        for i, (solution, first) in enumerate(zip(solutions, done, strict=True)):
            rest = solution[first:]
            away = np.linalg.norm(problem.coords[i] - problem.coords[i, 0], axis=-1)
            farthest = np.array([away[route].max() for route in rest[:-1]])
            assert (np.diff(farthest) <= BLUR * away.max()).all()
            swapped += bool((np.diff(farthest) > 0).any())
            loads = [problem.demands[i, route].sum() for route in rest]
            assert not loads or loads[-1] == min(loads)
            compared += len(loads) > 2
    assert compared > 10 and 0 < swapped < compared / 2


def test_what_is_begun_stays_when_routes_are_rearranged() -> None:
    """The route in progress is finished as it was; later ones come fullest first."""
    problem = CVRP.random(20, 9, capacity=15)
    decisions = rollout(problem.start(), seed=1)[1].numpy()
    rng, moved = np.random.default_rng(0), 0
    for begun in range(1, 9):
        arranged = problem.arranged(decisions, begun, rng, "sorted")
        np.testing.assert_array_equal(arranged[:, :begun], decisions[:, :begun])
        moved += (arranged != decisions).sum()
        before = problem.routes(torch.from_numpy(decisions))
        after = problem.routes(torch.from_numpy(arranged))
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            driven = 1 + int((decisions[i, 1:begun] % 2).sum())
            assert new[:driven] == old[:driven]
            loads = [problem.demands[i, route].sum() for route in new[driven:]]
            assert loads == sorted(loads, reverse=True)
            assert {frozenset(r) for r in new} == {frozenset(r) for r in old}
    assert moved


def test_op_slices_follow_the_tour() -> None:
    """Labels of a slice are feasible and lead along the tour, either way round."""
    problem = OP.random(30, 8, limit=3.0)
    length = 4
    rows, tours = [], []
    for i in range(30):
        decisions = rollout(problem[i].start(), seed=i)[1][0].tolist()
        tour = [node for node in decisions if node]
        if len(tour) == length:
            rows.append(i)
            tours.append(tour)
    assert len(rows) > 5
    some = problem[rows]
    begins = set()
    for seed in range(20):
        start, actions = some.slices(np.array(tours), 8, np.random.default_rng(seed))
        assert start.node.shape == (len(rows), 8)
        assert actions.shape == (len(rows), 2)
        state = start
        for step in range(2):
            assert state.feasible().gather(1, actions[:, step : step + 1]).all()
            state = state.step(actions[:, step])
        for i, tour in enumerate(tours):
            closed = [0, *tour, 0]
            part = [*start.node[i, :3].tolist(), int(start.node[i, -1])]
            at = [
                k
                for k in range(3)
                if part in (closed[k : k + 4], closed[k : k + 4][::-1])
            ]
            assert at
            begins |= {*at}
            left = set(start.node[i, 3:-1].tolist())
            assert left == set(range(1, 9)) - set(tour)
            way = some[i]._length(0, [tour])
            spare = state.remaining[i] - state.distance[i, part[2], part[3]]
            assert spare.item() * some[i].frame()[1][0] == pytest.approx(3.0 - way)
    assert begins == {0, 1, 2}


# Bad input

NAN, INF = float("nan"), float("inf")
OK = [[0, 0], [1, 0], [0, 1]]
COMMON_CASES = [
    ({"coords": []}, "coords must have shape"),
    ({"coords": [[]]}, "coords must have shape"),
    ({"coords": 5.0}, r"coords must have shape .* got \(\)"),
    ({"coords": [0, 1]}, r"coords must have shape .* got \(2,\)"),
    ({"coords": [[0, 0, 0]]}, r"coords must have shape .* got \(1, 1, 3\)"),
    ({"coords": np.zeros((2, 2, 2, 2))}, r"got \(2, 2, 2, 2\)"),
    ({"coords": np.zeros((1, 0, 2))}, "at least one node, got 0"),
    ({"coords": np.zeros((0, 2))}, "at least one node, got 0"),
    ({"coords": np.zeros((0, 3, 2))}, "at least one instance, got 0"),
    ({"coords": [[0, 0], [NAN, 1], [0, 1]]}, r"coords\[1, 0\] is nan"),
    ({"coords": [[0, 0], [1, 1], [0, INF]]}, r"coords\[2, 1\] is inf"),
    ({"coords": [[0, -INF], [1, 1], [0, 1]]}, r"coords\[0, 1\] is -inf"),
    ({"coords": [[0, 0], [1e200, 1], [0, 1]]}, r"coords\[.*1, 0\] is 1e\+200"),
    ({"coords": [[0, 0], [1, 0], [0]]}, "coords is ragged"),
    ({"coords": "abc"}, "coords must be numbers, got dtype <U3"),
    ({"coords": [["0", "1"]] * 3}, "coords must be numbers, got dtype <U1"),
    ({"coords": None}, "coords must be numbers, got dtype object"),
    ({"coords": [[0, None]] * 3}, "coords must be numbers, got dtype object"),
    ({"coords": np.zeros((3, 2), bool)}, "coords must be numbers, got dtype bool"),
    ({"coords": np.zeros((3, 2), complex)}, "must be numbers, got dtype complex128"),
    ({"coords": np.zeros((3, 2), "M8[s]")}, "must be numbers, got dtype datetime64"),
    ({"coords": np.ma.masked_array(OK)}, "coords must not be a masked array"),
    ({"coords": {"x": 1}}, "coords must be numbers, got dtype object"),
    ({"metric": "EUC_3D"}, "unknown metric 'EUC_3D'"),
    ({"metric": "euc_2d"}, "unknown metric 'euc_2d'"),
    ({"metric": ""}, "unknown metric ''"),
    ({"metric": None}, "unknown metric None"),
    ({"metric": ["EUC_2D"]}, r"unknown metric \['EUC_2D'\]"),
    ({"metric": "EXPLICIT"}, "metric EXPLICIT needs a matrix"),
    ({"matrix": np.zeros((3, 3))}, "needs metric EXPLICIT, got 'euclidean'"),
    ({"numbers": [1, 2]}, "2 numbers for 3 nodes"),
    ({"numbers": [1, 2, 2]}, "node number 2 is given twice"),
    ({"numbers": [1, 2, 2.5]}, "node number 2.5 is not whole"),
]
MATRIX_CASES = [
    (np.zeros((2, 2)), r"matrix must be 3 x 3, got \(2, 2\)"),
    (np.zeros((3, 2)), r"matrix must be 3 x 3, got \(3, 2\)"),
    (-np.ones((3, 3)), r"matrix\[0, 0\] is negative: -1"),
    ([[0, 1, 2], [1, 0, 3], [2, 4, 0]], r"symmetric, but \[1, 2\] is 3.* 4"),
    ([[0, NAN, 2], [1, 0, 3], [2, 4, 0]], r"matrix\[0, 1\] is nan"),
    ([[0, INF, 2], [INF, 0, 3], [2, 3, 0]], r"matrix\[0, 1\] is inf"),
    ("abc", "matrix must be numbers"),
]
CVRP_CASES = [
    ({"demands": [0, 1]}, r"demands must have shape \(1, 3\) .* got \(1, 2\)"),
    ({"demands": [[0, 1, 1]] * 2}, r"got \(2, 3\)"),
    ({"demands": [0, 1, 11]}, "demand 11 of node 2 is above Q = 10"),
    ({"demands": [0, -1, 1]}, "demand -1 of node 1 is negative"),
    ({"demands": [2, 1, 1]}, "demand of the depot must be 0, got 2"),
    ({"demands": [0, NAN, 1]}, r"demands\[1\] is nan"),
    ({"demands": [0, 1, INF]}, r"demands\[2\] is inf"),
    ({"demands": ["0", "1", "2"]}, "demands must be numbers"),
    ({"demands": 3}, "demands must have shape"),
    ({"capacity": 0}, "capacity must be positive, got 0"),
    ({"capacity": -5}, "capacity must be positive, got -5"),
    ({"capacity": NAN}, "capacity.* is nan"),
    ({"capacity": INF}, "capacity.* is inf"),
    ({"capacity": [10, 10]}, r"capacity has shape \(2,\) for 1 instances"),
    ({"capacity": "ten"}, "capacity must be numbers"),
    ({"capacity": None}, "capacity must be numbers"),
    ({"capacity": [[10]]}, r"capacity has shape \(1, 1\) for 1 instances"),
]
OP_CASES = [
    ({"prizes": [0, 1]}, r"prizes must have shape \(1, 3\) .* got \(1, 2\)"),
    ({"prizes": [0, 1, 1, 1]}, r"got \(1, 4\)"),
    ({"prizes": [0, 1, -2]}, "prize -2 of node 2 is negative"),
    ({"prizes": [1, 1, 1]}, "prize of the depot must be 0, got 1"),
    ({"prizes": [0, NAN, 1]}, r"prizes\[1\] is nan"),
    ({"prizes": [0, INF, 1]}, r"prizes\[1\] is inf"),
    ({"prizes": [0, None, 1]}, "prizes must be numbers"),
    ({"limit": -0.5}, "limit must not be negative, got -0.5"),
    ({"limit": NAN}, "limit.* is nan"),
    ({"limit": INF}, "limit.* is inf"),
    ({"limit": "long"}, "limit must be numbers"),
    ({"limit": [1, 2]}, r"limit has shape \(2,\) for 1 instances"),
]
GOOD = {
    "tsp": {"coords": OK},
    "cvrp": {"coords": OK, "demands": [0, 1, 2], "capacity": 10},
    "op": {"coords": OK, "prizes": [0, 1, 2], "limit": 4.0},
}


def refused(name: str, changes: dict, message: str) -> None:
    """Checks that the good instance is refused once changed."""
    PROBLEMS[name](**GOOD[name])
    with pytest.raises(ValueError, match=message):
        PROBLEMS[name](**GOOD[name] | changes)


@pytest.mark.parametrize("name", list(PROBLEMS))
@pytest.mark.parametrize("changes, message", COMMON_CASES)
def test_bad_instances_are_refused(
    name: str, changes: dict, message: str, unchecked: None
) -> None:
    """Each fault is refused with the name of the field and the value."""
    refused(name, changes, message)


@pytest.mark.parametrize("name", list(PROBLEMS))
@pytest.mark.parametrize("matrix, message", MATRIX_CASES)
def test_bad_matrices_are_refused(name: str, matrix: object, message: str) -> None:
    """A matrix must be square, symmetric, finite and not negative."""
    refused(name, {"metric": "EXPLICIT", "matrix": matrix}, message)


@pytest.mark.parametrize("changes, message", CVRP_CASES)
def test_bad_demands_are_refused(changes: dict, message: str) -> None:
    """Demands and capacity that cannot be served are named."""
    refused("cvrp", changes, message)


@pytest.mark.parametrize("changes, message", OP_CASES)
def test_bad_prizes_are_refused(changes: dict, message: str) -> None:
    """Prizes and limits that make no sense are named."""
    refused("op", changes, message)


def test_a_matrix_belongs_to_one_instance() -> None:
    """A batch cannot share a matrix."""
    with pytest.raises(ValueError, match="a matrix belongs to one instance, got 2"):
        TSP(np.zeros((2, 3, 2)), metric="EXPLICIT", matrix=np.zeros((3, 3)))


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_misspelt_options_are_refused(name: str) -> None:
    """A typing error in a keyword must not silently change the metric."""
    with pytest.raises(TypeError, match="metirc"):
        PROBLEMS[name](**GOOD[name], metirc="EUC_2D")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_tensors_of_any_number_type_are_accepted(dtype: torch.dtype) -> None:
    """Half precision and whole numbers are converted like any other."""
    assert TSP(torch.tensor(OK, dtype=dtype)).coords.tolist() == [OK]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TSP.random(0, 5), "batch must be at least 1, got 0"),
        (lambda: TSP.random(-1, 5), "batch must be at least 1, got -1"),
        (lambda: TSP.random(1, 0), "n must be at least 1, got 0"),
        (lambda: CVRP.random(1, -1), "n must not be negative, got -1"),
        (lambda: OP.random(1, -1), "n must not be negative, got -1"),
        (lambda: TSP.random(1, 5, seed=-1), "must not be negative: -1, 0"),
        (lambda: TSP.random(1, 5, first=-2), "must not be negative: 0, -2"),
        (lambda: CVRP.random(1, 5, capacity=8), "capacity 8 must cover .* 9"),
        (lambda: CVRP.random(1, 5, capacity=(20, 10)), r"capacity \(20, 10\)"),
        (lambda: CVRP.random(1, 5, demand=(5, 2)), r"got \(5, 2\)"),
        (lambda: CVRP.random(1, 5, demand=(-1, 2)), r"got \(-1, 2\)"),
        (lambda: OP.random(1, 5, limit=-1.0), "limit must not be negative, got -1"),
        (lambda: OP.random(1, 5, limit=NAN), "limit.* is nan"),
    ],
)
def test_bad_generator_settings_are_refused(make: object, message: str) -> None:
    """Generators name the setting that cannot be met."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_wrong_numbers_of_solutions_are_refused(name: str) -> None:
    """Solutions must be as many as instances."""
    problem = PROBLEMS[name].random(2, 4)
    with pytest.raises(ValueError, match="1 solutions for 2 instances"):
        problem.cost([[[1]]])


@pytest.mark.parametrize("name", list(PROBLEMS))
@pytest.mark.parametrize("step", [-1, 99])
def test_replays_beyond_the_end_are_refused(name: str, step: int) -> None:
    """A step that the decisions do not have is named."""
    problem = PROBLEMS[name].random(1, 4)
    decisions = rollout(problem.start())[1]
    with pytest.raises(ValueError, match=f"step.*{step}"):
        problem.replay(decisions, step)


@pytest.mark.parametrize("name", ["tsp", "cvrp"])
def test_decisions_of_the_wrong_shape_are_refused(name: str) -> None:
    """Decisions must fit batch and size."""
    problem = PROBLEMS[name].random(2, 4)
    decisions = rollout(problem.start())[1]
    for wrong in (decisions[:1], decisions[:, 1:]):
        shape = rf"got \({wrong.shape[0]}, {wrong.shape[1]}\)"
        with pytest.raises(ValueError, match=shape):
            problem.routes(wrong)
        with pytest.raises(ValueError, match=shape):
            problem.replay(wrong, 0)


def test_op_decisions_for_another_batch_are_refused() -> None:
    """Decisions must be as many as instances."""
    with pytest.raises(ValueError, match="2 instances"):
        OP.random(2, 4).routes(torch.tensor([[1, 2]]))
