"""Tests of the large neighborhood search."""

import itertools
import math
import os
import signal
import threading
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from renco.construct import beam_search
from renco.lns import (
    LNSSettings,
    Progress,
    SearchResult,
    _Search,
    large_neighborhood_search,
)
from renco.model import EncoderConfig, Policy, PolicyConfig
from renco.pace import GROWTH, Pace
from renco.problems import CVRP, OP, PROBLEMS, TSP, Infeasible, Problem, Routes
from renco.quick import quick_start
from renco.state import State
from renco.stop import MaxIterations, MaxRuntime, NoImprovement, terminate_as_interrupt

SHAPE = {"tsp": (2, 1), "cvrp": (4, 2), "op": (4, 1)}
SMALL = LNSSettings(k_init=3, k_sub=3, b_init=2, b_sub=2, n_sub=8, segments=2)
GREEDY = LNSSettings(k_init=1, k_sub=1, b_init=1, b_sub=8, n_sub=20)


class NearestPolicy(Policy):
    """Prefers near nodes, and for the OP those with much prize."""

    def __init__(self, problem: str, slow: float = 0.0) -> None:
        """Builds the policy; each score takes at least `slow` seconds."""
        features, choices = SHAPE[problem]
        size = EncoderConfig(1, 4, 1, 4)
        super().__init__(PolicyConfig(problem, features, choices, base=size))
        self.problem, self.slow = problem, slow

    def encode(self, state: State) -> Tensor:
        """Returns the features themselves."""
        return state.features()

    def score(self, h: Tensor, state: State) -> Tensor:
        """Returns log-probabilities that fall with the distance."""
        time.sleep(self.slow)
        xy = h[..., :2]
        direct = torch.linalg.vector_norm(xy - xy[:, :1], dim=-1)
        logits = -20 * direct
        if self.problem == "op":
            logits = torch.log(h[..., 2] + 1e-6) - torch.log(direct + 1e-3)
        if self.problem == "cvrp":
            home = torch.linalg.vector_norm(xy - xy[:, -1:], dim=-1)
            logits = torch.stack([logits, -20 * (home[:, :1] + home)], dim=-1)
        logits = logits.flatten(1).masked_fill(~state.feasible(), -torch.inf)
        return logits.log_softmax(dim=-1)


@cache
def untrained(problem: str) -> Policy:
    """Returns a policy with random weights that does mix its nodes."""
    torch.manual_seed(1)
    features, choices = SHAPE[problem]
    config = PolicyConfig(
        problem,
        features,
        choices,
        base=EncoderConfig(2, 32, 4, 64),
        recurrent=EncoderConfig(1, 32, 4, 64),
    )
    policy = Policy(config).eval()
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "alpha" in name:
                weight.fill_(0.3)
    return policy


def instances(name: str, batch: int, n: int, metric: str = "euclidean") -> Problem:
    """Draws instances whose coordinates suit the metric."""
    problem = PROBLEMS[name].random(batch, n, seed=n)
    if metric == "euclidean":
        return problem
    scale = 20.0 if metric == "GEO" else 100.0
    values = {"coords": problem.coords * scale, "metric": metric}
    if isinstance(problem, OP):
        values["limit"] = problem.limit * scale
    return type(problem)(**vars_of(problem) | values)


def vars_of(problem: Problem) -> dict:
    """Returns the arrays of a problem by name."""
    return {name: getattr(problem, name) for name in problem.arrays}


def random_routes(problem: Problem, rng: np.random.Generator) -> list[Routes]:
    """Returns bad but feasible solutions."""
    solutions: list[Routes] = []
    for _ in range(len(problem)):
        order = rng.permutation(problem.n)
        if isinstance(problem, TSP):
            solutions.append([order.tolist()])
        elif isinstance(problem, CVRP):
            solutions.append([[int(node) + 1] for node in order])
        else:
            solutions.append([[]])
    return solutions


def merit(problem: Problem, routes: list[Routes]) -> list[tuple[float, float]]:
    """Returns cost and length: the order in which solutions are preferred."""
    pairs = zip(problem.cost(routes), problem.length(routes), strict=True)
    return [(float(cost), float(length)) for cost, length in pairs]


CASES = [
    *(("tsp", metric) for metric in ("euclidean", "EUC_2D", "GEO")),
    *(("cvrp", metric) for metric in ("euclidean", "EUC_2D")),
    *(("op", metric) for metric in ("euclidean", "EUC_2D")),
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.sampled_from(CASES),
    n=st.sampled_from([1, 2, 3, 5, 20, 60]),
    n_sub=st.sampled_from([4, 7, 20, 100]),
    n_least=st.sampled_from([None, 4]),
    batch=st.sampled_from([1, 3]),
    segments=st.sampled_from([None, 1, 3]),
    order=st.sampled_from(["random", "near"]),
    inner=st.booleans(),
    near=st.booleans(),
    polish=st.booleans(),
    kicks=st.sampled_from([0, 5]),
    seed=st.integers(0, 99),
)
def test_never_worse_than_the_start_and_always_feasible(
    case, n, n_sub, n_least, batch, segments, order, inner, near, polish, kicks, seed
) -> None:
    """Whatever the policy and the cuts, solutions are valid and no worse."""
    name, metric = case
    problem = instances(name, batch, n, metric)
    policy = NearestPolicy(name) if near else untrained(name)
    k = 1 if near else 3
    cut = LNSSettings(
        *(k, k, 2, 2, n_sub, segments, order, inner, n_least),
        polish=polish,
        kicks=kicks,
    )
    start = random_routes(problem, np.random.default_rng(seed))
    before = merit(problem, start)
    stop = MaxIterations(3)
    result = large_neighborhood_search(
        policy, problem, cut, stop, seed=seed, start=start
    )
    for new, old in zip(merit(problem, result.routes), before, strict=True):
        assert new <= old
    assert (result.cost == problem.cost(result.routes)).all()
    assert merit(problem, start) == before, "the start was changed"


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kicks", [0, 2])
def test_seed_and_iterations_determine_the_result(
    name: str, batch: int, kicks: int
) -> None:
    """Two runs agree in everything but the time; another seed differs."""
    problem = instances(name, batch, 60)
    start = random_routes(problem, np.random.default_rng(0))
    cut = replace(SMALL, kicks=kicks)

    def run(seed: int) -> SearchResult:
        stop = MaxIterations(5)
        return large_neighborhood_search(
            untrained(name), problem, cut, stop, seed=seed, start=start
        )

    one, two, other = run(1), run(1), run(2)
    assert one.routes == two.routes
    costs = [[cost for _, cost in history] for history in one.history]
    assert costs == [[cost for _, cost in history] for history in two.history]
    assert one.iterations == two.iterations == 5
    assert one.routes != other.routes


@pytest.mark.parametrize("name", PROBLEMS)
def test_local_moves_improve_what_a_policy_leaves(name: str) -> None:
    """Without any iteration, and twice is not better than once."""
    problem = instances(name, 3, 30)
    start = random_routes(problem, np.random.default_rng(0))
    cut = replace(SMALL, polish=True)
    policy, none = untrained(name), MaxIterations(0)
    once = large_neighborhood_search(policy, problem, cut, none, start=start)
    assert (once.cost < problem.cost(start)).all()
    twice = large_neighborhood_search(policy, problem, cut, none, start=once.routes)
    assert (twice.cost == once.cost).all()


@pytest.mark.parametrize(
    ("name", "times"), [("tsp", 100), ("cvrp", 2000), ("op", 2000)]
)
def test_kicks_go_on_where_local_moves_end(name: str, times: int) -> None:
    """They improve tours that an untrained policy cannot, within their time."""
    problem = PROBLEMS[name].random(2, 60, seed=0)
    alone = replace(SMALL, polish=True)
    policy, stop = untrained(name), MaxIterations(2)
    without = large_neighborhood_search(policy, problem, alone, stop)
    kicked = replace(alone, kicks=times)
    result = large_neighborhood_search(policy, problem, kicked, MaxIterations(2))
    assert (result.cost < without.cost).all()
    limited = replace(kicked, kicks=10**6)
    result = large_neighborhood_search(
        policy, problem, limited, MaxRuntime(1.0), start=without.routes
    )
    assert result.seconds < 1.2
    assert result.iterations > 1


def test_the_share_of_the_time_decides_how_wide_the_first_beams_are() -> None:
    """None of it leaves the quick start, all of it allows all beams."""
    problem, policy = TSP.random(1, 12, seed=0), untrained("tsp")
    for share, width in ((0.0, 0), (1.0, 4)):
        settings = replace(SMALL, b_init=4, share=share)
        search = _Search(policy, problem, settings, MaxRuntime(60), 0)
        assert search._initial_width() == width
    with pytest.raises(ValueError, match="share"):
        replace(SMALL, share=1.5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_beam_search_gives_the_initial_solution(name: str, monkeypatch) -> None:
    """It replaces a quick start that is worse, and only then."""
    problem = instances(name, 3, 12)
    policy = NearestPolicy(name)
    cut = LNSSettings(1, 1, 4, 1, 20)
    found = beam_search(policy, problem.start(), k=1, width=4, merge=True)
    beam = problem.cost(problem.routes(found.decisions))
    good = large_neighborhood_search(policy, problem, cut, MaxIterations(0))
    quick = problem.cost(quick_start(problem, np.random.default_rng(0)))
    assert (good.cost == np.minimum(beam, quick)).all()
    monkeypatch.setattr(
        "renco.lns.quick_start",
        lambda problem, rng, hurry: random_routes(problem, rng),
    )
    bad = large_neighborhood_search(policy, problem, cut, MaxIterations(0))
    assert (bad.cost == beam).all()
    assert bad.iterations == 0


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("order", ["random", "near"])
def test_search_improves_bad_solutions_a_lot(name: str, order: str) -> None:
    """From a random start the costs fall by a quarter at least."""
    problem = instances(name, 2, 40)
    start = random_routes(problem, np.random.default_rng(0))
    cut = replace(GREEDY, b_sub=2, order=order, segments=2)
    result = large_neighborhood_search(
        NearestPolicy(name), problem, cut, MaxIterations(20), start=start
    )
    before = problem.cost(start)
    assert (result.cost < before - 0.25 * abs(before)).all()


def optimum(problem: Problem) -> float:
    """Returns the best cost by trying everything."""
    nodes = range(1, problem.n + (problem.name != "tsp"))
    best = math.inf
    for order in itertools.permutations(nodes):
        for routes in candidates(problem, list(order)):
            try:
                best = min(best, float(problem.cost([routes])[0]))
            except Infeasible:
                continue
    return best


def candidates(problem: Problem, order: list[int]) -> list[Routes]:
    """Returns the solutions that visit nodes in the given order."""
    if isinstance(problem, TSP):
        return [[[0, *order]]]
    if isinstance(problem, OP):
        return [[order[:stop]] for stop in range(len(order) + 1)]
    cuts = itertools.product([False, True], repeat=len(order) - 1)
    return [split(order, cut) for cut in cuts]


def split(order: list[int], cut: tuple[bool, ...]) -> Routes:
    """Cuts a sequence into routes."""
    routes = [[order[0]]]
    for node, new in zip(order[1:], cut, strict=True):
        if new:
            routes.append([])
        routes[-1].append(node)
    return routes


@pytest.mark.parametrize("name", PROBLEMS)
def test_small_instances_are_solved_to_optimality(name: str) -> None:
    """With a sensible policy and wide beams nothing better exists."""
    n, n_sub, width, iterations = {
        "tsp": (7, 6, 32, 20),
        "cvrp": (5, 5, 2000, 2),
        "op": (5, 5, 200, 10),
    }[name]
    options = {"tsp": {}, "cvrp": {"capacity": 15}, "op": {"limit": 1.5}}[name]
    problem = PROBLEMS[name].random(1, n, seed=5, **options)
    start = random_routes(problem, np.random.default_rng(0))
    cut = LNSSettings(1, 1, 1, width, n_sub, segments=1)
    stop = MaxIterations(iterations)
    result = large_neighborhood_search(
        NearestPolicy(name), problem, cut, stop, start=start
    )
    assert result.cost[0] == pytest.approx(optimum(problem), rel=1e-12)


def test_shorter_means_shorter_in_the_metric_of_the_instance() -> None:
    """A tour that is optimal only under the matrix is kept, however long it looks."""
    rng = np.random.default_rng(0)
    coords = rng.random((9, 2))
    tour = rng.permutation(9)
    matrix = np.full((9, 9), 10.0)
    matrix[tour, np.roll(tour, -1)] = matrix[np.roll(tour, -1), tour] = 1.0
    np.fill_diagonal(matrix, 0.0)
    problem = TSP(coords, metric="EXPLICIT", matrix=matrix)
    result = large_neighborhood_search(
        NearestPolicy("tsp"),
        problem,
        replace(GREEDY, n_sub=6),
        MaxIterations(20),
        start=[[tour.tolist()]],
    )
    assert result.cost[0] == 9.0


def test_equal_prize_and_shorter_is_accepted() -> None:
    """An orienteering tour that has every prize still gets shorter."""
    problem = OP(
        np.array([[0.0, 0.0], [1, 0], [2, 0], [3, 0], [4, 0], [5, 0]]),
        np.array([0.0, 1, 1, 1, 1, 1]),
        100.0,
    )
    start = [[[4, 1, 5, 2, 3]]]
    result = large_neighborhood_search(
        NearestPolicy("op"), problem, GREEDY, MaxIterations(30), start=start
    )
    assert result.cost[0] == -5.0
    assert problem.length(result.routes)[0] == pytest.approx(10.0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_wrong_start_is_refused(name: str) -> None:
    """A solution that visits a node twice raises, it is not repaired."""
    problem = instances(name, 1, 6)
    with pytest.raises(Infeasible, match="twice"):
        large_neighborhood_search(
            NearestPolicy(name),
            problem,
            GREEDY,
            MaxIterations(1),
            start=[[[1, 2, 3, 4, 5, 1]]],
        )


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_time_still_gives_a_feasible_solution(name: str) -> None:
    """A limit of zero returns at once, for one instance and for a large one."""
    for n in (5, 400):
        problem = instances(name, 1, n)
        began = time.perf_counter()
        result = large_neighborhood_search(
            NearestPolicy(name), problem, GREEDY, MaxRuntime(0)
        )
        assert time.perf_counter() - began < 2
        assert result.cost == problem.cost(result.routes)
        assert result.iterations == 0


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("n", [30, 300])
def test_the_time_limit_holds_although_steps_are_slow(name: str, n: int) -> None:
    """A construction or an iteration that takes too long is not waited for."""
    problem = instances(name, 1, n)
    policy = NearestPolicy(name, slow=0.01)
    began = time.perf_counter()
    result = large_neighborhood_search(policy, problem, GREEDY, MaxRuntime(0.5))
    assert time.perf_counter() - began < 1.5
    assert result.seconds >= 0.3
    assert result.cost == problem.cost(result.routes)


def test_the_time_limit_is_used_to_search() -> None:
    """Under a time limit iterations happen and improve the solution."""
    problem = instances("tsp", 1, 80)
    start = random_routes(problem, np.random.default_rng(0))
    result = large_neighborhood_search(
        NearestPolicy("tsp"), problem, GREEDY, MaxRuntime(1), start=start
    )
    assert result.iterations > 0
    assert result.cost < problem.cost(start)


def test_iterations_begin_small_under_a_time_limit() -> None:
    """Each does at most some times what all before it did, until all is done."""
    pace, planned, done = Pace(MaxRuntime(3600)), [], 0
    while not planned or planned[-1] < 40 * 16:
        count, width = pace.plan(40, 16, batch=1, size=20)
        assert count == 1 or width == 16
        planned.append(count * width)
        assert planned[-1] <= max(1, GROWTH * done)
        pace.begin()
        pace.solved(count * width, 20)
        done += count * width
    assert 3 < len(planned) < 8
    assert Pace(MaxIterations(1)).plan(40, 16, batch=1, size=20) == (40, 16)


def test_history_falls_and_ends_with_the_result() -> None:
    """Each entry is later and better than the one before."""
    problem = instances("cvrp", 2, 30)
    result = large_neighborhood_search(
        NearestPolicy("cvrp"), problem, replace(GREEDY, b_sub=2), MaxIterations(8)
    )
    for history, cost in zip(result.history, result.cost, strict=True):
        times, costs = zip(*history, strict=True)
        assert list(times) == sorted(times)
        assert all(a > b for a, b in itertools.pairwise(costs))
        assert costs[-1] == cost


def test_callback_sees_every_iteration() -> None:
    """Progress counts iterations, sub-problems and improvements."""
    problem = instances("tsp", 2, 60)
    seen: list[Progress] = []
    cut = replace(GREEDY, segments=2)
    start = random_routes(problem, np.random.default_rng(0))
    result = large_neighborhood_search(
        NearestPolicy("tsp"),
        problem,
        cut,
        MaxIterations(4),
        start=start,
        callback=seen.append,
    )
    assert [progress.iterations for progress in seen] == [0, 1, 2, 3, 4]
    assert [progress.tried for progress in seen] == [0, 4, 8, 12, 16]
    assert (seen[0].cost == problem.cost(start)).all()
    assert (seen[-1].cost == result.cost).all()
    assert 0 < seen[-1].improvement_rate <= 1


def test_stages_go_from_small_and_narrow_to_large_and_wide() -> None:
    """The paper's single size and width is what comes without a least one."""
    assert LNSSettings(n_sub=100, b_sub=16).stages == [(100, 16)]
    assert LNSSettings(n_sub=20, n_least=25).stages == [(20, 16)]
    grow = LNSSettings(n_sub=100, b_sub=4, n_least=25, b_least=1)
    assert grow.stages == [(25, 1), (50, 1), (100, 1), (25, 4), (50, 4), (100, 4)]


def test_sub_problems_grow_when_small_ones_find_nothing() -> None:
    """An optimal tour is tried with every size, and then from the beginning."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    problem = TSP(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    seen: list[int] = []

    sizes: list[int] = []

    class Counting(NearestPolicy):
        """Counts the steps of each construction."""

        def encode(self, state: State) -> Tensor:
            """Begins a new count where the state is not a step smaller."""
            nodes = state.node.shape[1]
            if not seen or nodes != seen[-1] - 1:
                sizes.append(nodes)
            seen.append(nodes)
            return super().encode(state)

    cut = LNSSettings(1, 1, 1, 1, 32, segments=1, n_least=8)
    start = [[list(range(40))]]
    large_neighborhood_search(
        Counting("tsp"), problem, cut, MaxIterations(7), start=start
    )
    assert sizes == [8, 16, 32, 8, 16, 32, 8]


def test_no_improvement_ends_the_search() -> None:
    """A solution that cannot get better is not searched for ever."""
    problem = TSP([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    result = large_neighborhood_search(
        NearestPolicy("tsp"), problem, GREEDY, NoImprovement(3)
    )
    assert result.cost == 4.0
    assert result.iterations <= 4


def test_an_instance_without_choices_ends_at_once() -> None:
    """Three nodes have one tour: the time limit is not waited for."""
    began = time.perf_counter()
    result = large_neighborhood_search(
        NearestPolicy("tsp"), instances("tsp", 1, 3), GREEDY, MaxRuntime(30)
    )
    assert time.perf_counter() - began < 5
    assert result.iterations == 0


def test_an_interrupt_returns_the_best_so_far() -> None:
    """Ctrl-C in an iteration keeps what earlier ones found."""
    problem = instances("cvrp", 1, 40)
    start = random_routes(problem, np.random.default_rng(0))

    def interrupt(progress: Progress) -> None:
        if progress.iterations == 3:
            raise KeyboardInterrupt

    result = large_neighborhood_search(
        NearestPolicy("cvrp"),
        problem,
        GREEDY,
        MaxIterations(1000),
        start=start,
        callback=interrupt,
    )
    assert result.interrupted
    assert result.iterations == 3
    assert result.cost < problem.cost(start)


def test_sigterm_returns_the_best_so_far() -> None:
    """A terminated search still answers."""
    problem = instances("op", 1, 40)
    kill = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM])

    def begun(progress: Progress) -> None:
        if not kill.is_alive() and not progress.iterations:
            kill.start()

    with terminate_as_interrupt():
        result = large_neighborhood_search(
            NearestPolicy("op"), problem, GREEDY, MaxRuntime(30), callback=begun
        )
    assert result.interrupted
    assert result.cost == problem.cost(result.routes)


def test_policies_without_recurrence_get_k_of_one() -> None:
    """The default follows the policy, and a wrong k is refused by name."""
    problem = instances("tsp", 1, 12)
    policy = NearestPolicy("tsp")
    result = large_neighborhood_search(policy, problem, None, MaxIterations(1))
    assert result.iterations == 1
    with pytest.raises(ValueError, match="k_init = k_sub = 1, got 3 and 3"):
        large_neighborhood_search(policy, problem, SMALL, MaxIterations(1))
    assert LNSSettings.default("tsp", 100, recurrent=True).k_sub == 1000
    assert LNSSettings.default("tsp", 100, recurrent=False).k_init == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k_init": 0}, "k_init must be at least 1, got 0"),
        ({"b_sub": -1}, "b_sub must be at least 1, got -1"),
        ({"n_sub": 3}, "n_sub must be at least 4, got 3"),
        ({"segments": 0}, "segments must be at least 1, got 0"),
        ({"n_least": 3}, "n_least must be at least 4, got 3"),
        ({"b_least": 0}, "b_least must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_named(wrong: dict, message: str) -> None:
    """The error shows the value that was given."""
    with pytest.raises(ValueError, match=message):
        LNSSettings(**wrong)
