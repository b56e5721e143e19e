"""`renco.solve`, its results, and the public names."""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_policy, small

import renco
from renco import checkpoints, solver
from renco.checkpoints import save_policy
from renco.model import Policy
from renco.problems import OP, TSP, Infeasible, Problem
from renco.result import Result, number, percent_above
from renco.searches import SEARCHES, SearchOptions
from renco.solver import NoModel, default_model, find_device, find_policy
from renco.stop import MaxIterations, MaxRuntime

KEYS = [
    *("instance", "problem", "n", "cost", "routes", "feasible", "metric", "search"),
    *("model", "k", "beam", "seed", "seconds", "iterations", "history"),
]


def solve_one(problem: Problem, **options: object) -> Result:
    """Solves one instance with a small policy, quickly unless told otherwise."""
    defaults = {"model": make_policy(problem.name), "beam": 2}
    if options.get("search", "lns") == "lns":
        defaults["stop"] = MaxIterations(2)
    result = renco.solve(problem, **defaults | options)
    assert isinstance(result, Result)
    return result


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that adds a model to those that count as shipped."""
    monkeypatch.setattr(checkpoints, "SHIPPED", tmp_path / "weights")

    def add(name: str, problem: str, *, recurrent: bool, **info: object) -> None:
        policy = make_policy(problem, recurrent=recurrent)
        save_policy(policy, tmp_path / "weights" / name, **info)

    return add


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["tsp", "cvrp", "op"])
def test_every_search_returns_a_checked_solution(search: str, name: str) -> None:
    """The cost of a result is what the problem's own check says."""
    problem = small(name, batch=1, n=12)
    result = solve_one(problem, search=search)
    assert result.feasible
    assert result.cost == problem.cost([result.solution])[0]
    assert result.search == search
    assert result.history[-1][1] == pytest.approx(result.cost)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_instances_are_solved(search: str, n: int) -> None:
    """One, two and three nodes work with every search."""
    result = solve_one(TSP.random(1, n), search=search)
    assert sorted(result.routes[0]) == list(range(n))


def test_a_batch_gives_a_list_in_order() -> None:
    """Result i solves instance i."""
    problem = small("cvrp", batch=3)
    results = renco.solve(problem, search="greedy", model=make_policy("cvrp"))
    assert isinstance(results, list)
    costs = [problem[i].cost([r.solution])[0] for i, r in enumerate(results)]
    assert [r.cost for r in results] == costs


def test_an_instance_can_be_a_file(tmp_path: Path) -> None:
    """Reading it first is not necessary."""
    renco.write(tmp_path / "a.tsp", TSP([[0, 0], [0, 3], [4, 0]], title="abc"))
    path = str(tmp_path / "a.tsp")
    result = renco.solve(path, model=make_policy("tsp"), search="greedy")
    assert isinstance(result, Result) and result.cost == 12 and result.instance == "abc"


def test_things_that_are_no_instance_are_named(unchecked: None) -> None:
    """A bare array of coordinates is a common mistake."""
    with pytest.raises(TypeError, match="got ndarray"):
        renco.solve(np.zeros((5, 2)))  # type: ignore[arg-type]


def test_history_falls_and_ends_at_the_cost() -> None:
    """Only improvements are recorded, in order of time."""
    result = solve_one(small("tsp", batch=1, n=20), stop=MaxIterations(6))
    seconds, costs = np.array(result.history).T
    assert (np.diff(seconds) >= 0).all() and (np.diff(costs) < 0).all()
    assert costs[-1] == pytest.approx(result.cost)
    assert result.iterations == 6


def test_the_same_seed_gives_the_same_solution() -> None:
    """With a limit of iterations, results depend on the seed alone."""
    problem = small("tsp", batch=1, n=24)
    first, second = (solve_one(problem, seed=3) for _ in range(2))
    assert first.routes == second.routes and first.seed == 3


def test_a_start_is_never_made_worse() -> None:
    """Warm starts by routes, results and files end at least as good."""
    problem = small("tsp", batch=1, n=16)
    first = solve_one(problem)
    for start in (first, first.solution):
        again = solve_one(problem, start=start, stop=MaxIterations(1), seed=9)
        assert again.cost <= first.cost


def test_a_start_can_be_a_file(tmp_path: Path) -> None:
    """The path of a solution is as good as the solution."""
    problem = small("cvrp", batch=1)
    first = solve_one(problem)
    first.write(tmp_path / "a.sol")
    again = solve_one(problem, start=tmp_path / "a.sol", stop=MaxIterations(0))
    assert again.cost == first.cost


def test_a_start_that_breaks_a_rule_is_refused() -> None:
    """An infeasible start raises rather than being repaired silently."""
    with pytest.raises(Infeasible, match="visited twice"):
        solve_one(small("tsp", batch=1, n=4), start=[[0, 1, 2, 2]])


def test_routes_are_numbered_as_in_the_file() -> None:
    """`routes` uses the file's numbers, `solution` the ids."""
    problem = TSP([[0, 0], [0, 1], [1, 1], [1, 0]], numbers=[10, 20, 30, 40])
    result = solve_one(problem)
    expected = [[(node + 1) * 10 for node in result.solution[0]]]
    assert result.routes == expected == result.to_dict()["routes"]


def test_the_cost_is_in_the_metric_of_the_instance() -> None:
    """Rounded distances give a rounded cost."""
    square = [[0, 0], [0, 1.4], [1.4, 1.4], [1.4, 0]]
    assert solve_one(TSP(square, metric="EUC_2D")).cost == 4
    assert solve_one(TSP(square, metric="CEIL_2D")).cost == 8


def test_json_has_the_documented_keys() -> None:
    """Exactly the keys of the interface, prize and length for the OP only."""
    assert list(solve_one(small("tsp", batch=1)).to_dict()) == KEYS
    result = solve_one(small("op", batch=1))
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert list(values) == [*KEYS, "prize", "length"]
    assert values["prize"] == -values["cost"] == result.prize


def test_results_are_written_and_read_back(tmp_path: Path) -> None:
    """All formats hold the same routes."""
    problem = small("tsp", batch=1)
    result = solve_one(problem)
    for suffix in (".tour", ".sol", ".json"):
        path = tmp_path / f"tour{suffix}"
        result.write(path)
        assert renco.read_solution(path, problem) == result.solution
    with pytest.raises(ValueError, match=r"a\.txt"):
        result.write(tmp_path / "a.txt")


def test_the_summary_names_what_matters() -> None:
    """Cost, gap, search, model and seed are in the summary."""
    coords = small("tsp", batch=1).coords
    result = solve_one(TSP(coords, title="here", best_known=1.0), seed=7)
    text = result.summary()
    for word in ("here", "gap", "lns", "untrained", "seed 7", "2 iterations"):
        assert word in text
    assert "prize" in solve_one(small("op", batch=1)).summary()


def test_the_gap_of_a_result_needs_a_best_known_cost() -> None:
    """Without a reference there is no gap, rather than a made-up one."""
    assert solve_one(small("tsp", batch=1)).gap is None
    problem = OP([[0, 0], [0, 1]], [0, 3], 2.0, best_known=-6.0)
    assert solve_one(problem).gap == 50.0


@pytest.mark.parametrize(
    ("value", "text"), [(7542.0, "7542"), (-3.0, "-3"), (7.65432199, "7.65432")]
)
def test_numbers_are_shown_as_people_read_them(value: float, text: str) -> None:
    """Whole numbers have no decimals."""
    assert number(value) == text


def test_a_gap_to_nothing_is_none() -> None:
    """Zero or missing references have no relative gap."""
    assert percent_above(1.0, None) is None and percent_above(1.0, 0.0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "magic"}, "magic"),
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"n_sub": 2}, "n_sub must be at least 4, got 2"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"search": "greedy", "stop": MaxRuntime(1)}, "only the search lns takes stop"),
        ({"search": "beam", "start": [[0]]}, "only the search lns takes start"),
        ({"device": "cpu"}, "move or cast it first"),
    ],
)
def test_senseless_options_are_named(options: dict[str, object], message: str) -> None:
    """Each wrong argument raises a ValueError with its value."""
    with pytest.raises(ValueError, match=message):
        solve_one(small("tsp", batch=1), **options)


def test_a_base_model_has_no_k() -> None:
    """Asking a policy without U for k > 1 is an error; its default is 1."""
    policy = make_policy("tsp", recurrent=False)
    with pytest.raises(ValueError, match="k must be 1, got 10"):
        solve_one(small("tsp", batch=1), model=policy, k=10)
    assert solve_one(small("tsp", batch=1), model=policy, search="greedy").k == 1


def test_a_model_of_another_problem_is_refused() -> None:
    """The message names both problems."""
    with pytest.raises(ValueError, match="for cvrp, not for tsp"):
        solve_one(small("tsp", batch=1), model=make_policy("cvrp"))


def test_threads_are_set_for_the_call_only() -> None:
    """The number of threads is what it was before."""
    seen: list[int] = []
    solve_one(
        small("tsp", batch=1),
        threads=2,
        callback=lambda progress: seen.append(torch.get_num_threads()),
    )
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "meta", "cpu:x"])
def test_unknown_devices_are_named(name: str) -> None:
    """A device that is not there raises with its name."""
    with pytest.raises(ValueError, match=name):
        find_device(name)


def test_the_default_model_follows_the_rule(weights: Callable[..., None]) -> None:
    """Marked as default, else recurrent, else the first by name."""
    with pytest.raises(NoModel, match="no model for tsp"):
        default_model("tsp")
    weights("b-base", "tsp", recurrent=False)
    weights("a-base", "tsp", recurrent=False)
    weights("c-other", "cvrp", recurrent=True)
    assert default_model("tsp") == "a-base"
    weights("z-rec", "tsp", recurrent=True)
    assert default_model("tsp") == "z-rec"
    weights("y-base", "tsp", recurrent=False, default=True)
    assert default_model("tsp") == "y-base"
    assert default_model("cvrp") == "c-other"


def test_solve_finds_the_shipped_model(weights: Callable[..., None]) -> None:
    """Without a model argument the shipped one is loaded, and named."""
    weights("tsp9-rec", "tsp", recurrent=True)
    result = renco.solve(small("tsp", batch=1), search="greedy", precision="float32")
    assert isinstance(result, Result) and result.model == "tsp9-rec"


def test_a_given_policy_is_used_as_it_is() -> None:
    """No copy is made."""
    policy = make_policy("tsp")
    assert find_policy(policy, "tsp") is policy


def test_large_batches_are_cut_to_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting a batch into parts does not change its solutions."""
    problem, policy = small("tsp", batch=5), make_policy("tsp")
    options = SearchOptions(beam=2)
    whole = SEARCHES["beam"](policy, problem, options)
    monkeypatch.setattr("renco.searches.LARGEST_BATCH", 45)
    parts = SEARCHES["beam"](policy, problem, options)
    assert whole.routes == parts.routes and len(parts.routes) == 5


def test_public_names_exist_and_are_typed() -> None:
    """What `__getattr__` finds is what type checkers are told."""
    tree = ast.parse(inspect.getsource(renco))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname: f"{statement.module}"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert told == {name: f"renco.{home}" for name, home in renco._MODULE.items()}
    for name in renco.__all__:
        assert getattr(renco, name) is not None
    assert renco.solve is solver.solve
    assert set(renco.__all__) <= set(dir(renco))
    with pytest.raises(AttributeError, match="nonsense"):
        renco.nonsense  # noqa: B018


def test_importing_the_package_loads_no_torch() -> None:
    """`import renco` is quick because torch waits."""
    code = (
        "import sys, renco; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_policies_are_modules_with_the_three_calls() -> None:
    """The documented methods exist."""
    for name in ("encode", "update", "score"):
        assert callable(getattr(Policy, name))
