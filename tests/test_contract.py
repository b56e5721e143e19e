"""What every problem must keep, whatever its rules: one run per entry of PROBLEMS.

Exhaustive beams and golden decisions are in `test_construct`, generators' extremes in
`test_problems`, gradients of the recurrent loss in `test_training`, and that searching
on never worsens a solution in `test_lns`.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from conftest import NearestPolicy, UniformPolicy, make_policy, rollout, small

from renco.construct import beam_search, greedy
from renco.problems import PROBLEMS, Infeasible, Problem
from renco.state import State

pytestmark = pytest.mark.parametrize("name", list(PROBLEMS))

VARIANTS = {
    "plain": {},
    "relative": {"relative": True},
    "geometry": {"relative": True, "geometry": True, "zoom": True},
    "neighbors": {"neighbors": True, "zoom": True, "reach": True},
}
variants = pytest.mark.parametrize("variant", list(VARIANTS))


def agree(state: State, problem: Problem, decisions: torch.Tensor) -> None:
    """Checks the decisions and that state and problem cost them alike."""
    exact = problem.cost(problem.routes(decisions))
    scale = np.maximum(np.abs(exact), 1.0)
    np.testing.assert_allclose(state.cost.numpy() / scale, exact / scale, atol=1e-4)


def shuffled(state: State, seed: int = 0) -> tuple[State, torch.Tensor]:
    """Returns the state with its open nodes in another order, and that order."""
    n = state.node.shape[1]
    rng = torch.Generator().manual_seed(seed)
    middle = torch.randperm(n - 2, generator=rng) + 1
    order = torch.cat([torch.tensor([0]), middle, torch.tensor([n - 1])])
    return dataclasses.replace(state, node=state.node[:, order]), order


def actions_of(order: torch.Tensor, choices: int) -> torch.Tensor:
    """Returns the positions of an order as actions."""
    return (order[:, None] * choices + torch.arange(choices)).flatten()


def test_start_ends_where_it_begins(name: str) -> None:
    """The start is duplicated as destination, and every other node is open once."""
    problem = small(name)
    state = problem.start()
    nodes = problem.coords.shape[1]
    assert state.node.tolist() == [[*range(nodes), 0]] * len(problem)
    assert state.origin.tolist() == [[*range(nodes + 1)]] * len(problem)
    assert state.instance.tolist() == list(range(len(problem)))
    assert (state.travelled == 0).all()


def test_each_step_drops_one_node_and_keeps_the_end(name: str) -> None:
    """A step shrinks the state by one; `origin` says where each node was before."""
    states, decisions = rollout(small(name).start())
    assert len(states) > 3
    for t, (before, after) in enumerate(itertools.pairwise(states)):
        assert after.node.shape[1] == before.node.shape[1] - 1
        assert torch.equal(after.node[:, -1], before.node[:, -1])
        assert torch.equal(before.node.gather(1, after.origin), after.node)
        assert torch.equal(after.node[:, 0], decisions[:, t] // before.choices)


def test_a_step_keeps_the_order_of_the_other_nodes(name: str) -> None:
    """The chosen node comes first; those not chosen stay in their order."""
    states, decisions = rollout(small(name).start(), seed=3)
    for t, (before, after) in enumerate(itertools.pairwise(states)):
        for row, chosen in enumerate((decisions[:, t] // before.choices).tolist()):
            if chosen == before.node[row, -1]:
                continue  # gone home: one arbitrary open node is given up
            old = before.node[row, 1:-1].tolist()
            old.remove(chosen)
            assert after.node[row, 1:-1].tolist() == old


def test_some_action_is_feasible_until_done(name: str) -> None:
    """Each row has an action at every step, and none of them is to stay."""
    for state in rollout(small(name, n=9, seed=1).start(), seed=1)[0]:
        mask = state.feasible().expand(len(state.node), -1)
        assert mask.shape[1] == state.node.shape[1] * state.choices
        assert not mask[:, : state.choices].any()
        assert state.done or mask.any(dim=1).all()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_random_rollouts_are_feasible_and_costed_alike(name: str, n: int) -> None:
    """Whatever feasible actions are taken, checker and state agree on the result."""
    for seed in range(4):
        problem = small(name, batch=5, n=n, seed=seed)
        states, decisions = rollout(problem.start(), seed)
        agree(states[-1], problem, decisions)


def test_cost_agrees_far_from_the_unit_square(name: str) -> None:
    """Scaled and shifted instances are costed in their own units."""
    problem = small(name, seed=5)
    moved = {"coords": problem.coords * 1e5 + 5e6}
    if hasattr(problem, "limit"):
        moved["limit"] = problem.limit * 1e5
    problem = dataclasses_replace(problem, **moved)
    states, decisions = rollout(problem.start(), 5)
    exact = problem.cost(problem.routes(decisions))
    np.testing.assert_allclose(states[-1].cost.numpy(), exact, rtol=1e-4)


def dataclasses_replace(problem: Problem, **changes: object) -> Problem:
    """Returns the problem with some constructor arguments changed."""
    values = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    return type(problem)(**values | changes)


def test_replay_equals_stepping(name: str) -> None:
    """`replay(d, j)` is the state after j steps, its nodes in the order of d."""
    problem = small(name, batch=6, n=9, seed=2)
    states, decisions = rollout(problem.start(), seed=2)
    for j, stepped in enumerate(states):
        replayed = problem.replay(decisions, j)
        assert replayed.node.shape == stepped.node.shape
        assert torch.equal(replayed.node[:, [0, -1]], stepped.node[:, [0, -1]])
        going = unfinished(stepped)
        ids = replayed.node[going].sort(dim=1).values
        assert torch.equal(ids, stepped.node[going].sort(dim=1).values)
        torch.testing.assert_close(replayed.cost, stepped.cost)
        for field in set(stepped.row_fields) - {"node", "origin", "instance"}:
            torch.testing.assert_close(
                getattr(replayed, field), getattr(stepped, field), msg=field
            )


def test_replay_has_the_next_decision_at_position_one(name: str) -> None:
    """Stepping a replayed state with its first open node follows the decisions."""
    problem = small(name, batch=6, n=9, seed=4)
    states, decisions = rollout(problem.start(), seed=4)
    choices = states[0].choices
    for j in range(decisions.shape[1]):
        state = problem.replay(decisions, j)
        going = unfinished(states[j]) & (decisions[:, j] != 0)
        action = choices + decisions[:, j] % choices
        assert torch.equal(state.decision(action)[going], decisions[going, j])
        assert (
            state.feasible()
            .expand(len(problem), -1)
            .gather(1, action[:, None])[going]
            .all()
        )


@pytest.mark.parametrize("n", [0, 1])
def test_replay_of_the_smallest_instances(name: str, n: int) -> None:
    """Where nothing is decided, the state after no steps is the start."""
    if name == "tsp" and n == 0:
        pytest.skip("a tour needs a node")
    problem = small(name, batch=2, n=n)
    state, decisions = problem.start(), rollout(problem.start())[1]
    for given in (decisions, problem.decisions(problem.routes(decisions))):
        replayed = problem.replay(given, 0)
        assert torch.equal(replayed.node, state.node)
        assert torch.equal(replayed.features(), state.features())


def unfinished(state: State) -> torch.Tensor:
    """Returns which rows still have something to decide."""
    mask = state.feasible().expand(len(state.node), -1)
    return mask[:, : -state.choices].any(dim=1)


def test_routes_and_decisions_are_inverse(name: str) -> None:
    """`decisions(routes(d))` gives d, but for what follows the way home."""
    for seed in range(5):
        problem = small(name, seed=seed)
        decisions = rollout(problem.start(), seed)[1]
        back = problem.decisions(problem.routes(decisions))
        width = back.shape[1]
        assert torch.equal(back, decisions[:, :width])
        assert not decisions[:, width:].any()


@variants
def test_shuffling_open_nodes_permutes_the_scores(name: str, variant: str) -> None:
    """Scores belong to nodes, not to their places: base encoder."""
    policy = make_policy(name, **VARIANTS[variant])
    state = rollout(small(name).start(), steps=2)[0][-1]
    other, order = shuffled(state)
    with torch.inference_mode():
        expected = policy.score(policy.encode(state), state)
        scores = policy.score(policy.encode(other), other)
    expected = expected[:, actions_of(order, state.choices)]
    assert expected.isfinite().any()
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


@variants
def test_shuffling_permutes_the_scores_after_an_update(name: str, variant: str) -> None:
    """Scores belong to nodes, not to their places: recurrent encoder."""
    policy = make_policy(name, **VARIANTS[variant])
    before = small(name).start()
    other, order = shuffled(before, seed=1)
    place = order.argsort()
    action = torch.full((len(before.node),), 3 * before.choices)
    same = place[action // before.choices] * before.choices
    with torch.inference_mode():
        after, after_other = before.step(action), other.step(same)
        h = policy.update(policy.encode(before), after)
        h_other = policy.update(policy.encode(other), after_other)
        scores, scores_other = (
            policy.score(h, after),
            policy.score(h_other, after_other),
        )
    for row in range(len(before.node)):
        found = [
            after_other.node[row, 1:-1].tolist().index(i) + 1
            for i in after.node[row, 1:-1].tolist()
        ]
        to = actions_of(torch.tensor([0, *found, len(found) + 1]), before.choices)
        torch.testing.assert_close(
            scores_other[row, to], scores[row], rtol=1e-4, atol=1e-5
        )


@variants
@pytest.mark.parametrize("k", [1, 3])
def test_a_row_does_not_depend_on_its_batch(name: str, variant: str, k: int) -> None:
    """Solving instances together or one by one gives the same routes and costs."""
    policy, problem = make_policy(name, **VARIANTS[variant]), small(name, batch=3, n=7)
    for solve in (greedy, lambda *a, **b: beam_search(*a, **b, width=4)):
        together = solve(policy, problem.start(), k=k)
        routes = problem.routes(together.decisions)
        for i in range(len(problem)):
            alone = solve(policy, problem[i].start(), k=k)
            assert problem[i].routes(alone.decisions) == [routes[i]]
            torch.testing.assert_close(alone.cost, together.cost[i : i + 1])


@variants
@pytest.mark.parametrize("k", [1, 2, 1000])
def test_a_beam_of_one_is_greedy(name: str, variant: str, k: int) -> None:
    """`beam_search(width=1)` takes the same decisions as `greedy`."""
    policy, state = make_policy(name, **VARIANTS[variant]), small(name).start()
    expected = greedy(policy, state, k=k)
    found = beam_search(policy, state, k=k, width=1)
    assert torch.equal(found.decisions, expected.decisions)
    assert torch.equal(found.cost, expected.cost)


@pytest.mark.parametrize("change", ["repeat", "drop", "outside", "negative", "text"])
def test_the_checker_refuses_broken_solutions(
    name: str, change: str, unchecked: None
) -> None:
    """A repeated, missing, unknown or unreadable node is named in the error."""
    problem = PROBLEMS[name].random(1, 6)
    routes = problem.routes(greedy(NearestPolicy(), problem.start(), k=1).decisions)
    problem.cost(routes)
    route = routes[0][-1]
    if change == "repeat":
        route.append(route[0])
        match = f"node {route[0]} is visited twice"
    elif change == "drop":
        if name == "op":
            pytest.skip("an orienteering tour may leave nodes out")
        match = f"nodes are not visited: {route.pop()}"
    else:
        route[-1] = {"outside": 99, "negative": -1, "text": "one"}[change]
        match = f"node {route[-1]!r} is not"
    with pytest.raises(Infeasible, match=match):
        problem.cost(routes)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_the_smallest_instances_work(name: str, n: int) -> None:
    """Instances with next to nothing to decide are solved like any other."""
    if name == "tsp" and n == 0:
        pytest.skip("a tour needs a node")
    policy, problem = make_policy(name), small(name, batch=3, n=n)
    for k in (1, 2):
        for solutions in (
            greedy(policy, problem.start(), k=k),
            beam_search(policy, problem.start(), k=k, width=8),
        ):
            assert solutions.decisions.shape[0] == 3
            exact = problem.cost(problem.routes(solutions.decisions))
            np.testing.assert_allclose(solutions.cost, exact, atol=1e-4)


@pytest.mark.parametrize("shape", ["identical", "collinear", "duplicates", "tiny"])
@variants
def test_degenerate_points_work(name: str, shape: str, variant: str) -> None:
    """Coinciding points, points on a line and minute instances give no NaN."""
    policy, problem = make_policy(name, **VARIANTS[variant]), small(name, batch=2)
    coords = problem.coords.copy()
    if shape == "identical":
        coords[:] = 7.25
    elif shape == "collinear":
        coords[..., 1] = 0.5
    elif shape == "duplicates":
        coords[:, ::2] = coords[:, :1]
    else:
        coords *= 1e-9
    problem = dataclasses_replace(problem, coords=coords)
    for width in (1, 5):
        solutions = beam_search(policy, problem.start(), k=3, width=width)
        exact = problem.cost(problem.routes(solutions.decisions))
        np.testing.assert_allclose(solutions.cost, exact, rtol=1e-4, atol=1e-4)


@variants
@pytest.mark.parametrize("factor, offset", [(1e6, 5e6), (1e-3, -4.0)])
def test_decisions_do_not_depend_on_units(
    name: str, variant: str, factor: float, offset: float
) -> None:
    """Moving and scaling an instance changes no decision."""
    policy, problem = make_policy(name, **VARIANTS[variant]), small(name, n=12)
    moved = {"coords": problem.coords * factor + offset}
    if hasattr(problem, "limit"):
        moved["limit"] = problem.limit * factor
    other = dataclasses_replace(problem, **moved)
    expected = greedy(policy, problem.start(), k=3)
    assert torch.equal(greedy(policy, other.start(), k=3).decisions, expected.decisions)


def test_random_instances_depend_on_seed_and_index_alone(name: str) -> None:
    """A set can be drawn in pieces, and seeds give different sets."""
    whole = small(name, batch=6, seed=3)
    rest = PROBLEMS[name].random(1, 8, seed=3, first=4)
    np.testing.assert_array_equal(whole.coords[4:5], rest.coords)
    for array in whole.arrays:
        again = small(name, batch=6, seed=3)
        np.testing.assert_array_equal(getattr(whole, array), getattr(again, array))
    assert not np.array_equal(whole.coords, small(name, batch=6, seed=4).coords)
    assert len({points.tobytes() for points in whole.coords}) == 6


def test_random_points_fill_the_unit_square(name: str) -> None:
    """Coordinates are uniform in [0, 1) in both axes."""
    coords = PROBLEMS[name].random(20, 100).coords
    assert coords.min() >= 0
    assert coords.max() < 1
    np.testing.assert_allclose(coords.mean((0, 1)), 0.5, atol=0.03)
    np.testing.assert_allclose(coords.std((0, 1)), 12**-0.5, atol=0.02)


def test_indexing_gives_sub_batches(name: str) -> None:
    """Numbers, slices and index arrays pick instances with all their data."""
    problem = small(name, batch=5)
    for index, rows in [
        (2, [2]),
        (-1, [4]),
        (slice(1, 3), [1, 2]),
        ([3, 0, 3], [3, 0, 3]),
        (np.array([4, 1]), [4, 1]),
    ]:
        part = problem[index]
        assert len(part) == len(rows)
        for array in problem.arrays:
            np.testing.assert_array_equal(
                getattr(part, array), getattr(problem, array)[rows]
            )
    with pytest.raises(IndexError, match="instance 5 of a batch of 5"):
        problem[5]


def test_rows_repeat_and_reorder_everything(name: str) -> None:
    """`rows` picks states that go on like the originals."""
    state = rollout(small(name).start(), steps=2)[0][-1]
    index = torch.tensor([3, 0, 0, 2])
    picked = state.rows(index)
    assert torch.equal(picked.features(), state.features()[index])
    mask = state.feasible().expand(len(state.node), -1)
    assert torch.equal(picked.feasible().expand(len(index), -1), mask[index])
    assert torch.equal(picked.cost, state.cost[index])
    action = mask[index].float().argmax(1)
    assert torch.equal(
        picked.step(action).cost, state.step(mask.float().argmax(1)).cost[index]
    )


def test_features_are_normalised(name: str) -> None:
    """The networks see the unit square, with one factor for both axes."""
    problem = small(name)
    stretched = dataclasses_replace(problem, coords=problem.coords * [300.0, 100.0] - 9)
    xy = stretched.start().features()[..., :2].numpy()
    assert xy.min() == 0
    assert xy.max() == 1
    points = np.concatenate([stretched.coords, stretched.coords[:, :1]], axis=1)
    seen = np.linalg.norm(np.diff(xy, axis=1), axis=-1)
    true = np.linalg.norm(np.diff(points, axis=1), axis=-1)
    side = (stretched.coords.max(1) - stretched.coords.min(1)).max(1)
    np.testing.assert_allclose(seen * side[:, None], true, rtol=1e-4, atol=1e-4)


def test_wider_beams_than_actions_give_numbers(name: str) -> None:
    """Spare beams stay dead: the result is feasible and its cost a number."""
    problem = small(name, batch=3, n=3)
    for policy in (UniformPolicy(), make_policy(name)):
        for width in (2, 7, 100):
            found = beam_search(policy, problem.start(), k=1, width=width)
            assert found.cost.isfinite().all()
            exact = problem.cost(problem.routes(found.decisions))
            np.testing.assert_allclose(found.cost, exact, atol=1e-4)


def test_input_arrays_are_neither_kept_nor_changed(name: str) -> None:
    """The batch copies what it is given and cannot be written to."""
    problem = small(name)
    coords = problem.coords.copy()
    other = dataclasses_replace(problem, coords=coords)
    coords[:] = 0
    np.testing.assert_array_equal(other.coords, problem.coords)
    with pytest.raises(ValueError, match="read-only"):
        other.coords[0, 0, 0] = 1.0


def test_lists_arrays_and_tensors_are_accepted(name: str) -> None:
    """The same data in any container and any number type is the same instance."""
    problem = small(name, batch=1)
    for convert in (
        lambda a: a[0].tolist(),
        lambda a: a.astype(np.float32),
        torch.tensor,
        lambda a: torch.tensor(a[0]).requires_grad_(),
    ):
        given = {name: convert(getattr(problem, name)) for name in problem.arrays}
        other = type(problem)(**given)
        for array in problem.arrays:
            np.testing.assert_allclose(
                getattr(other, array), getattr(problem, array), rtol=1e-6
            )
