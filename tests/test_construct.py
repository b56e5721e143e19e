"""Greedy and beam search against brute force, naive search and stored results."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import NearestPolicy, UniformPolicy, make_policy, small

from renco.construct import beam_search, dominated, greedy
from renco.model import Policy
from renco.problems import CVRP, OP, PROBLEMS, TSP, Problem
from renco.state import State

GOLDEN = Path(__file__).parent / "golden"
every_problem = pytest.mark.parametrize("name", list(PROBLEMS))


# Brute force


def legs(problem: Problem, nodes: list[int]) -> float:
    """Returns the length of a path of the first instance, leg by leg."""
    points = problem.coords[0]
    return sum(math.dist(points[a], points[b]) for a, b in itertools.pairwise(nodes))


def splits(order: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Yields all ways to cut a sequence into routes."""
    for cuts in itertools.product([False, True], repeat=len(order) - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut]
        yield [order[a:b] for a, b in itertools.pairwise([0, *ends, len(order)])]


def best_tsp(problem: TSP) -> float:
    """Returns the length of the shortest of all tours."""
    rest = range(1, problem.n)
    return min(legs(problem, [0, *order, 0]) for order in itertools.permutations(rest))


def best_cvrp(problem: CVRP) -> float:
    """Returns the least length of all orders cut in all ways that can be loaded."""
    demands, capacity = problem.demands[0], problem.capacity[0]
    best = math.inf
    for order in itertools.permutations(range(1, problem.n + 1)):
        for routes in splits(order):
            if all(sum(demands[i] for i in route) <= capacity for route in routes):
                total = sum(legs(problem, [0, *route, 0]) for route in routes)
                best = min(best, total)
    return best


def best_op(problem: OP) -> float:
    """Returns minus the highest prize of all tours within the limit."""
    best = 0.0
    for size in range(problem.n + 1):
        for route in itertools.permutations(range(1, problem.n + 1), size):
            if legs(problem, [0, *route, 0]) <= problem.limit[0]:
                best = min(best, -sum(problem.prizes[0, i] for i in route))
    return best


OPTIMA: dict[str, tuple[Callable[..., float], int]] = {
    "tsp": (best_tsp, 6),
    "cvrp": (best_cvrp, 4),
    "op": (best_op, 5),
}


@every_problem
@pytest.mark.parametrize("seed", range(3))
def test_an_exhaustive_beam_finds_the_optimum(name: str, seed: int) -> None:
    """A beam that holds every partial solution returns what brute force finds."""
    optimum, n = OPTIMA[name]
    problem = small(name, batch=1, n=n, seed=seed)
    policy = make_policy(name, seed=seed)
    found = beam_search(policy, problem.start(), k=2, width=1000)
    exact = problem.cost(problem.routes(found.decisions))
    assert exact[0] == pytest.approx(optimum(problem), abs=1e-9)


@every_problem
def test_merged_beams_find_the_optimum_with_far_fewer(name: str) -> None:
    """A beam per state is enough, and twins are what a plain search fails for."""
    optimum, n = OPTIMA[name]
    missed = 0
    for seed in range(12):
        problem = small(name, batch=1, n=n, seed=seed)
        policy = make_policy(name, seed=seed)
        for merge in (True, False):
            found = beam_search(policy, problem.start(), k=2, width=32, merge=merge)
            exact = problem.cost(problem.routes(found.decisions))[0]
            if merge:
                assert exact == pytest.approx(optimum(problem), abs=1e-9)
            missed += exact > optimum(problem) + 1e-9
    assert missed or name == "op"


@every_problem
def test_merged_beams_are_never_the_same_state(name: str) -> None:
    """What stays alive differs in place or is better in some respect."""
    problem = small(name, batch=2, n=7, seed=3)
    state = problem.start().rows(torch.tensor([0] * 40 + [1] * 40))
    rng = torch.Generator().manual_seed(1)
    for _ in range(4):
        open_actions = state.feasible().expand(80, -1)
        draw = torch.rand(open_actions.shape, generator=rng)
        state = state.step(draw.masked_fill(~open_actions, -1).argmax(1))
    score = torch.zeros(2, 40)
    score[0, :5] = -torch.inf  # dead beams push nobody out
    dead = dominated(state, score).flatten()
    sets = [frozenset(row.tolist()) for row in state.node[:, 1:]]
    at, spent = state.node[:, 0].tolist(), state.spent().tolist()
    for i, j in itertools.permutations(range(80), 2):
        twins = i // 40 == j // 40 and at[i] == at[j] and sets[i] == sets[j]
        if not twins or score.flatten()[j].isinf():
            continue
        beaten = all(a >= b for a, b in zip(spent[i], spent[j], strict=True))
        if beaten and (j < i or spent[i] != spent[j]):
            assert dead[i]
    assert dead.any() and not dead.all()


def test_of_tours_that_are_home_one_beam_is_kept() -> None:
    """The richest; what the others left out, or can no longer reach, is no reason."""
    problem = small("op", batch=1, n=7, seed=3)
    state = problem.start().rows(torch.zeros(30, dtype=torch.long))
    rng = torch.Generator().manual_seed(1)
    while not (state.remaining < 0).all():
        open_actions = state.feasible()
        draw = torch.rand(open_actions.shape, generator=rng)
        state = state.step(draw.masked_fill(~open_actions, -1).argmax(1))
    assert len(set(state.collected.tolist())) > 1
    alive = ~dominated(state, torch.zeros(1, 30))[0]
    assert alive.sum() == 1
    assert state.collected[alive].item() == state.collected.max()


def test_what_is_out_of_reach_does_not_matter() -> None:
    """Scores are those of an instance without the nodes that cannot be reached."""
    options = {"zoom": True, "relative": True, "geometry": True, "reach": True}
    policy, hidden = make_policy("op", seed=2, **options), 0
    for seed in range(6):
        problem = small("op", batch=3, n=12, seed=seed)
        state, h = policy.visible(problem.start()), None
        for t in range(4):
            if state.done:
                break
            h = policy.encode(state) if t % 2 == 0 else policy.update(h, state)
            scores = policy.score(h, state)
            for row in range(3):
                single = policy.visible(state.rows(torch.tensor([row])))
                if t % 2 == 0 and not single.done:
                    alone = policy.score(policy.encode(single), single)[0]
                    hidden += state.node.shape[1] - single.node.shape[1]
                    kept = single.node[0].tolist()
                    for place, node in enumerate(state.node[row, 1:-1].tolist(), 1):
                        if scores[row, place].isfinite():
                            other = alone[kept.index(node, 1)]
                            torch.testing.assert_close(
                                scores[row, place], other, rtol=1e-4, atol=1e-5
                            )
            state = policy.visible(state.step(scores.argmax(1)))
    assert hidden > 10


def test_rounded_distances_hide_nothing() -> None:
    """Without a triangle inequality a node may come back within reach."""
    plane = small("op", batch=1, n=12)
    rounded = OP(100 * plane.coords, plane.prizes, [180.0], metric="EUC_2D")
    assert plane.start().trimmed().node.shape[1] < 14
    assert rounded.start().trimmed().node.shape[1] == 14


@every_problem
def test_greedy_is_not_optimal_by_accident(name: str) -> None:
    """The instances above are hard enough for an untrained policy to miss."""
    optimum, n = OPTIMA[name]
    missed = 0
    for seed in range(3):
        problem = small(name, batch=1, n=n, seed=seed)
        found = greedy(make_policy(name, seed=seed), problem.start(), k=2)
        exact = problem.cost(problem.routes(found.decisions))[0]
        assert exact >= optimum(problem) - 1e-9
        missed += exact > optimum(problem) + 1e-9
    assert missed


# Naive search


def one_step(policy: Policy, state: State, h: torch.Tensor | None, t: int, k: int):
    """Returns embeddings and log-probabilities of a single state."""
    h = policy.encode(state) if t % k == 0 else policy.update(h, state)
    return h, policy.score(h, state)[0].tolist()


def naive_beam(policy: Policy, state: State, k: int, width: int) -> tuple:
    """Beam search with one state per beam and Python's own sorting."""
    beams = [(0.0, state, None, [])]
    t = 0
    while not all(beam[1].done for beam in beams):
        grown = []
        for score, at, h, decisions in beams:
            h, scores = one_step(policy, at, h, t, k)
            for action, value in enumerate(scores):
                if value > -math.inf:
                    grown.append((score + value, at, h, decisions, action))
        grown.sort(key=lambda beam: -beam[0])
        beams = []
        for score, at, h, decisions, action in grown[:width]:
            chosen = torch.tensor([action])
            decision = at.decision(chosen).item()
            beams.append((score, at.step(chosen), h, [*decisions, decision]))
        t += 1
    best = min(beams, key=lambda beam: beam[1].cost.item())
    return best[3], best[1].cost.item()


@every_problem
@pytest.mark.parametrize("k, width", [(1, 3), (3, 4), (1000, 2)])
def test_beam_search_equals_a_naive_one(name: str, k: int, width: int) -> None:
    """Embeddings, scores and decisions stay with their beam."""
    policy, problem = make_policy(name, seed=1), small(name, batch=3, n=7, seed=1)
    found = beam_search(policy, problem.start(), k=k, width=width)
    routes = problem.routes(found.decisions)
    for i in range(len(problem)):
        with torch.inference_mode():
            decisions, cost = naive_beam(policy, problem[i].start(), k, width)
        assert problem[i].routes(torch.tensor([decisions])) == [routes[i]]
        assert found.cost[i].item() == pytest.approx(cost, abs=1e-5)


@every_problem
def test_greedy_takes_the_likeliest_action(name: str) -> None:
    """Each decision is the argmax of the scores of its own state."""
    policy, problem = make_policy(name, seed=2), small(name, batch=1, seed=2)
    found = greedy(policy, problem.start(), k=3)
    state, h = problem.start(), None
    with torch.inference_mode():
        for t, decision in enumerate(found.decisions[0].tolist()):
            h, scores = one_step(policy, state, h, t, 3)
            action = torch.tensor([int(np.argmax(scores))])
            assert state.decision(action).item() == decision
            state = state.step(action)
    assert state.done
    assert torch.equal(state.cost, found.cost)


@every_problem
@pytest.mark.parametrize("policy", [NearestPolicy(), UniformPolicy()])
def test_embeddings_follow_their_nodes(name: str, policy: Policy) -> None:
    """The stubs carry node ids as embeddings and notice any mix-up."""
    problem = small(name, batch=3)
    for width in (1, 4, 30):
        found = beam_search(policy, problem.start(), k=1000, width=width)
        problem.cost(problem.routes(found.decisions))


def test_nearest_neighbour_by_hand() -> None:
    """On a line, the nearest unvisited node is the next one."""
    problem = TSP([[0, 0], [5, 0], [1, 0], [3, 0], [2, 0]])
    found = greedy(NearestPolicy(), problem.start(), k=1)
    assert found.decisions.tolist() == [[2, 4, 3, 1]]
    assert found.cost.item() == pytest.approx(10)


def test_a_wider_beam_sees_past_a_trap() -> None:
    """Greedy takes the near node first; a beam of two finds the shorter tour."""
    problem = TSP([[0, 0], [0, 1], [-1.1, 0], [6, 0], [0, -1]])
    cost = [
        beam_search(NearestPolicy(), problem.start(), k=1, width=width).cost.item()
        for width in (1, 24)
    ]
    assert cost[1] < cost[0]


# k


class Spy(Policy):
    """Remembers which encoder ran at each step."""

    def __init__(self, policy: Policy) -> None:
        """Wraps a policy."""
        super().__init__(policy.config)
        self.load_state_dict(policy.state_dict())
        self.calls = ""

    def encode(self, state: State) -> torch.Tensor:
        """Runs E."""
        self.calls += "E"
        return super().encode(state)

    def update(self, h: torch.Tensor, state: State) -> torch.Tensor:
        """Runs U."""
        self.calls += "U"
        return super().update(h, state)


@pytest.mark.parametrize(
    "k, calls", [(1, "EEEEEEE"), (2, "EUEUEUE"), (3, "EUUEUUE"), (99, "EUUUUUU")]
)
def test_the_base_encoder_runs_every_k_steps(k: int, calls: str) -> None:
    """E runs at t mod k = 0, U otherwise, in both searches."""
    spy, problem = Spy(make_policy("tsp")), small("tsp", n=8)
    greedy(spy, problem.start(), k=k)
    assert spy.calls == calls
    spy.calls = ""
    beam_search(spy, problem.start(), k=k, width=3)
    assert spy.calls == calls


@every_problem
def test_k_of_one_is_the_base_model_alone(name: str) -> None:
    """With k = 1 the recurrent encoder changes nothing and need not exist."""
    state = small(name).start()
    alone, both = make_policy(name, recurrent=False), make_policy(name)
    expected = greedy(alone, state, k=1)
    assert torch.equal(greedy(both, state, k=1).decisions, expected.decisions)
    assert not torch.equal(greedy(both, state, k=2).decisions, expected.decisions)
    with pytest.raises(ValueError, match="no recurrent encoder: use k = 1"):
        greedy(alone, state, k=2)


# Wrong use


@pytest.mark.parametrize("k", [0, -3])
def test_impossible_k_is_refused(k: int) -> None:
    """The base encoder must run now and then."""
    state = small("tsp").start()
    with pytest.raises(ValueError, match=f"k must be at least 1, got {k}"):
        greedy(UniformPolicy(), state, k=k)
    with pytest.raises(ValueError, match=f"k must be at least 1, got {k}"):
        beam_search(UniformPolicy(), state, k=k, width=2)


@pytest.mark.parametrize("width", [0, -1])
def test_impossible_widths_are_refused(width: int) -> None:
    """A beam is at least one wide."""
    with pytest.raises(ValueError, match=f"width must be at least 1, got {width}"):
        beam_search(UniformPolicy(), small("tsp").start(), k=1, width=width)


@every_problem
def test_searches_leave_the_state_alone(name: str) -> None:
    """A state can be solved again with the same result."""
    policy, state = make_policy(name), small(name).start()
    kept = {f: getattr(state, f).clone() for f in state.row_fields}
    first = beam_search(policy, state, k=2, width=3)
    for field, value in kept.items():
        assert torch.equal(getattr(state, field), value), field
    again = beam_search(policy, state, k=2, width=3)
    assert torch.equal(first.decisions, again.decisions)


def test_each_step_can_be_watched_and_stopped() -> None:
    """`on_step` runs before every step; its exception ends the search."""
    steps = []

    def stop() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise TimeoutError

    state = small("tsp", n=8).start()
    for search in (greedy, lambda *a, **b: beam_search(*a, **b, width=2)):
        steps.clear()
        with pytest.raises(TimeoutError):
            search(UniformPolicy(), state, k=1, on_step=stop)
        steps[:] = [1] * 9
        search(UniformPolicy(), state, k=1, on_step=stop)
        assert len(steps) == 9 + 7


@every_problem
@pytest.mark.parametrize("part", ["base.init.linear.weight", "decoder.weight"])
@pytest.mark.parametrize("width", [None, 1, 4])
def test_weights_that_are_not_numbers_are_noticed(
    name: str, part: str, width: int | None
) -> None:
    """NaN gives an error that says so, never a solution of some kind."""
    policy, state = make_policy(name), small(name).start()
    policy.get_parameter(part).data[0] = torch.nan
    with pytest.raises(Exception, match=r"(?i)nan|finite"):
        if width is None:
            greedy(policy, state, k=2)
        else:
            beam_search(policy, state, k=2, width=width)


# Stored results

SEARCHES: dict[str, Callable] = {
    "greedy-k1": lambda policy, state: greedy(policy, state, k=1),
    "greedy-k4": lambda policy, state: greedy(policy, state, k=4),
    "beam4-k3": lambda policy, state: beam_search(policy, state, k=3, width=4),
}
POLICIES = {
    "paper": {},
    "ours": {"relative": True, "geometry": True, "zoom": True},
}


@every_problem
def test_golden_decisions(name: str, request: pytest.FixtureRequest) -> None:
    """Seeded policies decide as they did when the results were stored.

    `pytest --write-golden` stores them anew; do so only if decisions are meant to
    change, for then shipped weights may have changed their meaning too.
    """
    problem = small(name, batch=3, n=12, seed=7)
    results = {}
    for policy_name, options in POLICIES.items():
        policy = make_policy(name, seed=7, **options)
        for search_name, search in SEARCHES.items():
            found = search(policy, problem.start())
            routes = problem.routes(found.decisions)
            results[f"{policy_name}-{search_name}"] = {
                "routes": routes,
                "cost": [round(float(cost), 9) for cost in problem.cost(routes)],
            }
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--write-golden"):
        file.parent.mkdir(exist_ok=True)
        lines = [f"{json.dumps(key)}: {json.dumps(results[key])}" for key in results]
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    stored = json.loads(file.read_text())
    assert results.keys() == stored.keys()
    for key, expected in stored.items():
        assert results[key]["routes"] == expected["routes"], key
        assert results[key]["cost"] == pytest.approx(expected["cost"]), key
    assert len({json.dumps(result["routes"]) for result in results.values()}) > 3


@every_problem
@pytest.mark.parametrize("policy_name", list(POLICIES))
def test_golden_decisions_are_clear(name: str, policy_name: str) -> None:
    """No stored decision hangs on the last digits of a score."""
    policy = make_policy(name, seed=7, **POLICIES[policy_name])
    state = small(name, batch=3, n=12, seed=7).start()
    for k in (1, 4):
        at, h, t = state, None, 0
        while not at.done:
            with torch.inference_mode():
                h = policy.encode(at) if t % k == 0 else policy.update(h, at)
                scores = policy.score(h, at)
            best = scores.topk(2).values
            assert (best[:, 0] - best[:, 1]).min() > 1e-4
            at = at.step(scores.argmax(1))
            t += 1
