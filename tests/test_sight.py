"""Policies that look at the nearest nodes only."""

import numpy as np
import pytest
import torch
from conftest import make_policy

from renco.construct import beam_search, greedy
from renco.lns import LNSSettings
from renco.problems import PROBLEMS
from renco.searches import SearchOptions, find_search
from renco.sight import LEAST, MANY, NEAR, Sight, usual

NAMES = [*PROBLEMS]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Each problem."""
    return str(request.param)


def test_the_nearest_nodes_are_seen_and_the_end(name: str) -> None:
    """Where all are seen, nothing is copied."""
    state = PROBLEMS[name].random(4, 60, seed=3).start()
    state = state.step(torch.full((4,), 7 * state.choices))
    sight = Sight.of(state).renewed(25)
    xy = state.features()[..., :2]
    for row in range(4):
        away = (xy[row] - xy[row, 0]).norm(dim=-1)
        present = state.present()
        if present is not None:
            away[~present[row]] = torch.inf
        nearest = away[1:-1].argsort()[:25] + 1
        assert set(sight.seen.node[row, 1:-1].tolist()) == set(
            state.node[row, nearest].tolist()
        )
    assert (sight.seen.node[:, [0, -1]] == state.node[:, [0, -1]]).all()
    everything = Sight.of(state).renewed(1000)
    assert everything.seen is everything.whole
    assert everything.rows(torch.tensor([1])).seen.node.shape[0] == 1


def test_steps_lead_to_the_same_place_in_both(name: str) -> None:
    """Though what is seen has other positions."""
    policy = make_policy(name)
    state = policy.visible(PROBLEMS[name].random(5, 70, seed=1).start())
    sight, rng = Sight.of(state).renewed(30), torch.Generator().manual_seed(0)
    for _ in range(8):
        likely = sight.seen.feasible().expand(5, -1).float()
        action = likely.multinomial(1, generator=rng)[:, 0]
        decision = sight.seen.decision(action)
        sight = sight.step(action).trimmed(policy.visible)
        assert (sight.whole.node[:, 0] == decision // state.choices).all()
        assert (sight.seen.node[:, 0] == sight.whole.node[:, 0]).all()
        torch.testing.assert_close(sight.seen.spent(), sight.whole.spent())
        for seen, whole in zip(sight.seen.node, sight.whole.node, strict=True):
            assert set(seen.tolist()) <= set(whole.tolist())


@pytest.mark.parametrize("width", [1, 3])
def test_solutions_are_feasible_and_cost_what_the_state_says(
    name: str, width: int
) -> None:
    """Down to the last steps, where all that is left is seen."""
    policy, problem = make_policy(name), PROBLEMS[name].random(3, 55, seed=5)
    start = problem.start()
    if width == 1:
        found = greedy(policy, start, k=1, near=LEAST)
    else:
        found = beam_search(policy, start, k=1, near=LEAST, width=width, merge=True)
    cost = problem.cost(problem.routes(found.decisions))
    np.testing.assert_allclose(cost, found.cost, rtol=1e-4)


def test_all_nodes_within_reach_give_the_same_solutions(name: str) -> None:
    """A sight that is never too short changes nothing."""
    policy, state = make_policy(name), PROBLEMS[name].random(3, 30, seed=2).start()
    for near in (30, 1000):
        short, whole = (greedy(policy, state, k=1, near=n) for n in (near, None))
        assert (short.decisions == whole.decisions).all()


def test_many_nodes_are_looked_at_by_and_by() -> None:
    """By default beyond the sizes of the shipped policies, as options say."""
    assert usual("tsp", MANY) is None
    assert usual("tsp", MANY + 1) == NEAR["tsp"]
    assert LNSSettings.default("op", 1000, recurrent=True).near == NEAR["op"]
    policy, problem = make_policy("tsp"), PROBLEMS["tsp"].random(1, MANY + 1, seed=1)
    search = find_search("greedy")
    asked = {None: NEAR["tsp"], 0: 0, 50: 50}
    for near, expected in asked.items():
        options = search.completed(SearchOptions(near=near), policy, problem)
        assert options.near == expected
    with pytest.raises(ValueError, match="near must be 0 or at least 20, got 5"):
        SearchOptions(near=5)
    with pytest.raises(ValueError, match="near must be at least 20, got 5"):
        greedy(policy, problem.start(), k=1, near=5)
