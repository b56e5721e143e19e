"""Experts: one signature around many solvers, whatever the units of the instance."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import small
from hypothesis import given, settings
from hypothesis import strategies as st

from renco import local
from renco.experts import (
    BEST,
    EXPERTS,
    ExpertFailed,
    MissingExpert,
    default_seconds,
    find,
)
from renco.experts.base import Solver
from renco.experts.fasttsp import FastTSP
from renco.experts.programs import Program
from renco.experts.pyvrp_search import Deadline
from renco.experts.scaling import distances, factor, whole, whole_demands
from renco.problems import CVRP, OP, PROBLEMS, TSP, Problem, Routes

PACKAGES = [name for name, expert in EXPERTS.items() if not isinstance(expert, Program)]


def installed(name: str) -> bool:
    """Returns whether an expert can be run here."""
    try:
        EXPERTS[name].check()
    except MissingExpert:
        return False
    return True


PAIRS = [
    pytest.param(
        name,
        problem,
        marks=[] if installed(name) else pytest.mark.skip(f"{name} is not installed"),
    )
    for name in PACKAGES
    for problem in EXPERTS[name].problems
]
each_pair = pytest.mark.parametrize(("name", "problem"), PAIRS)

SECONDS = 0.04


def solved(name: str, instance: Problem, seconds: float = SECONDS) -> float:
    """Returns the cost of the expert's solution, which must be feasible."""
    routes = EXPERTS[name](instance, seconds=seconds, seed=1)
    assert all(type(node) is int for route in routes for node in route)
    return float(instance.cost([routes])[0])


def all_solutions(instance: Problem) -> Iterator[Routes]:
    """Yields solutions among which an optimal one is, feasible or not."""
    nodes = range(1, instance.coords.shape[1])
    if instance.name == "op":
        for size in range(instance.n + 1):
            yield from ([list(some)] for some in itertools.permutations(nodes, size))
        return
    for order in itertools.permutations(nodes):
        if instance.name == "tsp":
            yield [[0, *order]]
            continue
        for cuts in itertools.product((False, True), repeat=instance.n - 1):
            routes = [[order[0]]]
            for node, cut in zip(order[1:], cuts, strict=True):
                routes.append([node]) if cut else routes[-1].append(node)
            yield routes


def optimum(instance: Problem) -> float:
    """Returns the least cost of all solutions, in plain Python."""
    nodes = np.arange(instance.coords.shape[1])
    legs = instance.legs(0, *np.broadcast_arrays(nodes[:, None], nodes)).tolist()
    best, chosen = np.inf, None
    for routes in all_solutions(instance):
        closed = [[*r, r[0]] if instance.name == "tsp" else [0, *r, 0] for r in routes]
        cost = sum(legs[a][b] for r in closed for a, b in itertools.pairwise(r))
        if isinstance(instance, OP):
            fits = cost <= instance.limit[0]
            cost = -instance.prizes[0, routes[0]].sum()
        elif isinstance(instance, CVRP):
            demands, room = instance.demands[0], instance.capacity[0]
            fits = all(sum(demands[i] for i in r) <= room for r in routes)
        else:
            fits = True
        if fits and cost < best:
            best, chosen = cost, routes
    assert float(instance.cost([chosen])[0]) == pytest.approx(best)
    return best


def near(value: float, name: str, problem: str) -> Any:
    """Returns what may pass for a value: OR-Tools is weak where visits are optional."""
    weak = (name, problem) == ("ortools", "op")
    return pytest.approx(value, rel=0.3 if weak else 1e-4)


@each_pair
@pytest.mark.parametrize("n", [4, 5])
def test_small_instances_are_solved_to_optimality(name, problem, n):
    """With everything else tried, nothing is better than what the expert found."""
    instance = small(problem, batch=1, n=n, seed=n)
    assert solved(name, instance) == near(optimum(instance), name, problem)


@each_pair
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_instances_are_solved_without_the_solver(name, problem, n, monkeypatch):
    """Up to three customers all solutions are tried; some solvers refuse them."""
    monkeypatch.delattr(type(EXPERTS[name]), "_solve")
    monkeypatch.setattr(type(EXPERTS[name]), "__abstractmethods__", frozenset())
    instance = small(problem, batch=1, n=n, seed=7)
    assert solved(name, instance) == pytest.approx(optimum(instance))


@each_pair
@pytest.mark.parametrize(
    ("side", "offset"), [(1e-3, 5e6), (1e6, 0.0), (1e-9, -3.0), (1.0, -1e6)]
)
def test_units_and_origin_do_not_matter(name, problem, side, offset):
    """Solvers count in integers of their own range; scaling to it is our business."""
    unit = small(problem, batch=1, n=12)
    values = {a: getattr(unit, a) for a in unit.arrays} | {
        "coords": unit.coords * side + offset
    }
    if problem == "op":
        values["limit"] = unit.limit * side * 1.001
        assert solved(name, OP(**values)) <= 0.9 * solved(name, unit)
    else:
        cost = solved(name, PROBLEMS[problem](**values)) / side
        assert cost == pytest.approx(solved(name, unit), rel=0.02)


@each_pair
@pytest.mark.parametrize("metric", ["EUC_2D", "CEIL_2D", "GEO", "EXPLICIT"])
def test_distances_are_those_of_the_metric(name, problem, metric):
    """The best solution under a metric is often none under another."""
    unit = small(problem, batch=1, n=5, seed=3)
    values = {a: getattr(unit, a) for a in unit.arrays}
    values |= {"coords": unit.coords * 10, "metric": metric}
    if metric == "EXPLICIT":
        side = unit.coords.shape[1]
        matrix = np.random.default_rng(1).integers(5, 15, (side, side)).astype(float)
        values["matrix"] = np.triu(matrix, 1) + np.triu(matrix, 1).T
    if problem == "op":
        values["limit"] = {"GEO": 2000.0, "EXPLICIT": 24.0}.get(metric, 18.0)
    instance = PROBLEMS[problem](**values)
    assert solved(name, instance) == near(optimum(instance), name, problem)


@each_pair
@pytest.mark.parametrize("shape", ["one place", "two places", "a line"])
def test_points_may_coincide_or_lie_on_a_line(name, problem, shape):
    """Matrices full of zeros, and circles without an inside, are no error."""
    unit = small(problem, batch=1, n=8)
    x = {
        "one place": np.zeros(unit.coords.shape[1]),
        "two places": np.arange(unit.coords.shape[1]) % 2,
        "a line": np.arange(unit.coords.shape[1]) / 4,
    }[shape]
    values = {a: getattr(unit, a) for a in unit.arrays}
    instance = PROBLEMS[problem](
        **values | {"coords": np.stack([x, np.zeros_like(x)], -1)}
    )
    cost = solved(name, instance)
    expected = {"one place": 0.0, "two places": 2.0, "a line": 2.0 * x.max()}[shape]
    if problem == "tsp":
        assert cost == pytest.approx(expected)
    elif problem == "op" and shape == "one place":
        assert cost == -unit.prizes.sum()


@each_pair
def test_nothing_is_printed(name, problem, capfd):
    """Solvers that talk would spoil results that are written to standard output."""
    solved(name, small(problem, batch=1, n=10))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["hygese", "pyvrp", "ortools"])
@pytest.mark.parametrize(
    ("demands", "capacity"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], 1.0),
        ([0, 0, 0, 0, 0, 0, 0], 5),
        ([1 / 3, 2 / 3, 1, 1 / 3, 1 / 3, 1 / 3, 1 / 3], 1),
        ([400_000, 600_000, 1_000_000, 3e5, 7e5, 5e5, 5e5], 1_000_000),
    ],
)
def test_demands_may_be_fractions_zero_or_large(name, demands, capacity):
    """Routes are full to the brim in each of these, and none is overfull."""
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    coords = TSP.random(1, 8, seed=5).coords[0]
    instance = CVRP(coords, [0, *demands], capacity)
    routes = EXPERTS[name](instance, seconds=SECONDS, seed=1)
    assert instance.cost([routes]) > 0
    # Seven demands of 2.8 or 3.333 in all need three or four vehicles.
    assert len(routes) <= np.ceil(np.sum(demands) / capacity) + 1


def test_hgs_in_a_hurry_has_a_smaller_population(monkeypatch):
    """Or its time would be up before it has combined anything."""
    hygese = pytest.importorskip("hygese")
    populations, parameters = [], hygese.AlgorithmParameters
    monkeypatch.setattr(
        *(hygese, "AlgorithmParameters"),
        lambda **given: populations.append(given["mu"]) or parameters(**given),
    )
    for seconds in (0.02, 0.04):
        EXPERTS["hygese"](small("cvrp", batch=1, n=10), seconds=seconds, seed=0)
    assert populations == [6, 12]


@each_pair
def test_wrong_arguments_are_named(name, problem):
    """A batch, another problem, no time and a negative seed are refused."""
    expert = EXPERTS[name]
    one = small(problem, batch=1, n=5)
    with pytest.raises(ValueError, match="one instance, got 2"):
        expert(small(problem, batch=2, n=5), seconds=1.0, seed=0)
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds must be positive"):
            expert(one, seconds=seconds, seed=0)
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        expert(one, seconds=1.0, seed=-1)
    for other in set(PROBLEMS) - set(expert.problems):
        with pytest.raises(ValueError, match=f"cannot solve {other}, it can solve"):
            expert(small(other, batch=1, n=5), seconds=1.0, seed=0)


def test_experts_are_found_by_name():
    """Names lead to experts, `auto` to the best, `none` to none, others to a list."""
    assert find("none", "tsp") is None
    assert find("fast-tsp", "tsp") is EXPERTS["fast-tsp"]
    assert {problem: find("auto", problem).name for problem in BEST} == {
        "tsp": "fast-tsp",
        "cvrp": "hygese",
        "op": "pyvrp",
    }
    with pytest.raises(ValueError, match="unknown expert 'gurobi': choose from fast-"):
        find("gurobi", "tsp")
    with pytest.raises(ValueError, match="hygese cannot solve op, it can solve cvrp"):
        find("hygese", "op")
    with pytest.raises(ValueError, match="unknown problem 'vrp': expected tsp, cvrp"):
        find("auto", "vrp")
    with pytest.raises(ValueError, match="unknown problem 'vrp'"):
        default_seconds("vrp", 100)


def test_every_expert_has_a_version():
    """The version goes into the manifest of a set; it is not an empty string."""
    for name in filter(installed, EXPERTS):
        assert EXPERTS[name].version


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    """The error says what to install, and `auto` goes on to the next best."""
    for module in ("fast_tsp", "hygese", "pyvrp", "ortools", "elkai"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in PACKAGES:
        extra = name if name in ("ortools", "elkai") else "experts"
        with pytest.raises(MissingExpert, match=rf"{name}.*install renco\[{extra}\]"):
            find(name, EXPERTS[name].problems[0])
    for problem in PROBLEMS:
        with pytest.raises(MissingExpert, match=f"no expert for {problem}.*experts"):
            find("auto", problem)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "hygese", None)
    assert find("auto", "cvrp").name == "pyvrp"


def test_time_grows_with_the_size():
    """The paper's labels for n = 100 set the pace; larger ones take longer."""
    assert 2 * 3600 / default_seconds("tsp", 100) >= 300_000
    assert 2 * 3600 / default_seconds("cvrp", 100) >= 12_000
    for problem in PROBLEMS:
        times = [default_seconds(problem, n) for n in (1, 20, 100, 200, 500, 1000)]
        assert times == sorted(times) and times[0] > 0


def test_time_of_the_processor_is_what_counts():
    """Waiting does not use a deadline up; computing does."""
    deadline = Deadline(0.05)
    time.sleep(0.06)
    assert not deadline(0.0) and 0 < deadline.left <= 0.05
    while not deadline(0.0):
        sum(range(1000))
    assert deadline.left <= 0


def test_a_starved_solver_is_run_again_for_longer(monkeypatch):
    """A run that got no processor is repeated; one that solved exactly is not."""
    budgets: list[float] = []

    def idle(matrix: Any, duration_seconds: float, max_threads: int) -> list[int]:
        budgets.append(duration_seconds)
        time.sleep(duration_seconds)
        return list(range(len(matrix)))

    def exact(matrix: Any, duration_seconds: float, max_threads: int) -> list[int]:
        budgets.append(duration_seconds)
        return list(range(len(matrix)))

    def run(find_tour: Any, seconds: float) -> list[float]:
        budgets.clear()
        module = SimpleNamespace(find_tour=find_tour)
        monkeypatch.setattr(Solver, "_import", lambda *_: module)
        FastTSP()(TSP.random(1, 8), seconds=seconds, seed=0)
        return budgets

    first, *others = run(idle, 0.005)
    assert first == 0.005
    assert len(others) == 3 and all(0.05 < budget <= 0.16 for budget in others)
    assert run(exact, 1.0) == [1.0]


class TestScaling:
    """Numbers as the solvers want them."""

    def test_whole_distances_stay_exact(self):
        """Integers are multiplied by integers; others use the whole range."""
        matrix = distances(TSP(TSP.random(1, 9).coords * 1000, metric="EUC_2D"))
        assert factor(matrix, 65_535) == 65_535 // matrix.max()
        assert (whole(matrix, 65_535) == matrix * factor(matrix, 65_535)).all()
        unrounded = distances(TSP.random(1, 9))
        assert whole(unrounded, 65_535).max() == 65_535
        assert whole(np.zeros((3, 3)), 10).max() == 0

    def test_distances_beyond_the_range_are_scaled_down(self):
        """Whole numbers that are too large give up being exact."""
        matrix = np.array([[0.0, 3e9], [3e9, 0.0]])
        assert whole(matrix, 65_535).max() == 65_535

    @given(
        st.lists(st.integers(0, 50), min_size=1, max_size=6),
        st.sampled_from([1, 2, 3, 7, 10, 64, 1000]),
        st.integers(50, 200),
    )
    def test_whole_demands_admit_the_same_loads(self, amounts, parts, room):
        """Any subset fits the integers exactly if it fits the fractions."""
        demands = [0.0, *(amount / parts for amount in amounts)]
        instance = CVRP(np.zeros((len(demands), 2)), demands, room / parts)
        integers, capacity = whole_demands(instance)
        for mask in itertools.product((0, 1), repeat=len(amounts)):
            load = sum(m * a for m, a in zip(mask, amounts, strict=True))
            assert (load <= room) == (np.dot(mask, integers[1:]) <= capacity)

    @pytest.mark.parametrize(
        ("demands", "message"),
        [
            ([0, np.pi], "demand 3.14159.* of node 1 is not a fraction"),
            ([0, 1 / 999_983, 1 / 999_979], "common denominator 999962000357"),
        ],
    )
    def test_odd_demands_are_refused(self, demands, message):
        """Rounding a demand could make routes overfull, so it is not rounded."""
        instance = CVRP(np.zeros((len(demands), 2)), demands, 4.0)
        with pytest.raises(ValueError, match=message):
            whole_demands(instance)


class TestInsertion:
    """Improvements of orienteering tours."""

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 10_000), st.floats(0.1, 4.0))
    def test_tours_stay_feasible_and_gain(self, seed, limit):
        """Improving a tour keeps the limit and never loses prize."""
        instance = OP.random(1, 15, seed=seed, limit=limit)
        matrix, prizes = distances(instance), instance.prizes[0]
        order = np.random.default_rng(seed).permutation(np.arange(1, 16)).tolist()
        start = []
        for node in order:
            if local.length_of([*start, node], matrix) <= limit:
                start.append(node)
        better = local.improve(start, matrix, prizes, limit)
        before, after = instance.cost([[start]]), instance.cost([[better]])
        assert after <= before
        # Nothing is left that would simply fit.
        for node in set(range(1, 16)) - set(better):
            for place in range(len(better) + 1):
                longer = [*better[:place], node, *better[place:]]
                assert local.length_of(longer, matrix) > limit

    @pytest.mark.parametrize("seed", range(4))
    def test_shortening_keeps_the_nodes(self, seed):
        """No 2-opt or Or-opt move is left, and every node still there."""
        matrix = distances(TSP.random(1, 12, seed=seed))
        route = np.random.default_rng(seed).permutation(np.arange(1, 12)).tolist()
        short = local.shorten(route, matrix)
        assert sorted(short) == list(range(1, 12))
        length = local.length_of(short, matrix)
        for i, j in itertools.combinations(range(12), 2):
            flipped = [*short[:i], *short[i:j][::-1], *short[j:]]
            assert local.length_of(flipped, matrix) >= length - 1e-9
        for i, size in itertools.product(range(11), (1, 2, 3)):
            rest, segment = [*short[:i], *short[i + size :]], short[i : i + size]
            for k in range(len(rest) + 1):
                moved = [*rest[:k], *segment, *rest[k:]]
                assert local.length_of(moved, matrix) >= length - 1e-9
                moved = [*rest[:k], *segment[::-1], *rest[k:]]
                assert local.length_of(moved, matrix) >= length - 1e-9

    @pytest.mark.parametrize("seed", range(6))
    def test_swapping_takes_the_best_replacement(self, seed):
        """The gain is the largest of all replacements at any place that fit."""
        instance = OP.random(1, 10, seed=seed, limit=2.0)
        matrix, prizes = distances(instance), instance.prizes[0]
        order = np.argsort(matrix[0])[1:].tolist()
        route = local.shorten(order[:4], matrix)
        limit = local.length_of(route, matrix) * 1.2
        gains = [0.0]
        for k, node in itertools.product(range(4), order[4:]):
            rest = [*route[:k], *route[k + 1 :]]
            for place in range(4):
                other = [*rest[:place], node, *rest[place:]]
                if local.length_of(other, matrix) <= limit:
                    gains.append(prizes[node] - prizes[route[k]])
        better = local.swap(route, matrix, prizes, limit)
        gain = 0.0 if better is None else prizes[better].sum() - prizes[route].sum()
        assert gain == max(gains)

    def test_exact_fits_are_taken(self):
        """A tour may be as long as the limit, to the last unit."""
        line = OP([[0, 0], [3, 0], [5, 0], [9, 0]], [0, 1, 2, 9], 10, metric="EUC_2D")
        matrix = distances(line)
        assert local.insert_all([], matrix, line.prizes[0], 10.0) == [1, 2]
        assert local.insert_all([], matrix, line.prizes[0], 9.99) == [1]


def test_the_orienteering_expert_beats_its_parts():
    """The search collects clearly more than insertion and exchange alone."""
    if not installed("pyvrp"):
        pytest.skip("pyvrp is not installed")
    alone = found = 0.0
    for seed in range(3):
        instance = OP.random(1, 60, seed=seed, limit=3.0)
        matrix, prizes = distances(instance), instance.prizes[0]
        alone += prizes[local.improve([], matrix, prizes, 3.0)].sum()
        found -= solved("pyvrp", instance, seconds=0.15)
    assert found > 1.03 * alone


@pytest.mark.parametrize("limit", [0.0, 0.05, 100.0])
def test_extreme_limits_are_handled(limit):
    """Nothing can be reached, next to nothing, or everything."""
    if not installed("pyvrp"):
        pytest.skip("pyvrp is not installed")
    instance = OP.random(1, 30, limit=limit)
    cost = solved("pyvrp", instance)
    reachable = instance.prizes[0][2 * distances(instance)[0] <= limit].sum()
    assert cost == -reachable if limit != 0.05 else -reachable <= cost <= 0


READER = '''
import itertools, json, os, sys, time
def tokens(path):
    """Reads the sections of a file of the TSPLIB family."""
    head, sections, current = {}, {}, None
    for line in open(path):
        word = line.split()
        if not word or word[0] == "EOF":
            continue
        if word[0].endswith("_SECTION"):
            current = sections.setdefault(word[0], [])
        elif current is None:
            head[word[0]] = word[-1]
        else:
            current.append([float(x) for x in word])
    return head, sections
def tour_length(matrix, route):
    return sum(matrix[a][b] for a, b in zip(route, route[1:]))
'''

STAND_INS = {
    "concorde": """
assert sys.argv[1] == "-x" and sys.argv[4:6] == ["-o", "a.sol"], sys.argv
head, sections = tokens(sys.argv[6])
assert head["TYPE"] == "TSP" and head["EDGE_WEIGHT_FORMAT"] == "FULL_MATRIX"
matrix = sections["EDGE_WEIGHT_SECTION"]
n = int(head["DIMENSION"])
assert len(matrix) == n and max(map(max, matrix)) >= 100000
orders = ((0, *order, 0) for order in itertools.permutations(range(1, n)))
best = min(orders, key=lambda r: tour_length(matrix, r))
open("a.sol", "w").write(f"{n}\\n" + "\\n".join(map(str, best[:-1])))
""",
    "LKH": """
settings = dict(
    map(str.strip, line.split("=")) for line in open(sys.argv[1]) if "=" in line
)
assert float(settings["TIME_LIMIT"]) > 0 and int(settings["SEED"]) > 0
head, sections = tokens(settings["PROBLEM_FILE"])
matrix = sections["EDGE_WEIGHT_SECTION"]
n = int(head["DIMENSION"])
if head["TYPE"] == "TSP":
    orders = ((0, *order, 0) for order in itertools.permutations(range(1, n)))
    best = min(orders, key=lambda r: tour_length(matrix, r))[:-1]
else:
    assert sections["DEPOT_SECTION"] == [[1.0], [-1.0]]
    demand = {int(i) - 1: d for i, d in sections["DEMAND_SECTION"]}
    found = []
    for order in itertools.permutations(range(1, n)):
        for cuts in itertools.product((0, 1), repeat=n - 2):
            route, load, fits = [0, order[0]], demand[order[0]], True
            for node, cut in zip(order[1:], cuts):
                route += [0, node] if cut else [node]
                load = demand[node] + (0 if cut else load)
                fits = fits and load <= float(head["CAPACITY"])
            if fits:
                found.append((tour_length(matrix, [*route, 0]), route))
    best = min(found)[1]
    assert best.count(0) <= int(settings["VEHICLES"])
    # Depots after the first are numbered beyond the customers; spare ones follow.
    extra = itertools.count(n)
    best = [node or next(extra) for node in best] + [next(extra)]
    best[0] = 0
    best = best[2:] + best[:2]
lines = ["NAME : a", "TYPE : TOUR", "TOUR_SECTION", *(str(i + 1) for i in best)]
open(settings["TOUR_FILE"], "w").write("\\n".join([*lines, "-1", "EOF"]))
""",
    "op-solver": """
assert sys.argv[1:4] == ["opt", "--op-exact", "0"] and sys.argv[4] == "--seed"
head, sections = tokens(sys.argv[8])
matrix = sections["EDGE_WEIGHT_SECTION"]
prize = {int(i) - 1: p for i, p in sections["NODE_SCORE_SECTION"]}
limit, n, best = float(head["COST_LIMIT"]), int(head["DIMENSION"]), (0, ())
for size in range(1, n):
    for some in itertools.permutations(range(1, n), size):
        if tour_length(matrix, [0, *some, 0]) <= limit:
            best = max(best, (sum(prize[i] for i in some), some))
cycle = [1, *(i + 1 for i in best[1])]
with open(sys.argv[7], "w") as out:
    for phase in ([1], cycle[1:] + cycle[:1]):
        out.write(json.dumps({"sol": {"cycle": phase}}, indent=2) + "\\n")
""",
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a script on PATH under the name of a program."""

    def put(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable} -S\n{READER}{script}")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent))
        return path

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return put


PROGRAMS = [
    (e, p) for e in EXPERTS.values() if isinstance(e, Program) for p in e.problems
]


@pytest.mark.parametrize(
    ("expert", "problem"), PROGRAMS, ids=[f"{e.name}-{p}" for e, p in PROGRAMS]
)
@pytest.mark.parametrize("side", [1.0, 1e-4, 1e7])
def test_programs_are_given_files_and_their_answers_read(
    expert, problem, side, program, tmp_path
):
    """A stand-in that solves what it reads by brute force gives the optimum."""
    program(expert.program, STAND_INS[expert.program])
    unit = small(problem, batch=1, n=5, seed=2)
    values = {a: getattr(unit, a) for a in unit.arrays}
    values["coords"] = unit.coords * side + 3
    if problem == "op":
        values["limit"] = unit.limit * side
    instance = PROBLEMS[problem](**values)
    assert solved(expert.name, instance) == pytest.approx(optimum(instance), rel=1e-4)
    assert expert.version.startswith("sha256:")
    assert [entry.name for entry in tmp_path.iterdir()] == ["bin"]


FAULTS = {
    "crash": ("print('out of memory'); sys.exit(3)", "ended with code 3: out of mem"),
    "signal": ("os.kill(os.getpid(), 11)", "ended with code -11"),
    "silence": ("", "wrote no solution"),
    "nonsense": (
        "for name in ('a.sol', 'a.tour', 'a.json'): open(name, 'w').write('{x 7 -1')",
        "wrote no readable solution",
    ),
    "empty": (
        "for name in ('a.sol', 'a.tour', 'a.json'): open(name, 'w').write('')",
        "wrote no readable solution",
    ),
    "twice": (
        "open('a.sol', 'w').write('5 0 1 1 1 2')\n"
        "open('a.tour', 'w').write('TOUR_SECTION 1 2 2 3 -1')\n"
        "open('a.json', 'w').write('{\"sol\": {\"cycle\": [1, 2, 2]}}')",
        "is wrong: ",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["concorde", "lkh", "op-solver"])
def test_faulty_programs_are_reported(name, fault, program, tmp_path):
    """Whatever a program does instead of solving, the error says it."""
    expert = EXPERTS[name]
    script, message = FAULTS[fault]
    program(expert.program, script)
    instance = small(expert.problems[-1], batch=1, n=5)
    with pytest.raises(ExpertFailed, match=message):
        expert(instance, seconds=1.0, seed=0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bin"]


def test_a_program_that_hangs_is_stopped_with_its_children(
    program, tmp_path, monkeypatch
):
    """After the limit and a grace, the whole process group is ended."""
    monkeypatch.setattr(Program, "grace", 0.3)
    noted = tmp_path / "bin" / "child"
    program(
        "concorde",
        "child = os.fork()\n"
        f"if child: open({str(noted)!r}, 'w').write(str(child))\n"
        "time.sleep(60)",
    )
    with pytest.raises(ExpertFailed, match=r"stopped 0\.3 s after its limit of 1\.5"):
        EXPERTS["concorde"](TSP.random(1, 6), seconds=1.5, seed=0)
    child = int(noted.read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split(")")[1].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        pytest.fail("the child has survived")


def test_a_missing_program_is_named(monkeypatch, tmp_path):
    """The error says which program to put on PATH, and where it comes from."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("concorde", "lkh", "op-solver"):
        expert = EXPERTS[name]
        with pytest.raises(MissingExpert, match=f"{expert.program} on PATH: see http"):
            find(name, expert.problems[0])
        with pytest.raises(MissingExpert):
            expert(small(expert.problems[0], batch=1, n=5), seconds=1.0, seed=0)
